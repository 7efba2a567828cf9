"""A fake TLS server that opens a watch and then reads no further request."""

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Self

_OPENED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class FakeDeafServer:
    """Sends no closing message when a client sends one; use as an async context.

    Attributes:
        hung_up: set when a client has closed its socket.
    """

    def __init__(self, folder: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        self._certificate = folder / "tls.crt"
        self.hung_up = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    def kubeconfig(self) -> str:
        """How to reach it."""
        port = self._server.sockets[0].getsockname()[1]
        return (
            '{"current-context": "c", "users": [{"name": "u", "user": {"token": "t"}}], '
            '"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], '
            '"clusters": [{"name": "c", "cluster": {'
            f'"server": "https://127.0.0.1:{port}", '
            f'"certificate-authority": "{self._certificate}"}}}}]}}'
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self._context.wrap_bio(coming, going, server_side=True)
        while hello := await reader.read(65536):
            coming.write(hello)
            with suppress(ssl.SSLWantReadError):
                tls.do_handshake()
                tls.read()  # the request
                tls.write(_OPENED)
                break
            writer.write(going.read())
        writer.write(going.read())
        with suppress(ConnectionError):  # a client that left something unread
            while await reader.read(65536):
                pass
        self.hung_up.set()
        writer.close()
