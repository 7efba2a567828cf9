"""A TLS handshake between two contexts, in memory: what a real one would accept or refuse."""

import ssl


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
