"""POSTs over kept connections: what is used again, what never is, and what is an error."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from gpukube.http1 import ConnectionPool
from gpukube.testing.waiting import WAIT_SECONDS

Serve = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
GOOD = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nRetry-After: 3\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"
CUT = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"
BEGUN = b"HTTP/1.1 200 OK\r\n"
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"


class FakeServer:
    """Answers each request by the next of the replies, and keeps what was asked."""

    def __init__(self, *replies: bytes) -> None:
        self.replies = list(replies)
        self.heads: list[str] = []
        self.connections = 0
        self.asked, self.closed = asyncio.Event(), asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection; an empty reply and one that is cut short hang up."""
        self.connections += 1
        try:
            while head := await self._request(reader):
                self.heads.append(head)
                self.asked.set()
                reply = self.replies.pop(0)
                writer.write(reply)
                if reply in {b"", CUT}:
                    return
        finally:
            writer.close()
            self.closed.set()

    async def _request(self, reader: asyncio.StreamReader) -> str:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except (asyncio.IncompleteReadError, ConnectionError):
            return ""
        length = next(line for line in head.splitlines() if line.startswith("Content-Length"))
        await reader.readexactly(int(length.split(":")[1]))
        return head


@asynccontextmanager
async def posting(
    server: FakeServer, *, seconds: float = WAIT_SECONDS, path: str = ""
) -> AsyncIterator[ConnectionPool]:
    """A poster to that server."""
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}{path}"
    poster = ConnectionPool(url, None, connect_seconds=WAIT_SECONDS, seconds=seconds)
    try:
        yield poster
    finally:
        await poster.close()
        listening.close()


async def test_a_connection_is_kept_from_one_reply_to_the_next() -> None:
    """Length or chunks, a reply that was read to its end leaves the connection usable."""
    server = FakeServer(GOOD, CHUNKED, GOOD)
    async with posting(server) as poster:
        first = await poster.post("/a", b"1", {})
        second = await poster.post("/b", b"22", {})
        await poster.post("/c", b"", {})
    assert (first.status, first.reason, first.body) == (201, "Created", b"{}")
    assert first.headers["retry-after"] == "3"
    assert (second.status, second.body) == (200, b"{}")
    assert server.connections == 1


async def test_a_server_that_says_close_is_connected_to_anew() -> None:
    """Its reply counts, its connection does not."""
    server = FakeServer(LAST, GOOD)
    async with posting(server) as poster:
        assert (await poster.post("/a", b"", {})).status == 200
        assert (await poster.post("/a", b"", {})).status == 201
    assert server.connections == 2


async def test_together_they_do_not_share_a_connection() -> None:
    """Requests that are under way at once have one each; later ones use these again."""
    server = FakeServer(*[GOOD] * 6)
    async with posting(server) as poster:
        for _ in range(2):
            await asyncio.gather(*(poster.post("/a", b"", {}) for _ in range(3)))
    assert server.connections == 3


@pytest.mark.parametrize("reply", [b"", CUT, b"no HTTP at all\r\n\r\n"])
async def test_no_whole_reply_is_an_error(reply: bytes) -> None:
    """Hung up, cut short, or something else: it is not sent again, for it may have been done."""
    server = FakeServer(reply, b"")
    async with posting(server) as poster:
        with pytest.raises(ConnectionError):
            await poster.post("/a", b"", {})
    assert len(server.heads) == 1


async def test_a_reply_that_never_ends_is_given_up() -> None:
    """After the seconds for everything."""
    async with posting(FakeServer(BEGUN), seconds=0.3) as poster:
        with pytest.raises(TimeoutError):
            await poster.post("/a", b"", {})


async def test_a_late_reply_is_never_taken_for_the_next_one() -> None:
    """Who gives up closes the connection: what comes on it then belongs to nobody."""
    server = FakeServer(BEGUN, GOOD)
    async with posting(server) as poster:
        given_up = asyncio.create_task(poster.post("/a", b"", {}))
        await asyncio.wait_for(server.asked.wait(), WAIT_SECONDS)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert (await poster.post("/b", b"", {})).status == 201
    assert server.connections == 2


async def test_a_connection_that_was_closed_meanwhile_is_not_used() -> None:
    """An API server that restarts closes what is idle."""
    server = FakeServer(GOOD, GOOD)
    async with posting(server) as poster:
        await poster.post("/a", b"", {})
        await poster.close()
        await asyncio.wait_for(server.closed.wait(), WAIT_SECONDS)
        assert (await poster.post("/a", b"", {})).status == 201
    assert server.connections == 2


async def test_closing_returns_when_sockets_are_closed() -> None:
    """A loop that ends right after would leave open what is only about to be closed."""
    server = FakeServer(BEGUN)
    async with posting(server) as poster:
        before = _sockets()
        waiting = asyncio.create_task(poster.post("/a", b"", {}))
        await asyncio.wait_for(server.asked.wait(), WAIT_SECONDS)
        both_ends = _sockets() - before
        await poster.close()
        assert len(both_ends) == 2
        assert len(both_ends & _sockets()) <= 1  # the server's end goes in its own time
        with pytest.raises(ConnectionError):
            await waiting


def _sockets() -> set[str]:
    """Inodes of this process's sockets."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(str(descriptor.readlink()))
    return {one for one in found if one.startswith("socket:")}


async def test_what_is_sent_cannot_begin_another_header() -> None:
    """Names are quoted and line breaks in values are none; a path before all paths stays."""
    server = FakeServer(GOOD)
    async with posting(server, path="/k8s/c1/") as poster:
        await poster.post("/pods/a b\r\nX: y?", b"", {"Authorization": "Bearer t\r\nEvil: 1"})
    head = server.heads[0].splitlines()
    assert head[0] == "POST /k8s/c1/pods/a%20b%0D%0AX%3A%20y%3F HTTP/1.1"
    assert "Authorization: Bearer t Evil: 1" in head
    assert not [line for line in head if line.startswith(("X:", "Evil:"))]


async def test_nobody_there_is_an_error() -> None:
    """A refused connection."""
    poster = ConnectionPool(
        "http://127.0.0.1:1", None, connect_seconds=WAIT_SECONDS, seconds=WAIT_SECONDS
    )
    with pytest.raises(OSError, match="Connect call failed"):
        await poster.post("/a", b"", {})
