"""Metrics and health over HTTP, or over HTTPS with a directory of certificates.

``/metrics`` for Prometheus, ``/usage`` and ``/usage-history`` as JSON, ``/healthz`` while the
process works, ``/readyz`` while it serves kubelet; its reply names what is missing. A document that
is not known yet is 503. Every pod that reaches the port may call it, so connections are limited: a
liveness probe without an answer would end every MPS client of the node.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.log import server_logger
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from gpukube.server.certificates import CertificateWatcher
from gpukube.server.connections import ConnectionGate, Limits
from gpukube.server.listening import Listener, bound
from gpukube.server.scrapes import SharedScrape

LIMITS: Final = Limits(connections=64, busy=30, rate=10, burst=50, each_request=True)
"""kubelet and Prometheus open a few connections each."""
BODY_BYTES: Final = 4096
STOP_SECONDS: Final = 1.0
"""Longest wait of each step of the end for clients that stall."""


class Web:
    """One small HTTP server.

    Args:
        ready: returns what is still missing; empty when nothing is.
        certificates: to serve over TLS.
        documents: JSON by path, empty while it is not known; each is rendered at most once a
            second.
    """

    def __init__(
        self,
        ready: Callable[[], str],
        certificates: CertificateWatcher | None = None,
        documents: Mapping[str, Callable[[], bytes]] = MappingProxyType({}),
    ) -> None:
        self._ready = ready
        self._certificates = certificates
        self._listener: Listener | None = None
        self._scrape = SharedScrape(_render)
        self.gate = ConnectionGate(LIMITS.within_files(), time.monotonic)
        app = web.Application(client_max_size=BODY_BYTES, middlewares=[_notifying(self.gate)])
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        for path, render in documents.items():
            app.router.add_get(path, _document(render))
        self._runner = web.AppRunner(
            app, access_log=None, lingering_time=0, shutdown_timeout=STOP_SECONDS
        )
        server_logger.addFilter(_is_our_failure)

    async def start(self, host: str, port: int) -> int:
        """Listen, once there are certificates; returns the port, a free one for port 0."""
        if self._certificates is not None:
            await self._certificates.wait_for_context()
        await self._runner.setup()
        make = self._runner.server
        if make is None:
            raise RuntimeError("a runner that was set up has no server")
        self._listener = Listener(self.gate, make, await bound(host, port), self._context)
        self._listener.start()
        return int(self._listener.sockets[0].getsockname()[1])

    async def follow(self) -> None:
        """Show new certificates as they come; returns at once where none are wanted."""
        if self._certificates is not None:
            await self._certificates.follow()

    def _context(self) -> ssl.SSLContext | None:
        return None if self._certificates is None else self._certificates.newest

    async def stop(self) -> None:
        """Listen no more."""
        if self._listener is not None:
            self._listener.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self._listener.wait_closed()
        await self._runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        text = await self._scrape.text()
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        missing = self._ready()
        return web.Response(status=503 if missing else 200, text=f"{missing or 'ok'}\n")


async def _render() -> bytes:
    return generate_latest()


def _document(render: Callable[[], bytes]) -> Handler:
    async def rendered() -> bytes:
        return render()

    scrape = SharedScrape(rendered)

    async def document(_request: web.Request) -> web.Response:
        if text := await scrape.text():
            return web.Response(body=text, content_type="application/json")
        return web.Response(status=503, text="the device plugin is starting: not known yet\n")

    return document


def _is_our_failure(line: logging.LogRecord) -> bool:
    """False for a request that is no HTTP: whoever reaches the port could fill the log."""
    return not (line.exc_info and isinstance(line.exc_info[1], HttpProcessingError))


def _notifying(gate: ConnectionGate) -> Middleware:
    """Notifies the gate of every response."""

    @web.middleware
    async def notify(request: web.Request, handler: Handler) -> web.StreamResponse:
        peer = request.transport.get_extra_info("peername") if request.transport else None
        try:
            return await handler(request)
        finally:
            gate.answered(peer)

    return notify
