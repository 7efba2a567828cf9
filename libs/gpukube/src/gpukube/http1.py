"""A small HTTP/1.1 client with kept connections, at a third of the cost of aiohttp per request.

A bind is one POST, and with aiohttp that POST costs more than the rest of the bind. A start reads
two long lists while aiohttp is still being imported. There are no redirects, cookies, proxies or
compression, because these requests need none of them.

A connection whose reply was not read to the end is never used again. Nothing is retried.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

import httptools
import msgspec

CONNECTIONS: Final = 64
CLOSE_SECONDS: Final = 1.0


class Reply(msgspec.Struct, frozen=True):
    """A reply; names of ``headers`` are in lower case."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


class _Connection(asyncio.Protocol):
    """One connection: one request at a time, fed to the parser as the reply comes.

    Attributes:
        usable: for another request.
        lost: done when its socket is closed.
    """

    def __init__(self) -> None:
        self.usable = True
        self.lost = asyncio.get_running_loop().create_future()
        self._transport: asyncio.WriteTransport | None = None
        self._coming: asyncio.Future[Reply] | None = None
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._reason, self._parts = b"", list[bytes]()

    async def send(self, request: bytes) -> Reply:
        """Write a whole request; cancelled or failed, the connection is closed."""
        if self._transport is None:
            raise ConnectionError("not connected")
        self._coming = asyncio.get_running_loop().create_future()
        try:
            self._transport.write(request)
            return await self._coming
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Hang up."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # TCP and TLS can be written to

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"no HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionError("closed by the server"))
        self.lost.set_result(None)

    # Callbacks of the parser.

    def on_status(self, status: bytes) -> None:
        self._reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        coming, status = self._coming, self._parser.get_status_code()
        if not self._parser.should_keep_alive():
            self.close()
        if coming is None or coming.done():
            self.close()  # a reply without a request: the next reply could not be trusted
            return
        reason = self._reason.decode("latin-1")
        coming.set_result(Reply(status, reason, self._headers, b"".join(self._parts)))
        self._coming = None
        self._begin()

    def _fail(self, error: Exception) -> None:
        self.usable = False
        if self._coming is not None and not self._coming.done():
            self._coming.set_exception(error)


class ConnectionPool:
    """Sends requests to ``host``.

    Args:
        host: with scheme, port and, where there is one, a path before all paths.
        tls: where the scheme is https.
        connect_seconds: for a new connection.
        seconds: for everything.
    """

    def __init__(
        self, host: str, tls: ssl.SSLContext | None, *, connect_seconds: float, seconds: float
    ) -> None:
        parts = urlsplit(host)
        self._tls = tls if parts.scheme == "https" else None
        self._address = parts.hostname or "", parts.port or (443 if self._tls else 80)
        self._prefix, self._netloc = parts.path.rstrip("/"), parts.netloc
        self._connect_seconds, self._seconds = connect_seconds, seconds
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._free = asyncio.Semaphore(CONNECTIONS)

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        """The reply, whatever its status.

        Raises:
            OSError: the connection was refused, or lost before the reply.
            TimeoutError: the request timed out.
        """
        more = {**headers, "Content-Length": str(len(body))}
        return await self._send(self._head("POST", quote(path), more) + body)

    async def get(self, path: str, params: Mapping[str, str], headers: Mapping[str, str]) -> Reply:
        """The whole reply, whatever its status.

        Raises:
            OSError, TimeoutError: as :meth:`post`.
        """
        return await self._send(self._head("GET", f"{quote(path)}?{urlencode(params)}", headers))

    async def close(self) -> None:
        """Close all connections; returns when their sockets are, or when that takes too long."""
        self._idle.clear()
        for connection in self._open:
            connection.close()
        if self._open:
            await asyncio.wait(
                [connection.lost for connection in self._open], timeout=CLOSE_SECONDS
            )

    async def _send(self, request: bytes) -> Reply:
        async with self._free, asyncio.timeout(self._seconds):
            connection = await self._connection()
            reply = await connection.send(request)
        if connection.usable:
            self._idle.append(connection)
        return reply

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        async with asyncio.timeout(self._connect_seconds):
            host, port = self._address
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(_Connection, host, port, ssl=self._tls)
            self._open.add(connection)
            connection.lost.add_done_callback(lambda _: self._open.discard(connection))
            return connection

    def _head(self, method: str, target: str, headers: Mapping[str, str]) -> bytes:
        lines = [
            f"{method} {self._prefix}{target} HTTP/1.1",
            f"Host: {self._netloc}",
            *(f"{name}: {_one_line(value)}" for name, value in headers.items()),
            "\r\n",
        ]
        return "\r\n".join(lines).encode("latin-1")


def _one_line(value: str) -> str:
    """A header's value; a line break would begin another header."""
    return " ".join(value.split())
