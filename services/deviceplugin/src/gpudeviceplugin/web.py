"""Metrics and health over HTTP, or over HTTPS where there is a folder of certificates.

``/metrics`` for Prometheus, ``/healthz`` while the process works, ``/readyz`` while it serves
kubelet; the latter says in words what is missing.
"""

import ssl
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from gpudeviceplugin.certificates import Certificates


class Web:
    """One small HTTP server.

    Args:
        ready: says what is still missing; empty when nothing is.
        certificates: to serve over TLS.
    """

    def __init__(self, ready: Callable[[], str], certificates: Certificates | None = None) -> None:
        self._ready = ready
        self._certificates = certificates
        self._context: ssl.SSLContext | None = None
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self, host: str, port: int) -> int:
        """Listen, once there are certificates; returns the port, a free one where 0 was asked."""
        if self._certificates is not None:
            self._context = await self._certificates.context()
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=self._context)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def follow(self) -> None:
        """Show new certificates as they come; returns at once where none are wanted."""
        if self._certificates is not None and self._context is not None:
            await self._certificates.follow(self._context)

    async def stop(self) -> None:
        """Listen no more."""
        await self._runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        missing = self._ready()
        return web.Response(status=503 if missing else 200, text=f"{missing or 'ok'}\n")
