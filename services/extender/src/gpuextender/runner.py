"""The listeners and background jobs of one process, until it is stopped."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Protocol

import structlog

from gpucore import VERSION
from gpuextender.health import Readiness
from gpuextender.http.server import Listeners, stop_on_signal
from gpuextender.settings import ExtenderSettings
from gpukube.logs import configure_logs
from gpukube.server.listening import raise_file_limit

log = structlog.get_logger(__name__)


class ServiceRunner:
    """Runs what a process does, and stops it in order.

    Args:
        drain_seconds: from :meth:`stop`, when readiness fails, until connections are refused.
    """

    def __init__(self, listeners: Listeners, health: Readiness, *, drain_seconds: float) -> None:
        self._listeners, self._health, self._drain_seconds = listeners, health, drain_seconds
        health.unserved = listeners.obstacle
        self._stopping: asyncio.Task[None] | None = None

    async def run(
        self,
        jobs: Iterable[Coroutine[Any, Any, Any]],
        finish: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Serve until :meth:`stop`.

        Args:
            jobs: run beside the listeners, and are cancelled at the end.
            finish: what is done after the last request, while the jobs still run.
        """
        tasks = [asyncio.create_task(job) for job in jobs]
        serving = [asyncio.create_task(server.run_here()) for server in self._listeners.all]
        try:
            await self._serve(serving, tasks)
            if finish is not None:
                await finish()
        finally:
            for task in (*serving, *tasks):
                task.cancel()
            await asyncio.gather(*serving, *tasks, return_exceptions=True)

    def stop(self) -> None:
        """Be unready at once, and gone after the drain."""
        if self._stopping is None:
            log.info("stopping", drain=self._drain_seconds)
            self._health.draining = True
            self._stopping = asyncio.get_running_loop().create_task(self._drain())

    async def _serve(
        self, serving: list[asyncio.Task[None]], tasks: list[asyncio.Task[Any]]
    ) -> None:
        """Serve on all ports; a background job that ends is a bug that must not go unseen."""
        done, _ = await asyncio.wait([*serving, *tasks], return_when=asyncio.FIRST_COMPLETED)
        self._listeners.close()
        await asyncio.wait(serving)
        for task in (*serving, *done):
            task.result()

    async def _drain(self) -> None:
        await asyncio.sleep(self._drain_seconds)
        self._listeners.close()


class RunnableService(Protocol):
    """What a process runs."""

    async def run(self) -> None:
        """Serve until :meth:`stop`."""
        ...

    def stop(self) -> None:
        """End :meth:`run`."""
        ...


async def serve_until_signal(
    make: Callable[[], RunnableService], settings: ExtenderSettings
) -> None:
    """Serve until a signal, then finish what is in flight."""
    configure_logs(settings.log_level)
    log.info("settings", version=VERSION, **settings.model_dump(mode="json"))
    raise_file_limit()
    service = make()
    async with stop_on_signal(service.stop):
        await service.run()
