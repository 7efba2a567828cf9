"""uvicorn behind a gate: what its log has of requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
import uvloop

from gpukube.server.asgi import GatedServer
from gpukube.server.connections import ConnectionGate, Limits

SECONDS = 60.0
FAILURE = "a failure of ours"


async def app(scope: dict[str, str], _receive: object, send: object) -> None:
    """Answer ``/`` with 200, and fail for every other path."""
    if scope["path"] != "/":
        raise RuntimeError(FAILURE)
    await answered(send)


async def answered(send: object) -> None:
    """Answer with 200."""
    await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]
    await send({"type": "http.response.body"})  # type: ignore[operator]


@asynccontextmanager
async def serving(application: object) -> AsyncIterator[GatedServer]:
    """A server of an application."""
    loop = asyncio.get_running_loop()
    gate = ConnectionGate(Limits(connections=8), loop.time)
    config = uvicorn.Config(
        application,  # type: ignore[arg-type]
        port=0,
        log_config=None,
        access_log=False,
        ws="none",
        lifespan="off",
    )
    server = GatedServer(config, gate)
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(SECONDS):
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        yield server
        server.should_exit = True
        await task


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """The port of a server of the application."""
    async with serving(app) as server:
        yield server.port


async def answer(port: int, head: bytes) -> bytes:
    """The first line of the reply to a request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head + b"\r\n\r\n")
    async with asyncio.timeout(SECONDS):
        found = await reader.readline()
    writer.close()
    return found


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket", b" 200 "),
        (b"no HTTP", b" 400 "),
    ],
    ids=["an upgrade", "no HTTP"],
)
async def test_no_request_of_a_client_pushes_lines_out_of_the_log(
    port: int, head: bytes, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Tenants reach the port of a webhook, and send as many as they like."""
    assert status in await answer(port, head)
    assert caplog.records == []


async def test_a_failure_of_the_application_is_logged(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """With its traceback, as uvicorn does."""
    assert b" 500 " in await answer(port, b"GET /fail HTTP/1.1\r\nHost: x")
    (line,) = caplog.records
    assert FAILURE in (line.exc_text or "")


def test_a_client_that_leaves_before_its_replies_pushes_no_line_out_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of several requests that it sent at once, on the event loop of the extender."""
    caplog.set_level("ERROR")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_left_early())
    assert caplog.records == []


async def _left_early() -> None:
    """A reply is written after the client has left, and before that to its last request."""
    gone, late = asyncio.Event(), asyncio.Event()

    async def second_waits(scope: dict[str, str], _receive: object, send: object) -> None:
        if scope["path"] == "/second":
            await gone.wait()
            late.set()
        await answered(send)

    async with serving(second_waits) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        paths = ("/first", "/second", "/third")
        writer.write(b"".join(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % p.encode() for p in paths))
        await reader.readline()
        writer.transport.abort()
        while len(server.gate):  # noqa: ASYNC110 - it has no event for it
            await asyncio.sleep(0.01)
        gone.set()
        await late.wait()
