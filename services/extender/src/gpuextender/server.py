"""Serving until asked to stop: not ready first, then no new connections, then what is in flight.

uvicorn raises the signal again once it has stopped, so that the process dies of it; a pod that was
asked to stop politely should end with 0, so signals are taken here.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Final

import structlog
import uvicorn
from starlette.types import ASGIApp

from gpuextender.certificates import Certificates
from gpuextender.clientnames import ClientNames
from gpuextender.limits import ListenerLimits
from gpukube.asgiserver import GatedServer
from gpukube.bodies import LimitedBodies
from gpukube.connections import Gate

GRACE_SECONDS: Final = 10

log = structlog.get_logger(__name__)


class Server(GatedServer):
    """A uvicorn server behind a gate, which leaves signals to :func:`stop_on_signal`.

    Args:
        gate: limits its connections.
        certificates: to serve over TLS.
    """

    def __init__(
        self, config: uvicorn.Config, gate: Gate, certificates: Certificates | None
    ) -> None:
        super().__init__(config, gate)
        self._certificates = certificates
        self._closing = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take none."""
        with nullcontext():
            yield

    def close(self) -> None:
        """Take no further connection; :meth:`run_here` returns after what is in flight."""
        self.should_exit = True
        self._closing.set()

    async def run_here(self) -> None:
        """Serve on this loop until :meth:`close`; over TLS once there are certificates."""
        if self._certificates is None:
            await self.serve()
            return
        while not self._certificates.present():
            log.warning("waiting for certificates", folder=str(self._certificates.folder))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self._certificates.every)
            if self.should_exit:
                return
        await self._serve_tls(self._certificates)

    async def _serve_tls(self, certificates: Certificates) -> None:
        known = certificates.stamps()
        self.config.load()
        if self.config.ssl is None:
            raise RuntimeError("a server with certificates has no TLS")
        following = asyncio.create_task(certificates.follow(self.config.ssl, known))
        try:
            await self.serve()
        finally:
            following.cancel()


def make_server(
    app: ASGIApp,
    *,
    host: str,
    port: int,
    limits: ListenerLimits,
    certificates: Certificates | None = None,
    clients: Collection[str] = (),
) -> Server:
    """A server in this process; logs go where everything else goes.

    Args:
        clients: names in the certificates of those who may call; empty: whoever TLS lets in.
    """
    gate = Gate(limits.connections.within_files(), time.monotonic)
    named = ClientNames(app, gate, clients) if clients else app
    config = uvicorn.Config(
        LimitedBodies(named, gate, limits.bodies),
        host=host,
        port=port,
        ssl_context_factory=(lambda _config, _default: certificates.context())
        if certificates
        else None,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        timeout_keep_alive=int(limits.connections.idle),
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    return Server(config, gate, certificates)


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
