"""Binds of a backlog are written together.

A write wakes the API server, etcd, and every client that watches pods. While a backlog is placed,
waking them for each pod takes more CPU than the writes; docs/nomination.md has figures. So while
more than :data:`BACKLOG` pods are pending, the binds of :data:`SECONDS` are written together.

kube-scheduler filters the next pod while the last one is bound, so it loses no time. A scheduler
that waits for each bind would; it filters no pod meanwhile, so its binds are written at once.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

SECONDS: Final = 0.1
BACKLOG: Final = 64
"""Pending pods; the binds that are under way count, so it is more than a quick stream has."""


class BindBatches:
    """When binds are written.

    Args:
        pending: number of pods that are not bound.
    """

    def __init__(self, pending: Callable[[], int]) -> None:
        self._pending = pending
        self._under_way = 0
        self._overlapped = self._written = float("-inf")

    def filter_called(self, _: object) -> None:
        """The scheduler filters a pod; it does not wait for the binds that are under way."""
        if self._under_way:
            self._overlapped = _now()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Write one bind: at once, but in a backlog within :data:`SECONDS` after another."""
        self._under_way += 1
        try:
            await self._wait()
            yield
        finally:
            self._under_way -= 1

    async def _wait(self) -> None:
        now = _now()
        due = max(now, self._written + SECONDS)
        goes_on = now - self._overlapped < SECONDS
        if due > now and goes_on and self._pending() > BACKLOG:
            await asyncio.sleep(due - now)
        else:
            due = now
        self._written = max(self._written, due)


def _now() -> float:
    return asyncio.get_running_loop().time()
