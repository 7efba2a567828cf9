"""A TLS handshake between two contexts, in memory: what a real one would accept or refuse."""

import base64
import ssl
from pathlib import Path

from charting import Rendered


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, *, host: str) -> None:
    """Let the two agree; raises what a real handshake would."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(down, up, server_hostname=host),
        server.wrap_bio(up, down, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert not waiting


def laid_out(rendered: Rendered, secret: str, folder: Path) -> Path:
    """The files of a secret, as a pod or a person has them."""
    folder.mkdir()
    for name, text in rendered.one("Secret", secret)["data"].items():
        (folder / name).write_bytes(base64.b64decode(text))
    return folder
