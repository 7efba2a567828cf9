"""The least that a client can cost: whole requests made beforehand, sent over kept connections.

Client and subject share the machine, so what a client spends is missing from what is measured. No
general HTTP: replies must carry a Content-Length, as an extender's do.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Self
from urllib.parse import urlsplit


def request(url: str, body: bytes) -> bytes:
    """A POST of JSON, ready to be sent."""
    parts = urlsplit(url)
    head = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class LeanConnection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._buffer = b""
        self._reply: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: asyncio.WriteTransport | None = None

    @classmethod
    async def to(cls, url: str) -> Self:
        """Connected to the host of ``url``."""
        parts = urlsplit(url)
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, parts.hostname or "", parts.port or 80)
        return connection

    async def send(self, whole: bytes) -> tuple[int, bytes]:
        """Status and body of the reply to a whole request."""
        assert self._transport is not None
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(whole)
        return await self._reply

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready to send."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Part of a reply."""
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        if not end or self._reply is None:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) >= length:
            self._buffer = body[length:]
            self._reply.set_result((int(head[9:12]), body[:length]))

    def connection_lost(self, error: Exception | None) -> None:
        """The other side hung up."""
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error or ConnectionError("closed before the reply"))


async def send_all(url: str, requests: Iterable[bytes], *, connections: int) -> None:
    """Send every request over so many connections; each must be answered with 200."""
    pending = iter(requests)
    lines = [await LeanConnection.to(url) for _ in range(connections)]
    try:
        await asyncio.gather(*(_work(line, pending) for line in lines))
    finally:
        for line in lines:
            line.close()


async def _work(line: LeanConnection, pending: Iterator[bytes]) -> None:
    for one in pending:
        status, body = await line.send(one)
        assert status == 200, body
