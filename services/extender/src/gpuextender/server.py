"""Serving until asked to stop: not ready first, then no new connections, then what is in flight.

uvicorn raises the signal again once it has stopped, so that the process dies of it; a pod that was
asked to stop politely should end with 0, so signals are taken here.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Final

import uvicorn
from fastapi import FastAPI

GRACE_SECONDS: Final = 10
KEEP_ALIVE_SECONDS: Final = 120  # longer than a scheduler's client keeps an idle connection


class Server(uvicorn.Server):
    """A uvicorn server that leaves signals to :func:`stop_on_signal`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take none."""
        with nullcontext():
            yield

    @property
    def port(self) -> int:
        """Where it listens; known once it has started."""
        found: int = self.servers[0].sockets[0].getsockname()[1]
        return found


def make_server(
    app: FastAPI,
    *,
    host: str,
    port: int,
    certificate: Path | None = None,
    key: Path | None = None,
) -> Server:
    """A server in this process; logs go where everything else goes."""
    return Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            ssl_certfile=certificate,
            ssl_keyfile=key,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )


@asynccontextmanager
async def stop_on_signal(stop: Callable[[], None]) -> AsyncIterator[None]:
    """Call ``stop`` at every SIGTERM and SIGINT."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for one in signals:
        loop.add_signal_handler(one, stop)
    try:
        yield
    finally:
        for one in signals:
            loop.remove_signal_handler(one)
