"""uvicorn behind a gate: what its log has of requests."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import uvicorn

from gpukube.server.asgi import GatedServer
from gpukube.server.connections import ConnectionGate, Limits

SECONDS = 60.0
FAILURE = "a failure of ours"


async def app(scope: dict[str, str], _receive: object, send: object) -> None:
    """Answer ``/`` with 200, and fail for every other path."""
    if scope["path"] != "/":
        raise RuntimeError(FAILURE)
    await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]
    await send({"type": "http.response.body"})  # type: ignore[operator]


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """The port of a server of the application."""
    loop = asyncio.get_running_loop()
    gate = ConnectionGate(Limits(connections=8), loop.time)
    config = uvicorn.Config(
        app,
        port=0,
        log_config=None,
        access_log=False,
        ws="none",
        lifespan="off",
    )
    server = GatedServer(config, gate)
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(SECONDS):
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        yield server.port
        server.should_exit = True
        await serving


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
