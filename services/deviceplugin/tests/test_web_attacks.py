"""Clients that hold connections, or scrape in a loop, do not keep kubelet's probes from an answer.

A liveness probe that fails restarts the plugin, and with it every MPS client of the node.
"""

import asyncio
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx2
import pytest

from gpudeviceplugin.web import Web
from gpukube.testing.processes import kill_and_reap, limited

SECONDS = 60.0
FILES = 256

PROGRAM = """
import asyncio
from gpudeviceplugin.web import Web

async def main():
    print(await Web(lambda: "").start("127.0.0.1", 0), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@asynccontextmanager
async def with_few_files() -> AsyncIterator[int]:
    """The endpoint in a process that may open few files; its port."""
    process = await asyncio.create_subprocess_exec(
        *limited(FILES, sys.executable, "-c", PROGRAM),
        stdout=PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(SECONDS):
            yield int(await process.stdout.readline())
    finally:
        await kill_and_reap(process)


@contextmanager
def half_open(port: int, count: int) -> Iterator[None]:
    """Clients that have sent half a request each, and wait."""
    sockets = []
    try:
        for _ in range(count):
            sockets.append(socket.create_connection(("127.0.0.1", port), SECONDS))
            sockets[-1].sendall(b"GET /")
        yield
    finally:
        for one in sockets:
            one.close()


async def status(port: int, path: str) -> int:
    """The status of a request over a new connection; 0 without an answer."""
    async with httpx2.AsyncClient(trust_env=False, timeout=SECONDS) as client:
        try:
            return (await client.get(f"http://127.0.0.1:{port}{path}")).status_code
        except httpx2.TransportError:
            return 0


@pytest.mark.slow
async def test_half_open_requests_do_not_stop_the_probes() -> None:
    """With more half requests than the process may have files, kubelet is answered at once."""
    async with with_few_files() as port:
        with half_open(port, FILES + 20):
            assert [await status(port, "/healthz") for _ in range(5)] == [200] * 5
            assert await status(port, "/readyz") == 200


@pytest.mark.slow
async def test_scrapers_share_one_pace() -> None:
    """Clients that scrape in a loop wait for the next text, which is made once a second."""
    web = Web(lambda: "")
    port = await web.start("127.0.0.1", 0)
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(SECONDS):
        for _ in range(2):
            got = await asyncio.gather(*(status(port, "/metrics") for _ in range(8)))
            assert got == [200] * 8
    await web.stop()
    assert asyncio.get_running_loop().time() - began > 0.9


async def test_requests_that_are_no_http_push_no_line_out_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever reaches the port may send them; a failure of ours is logged as ever."""

    def ready() -> str:
        raise RuntimeError("a failure of ours")

    web = Web(ready)
    port = await web.start("127.0.0.1", 0)
    for request in (b"GET / HTTP/9.9", b"GET / HTTP/1.1\r\nContent-Length: -1"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request + b"\r\n\r\n")
        async with asyncio.timeout(SECONDS):
            assert b" 400 " in await reader.readline()
        writer.close()
    assert caplog.records == []
    assert await status(port, "/readyz") == 500
    await web.stop()
    (line,) = caplog.records
    assert "a failure of ours" in (line.exc_text or "")


@pytest.mark.slow
async def test_a_client_that_does_not_read_its_answer_delays_no_end() -> None:
    """The node has no plugin until the one that ends is gone and its successor starts."""
    web = Web(lambda: "", documents={"/usage-history": lambda: bytes(20_000_000)})
    port = await web.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    writer.write(b"GET /usage-history HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(SECONDS):
        await reader.readexactly(1)
    async with asyncio.timeout(10):
        await web.stop()
    writer.transport.abort()


async def test_a_connection_is_idle_once_it_was_answered() -> None:
    """Kept connections are the first to go when others want their place."""
    web = Web(lambda: "")
    port = await web.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for path in ("healthz", "nothing"):
        writer.write(f"GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        async with asyncio.timeout(SECONDS):
            await reader.readuntil(b"\r\n\r\n")
            await reader.readuntil(b"\n" if path == "healthz" else b"Found")
        assert web.gate.phases() == {"idle": 1}
    writer.close()
    await web.stop()
