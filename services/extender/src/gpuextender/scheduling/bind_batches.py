"""Binds of a backlog are written together.

A write wakes the API server, etcd, and every client that watches pods. While a backlog is placed,
waking them for each pod takes more CPU than the writes; docs/nomination.md has figures. So while
more than :data:`BACKLOG` pods are pending, the binds of :data:`SECONDS` are written together.
kube-scheduler places the next pod without waiting for the bind of the last one.
"""

import asyncio
from collections.abc import Callable
from typing import Final

SECONDS: Final = 0.1
BACKLOG: Final = 64
"""Pending pods; the binds that are under way count, so it is more than a quick stream has."""


class BindBatches:
    """When a bind may be written.

    Args:
        pending: number of pods that are not bound.
    """

    def __init__(self, pending: Callable[[], int]) -> None:
        self._pending = pending
        self._written = float("-inf")

    async def turn(self) -> None:
        """Return when it may: at once, but for binds within :data:`SECONDS` of another."""
        now = asyncio.get_running_loop().time()
        due = max(now, self._written + SECONDS)
        if due > now and self._pending() > BACKLOG:
            await asyncio.sleep(due - now)
        else:
            due = now
        self._written = max(self._written, due)
