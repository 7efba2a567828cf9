"""Metrics and health over HTTP.

``/metrics`` for Prometheus, ``/healthz`` while the process works, ``/readyz`` while it serves
kubelet; the latter says in words what is missing.
"""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest


class Web:
    """One small HTTP server."""

    def __init__(self, ready: Callable[[], str]) -> None:
        """Serve; ``ready`` says what is still missing, empty when nothing is."""
        self._ready = ready
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which is a free one where 0 was asked."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        return int(self._runner.addresses[0][1])

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
