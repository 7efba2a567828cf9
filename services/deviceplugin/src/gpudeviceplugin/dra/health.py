"""The health stream: kubelet shows the state of a claim's GPUs in the status of its pod.

A GPU that only accepts no new pods is healthy: the pods that the status is about continue.
Its API versions have equal messages.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc.aio

from gpucore.node.claims.prepare import ClaimPreparation
from gpudeviceplugin.proto import dra_health_v1_pb2 as api
from gpudeviceplugin.signals import Signal

HEALTH_SECONDS: Final = 10.0
"""Longest time between two reports."""
TIMEOUT_SECONDS: Final = 30
"""After this time without a report kubelet takes the health for unknown."""


class HealthServicer:
    """NodeWatchResources in every API version."""

    def __init__(
        self,
        node: Callable[[], ClaimPreparation],
        changed: Signal,
        *,
        interval_seconds: float = HEALTH_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._node = node
        self._changed = changed
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._ended = asyncio.Event()

    def end(self) -> None:
        """End all streams: the server waits for calls that are being answered."""
        self._ended.set()

    async def NodeWatchResources(  # noqa: N802 - a name of the protocol
        self, _request: Any, _context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        """All devices now, after every change, and from time to time."""
        while not self._ended.is_set():
            seen = self._changed.count
            yield self._report()
            await self._change_or_end(seen)

    async def _change_or_end(self, seen: int) -> None:
        waits: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._changed.beyond_or_after(seen, self._interval_seconds)),
            asyncio.create_task(self._ended.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _report(self) -> Any:
        node, now = self._node(), int(self._clock())
        entries = [
            api.DeviceHealth(
                device=api.DeviceIdentifier(pool_name=node.pool, device_name=name),
                health=api.HEALTHY if gpu.healthy or gpu.paused else api.UNHEALTHY,
                last_updated_time=now,
                health_check_timeout_seconds=TIMEOUT_SECONDS,
            )
            for name, gpu in node.gpus.items()
        ]
        return api.NodeWatchResourcesResponse(devices=entries)
