"""Memory in use for the dashboard, measured less often than the cluster is read."""

import time
from collections.abc import Callable
from typing import Final

from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.queries.memory_in_use import MemoryInUse

CACHE_SECONDS: Final = 10.0
Measure = Callable[[Snapshot], MemoryInUse]


class Cached:
    """Measures again once the last figures are :data:`CACHE_SECONDS` old.

    Args:
        measure: for the snapshot that was just read.
        clock: seconds that only grow.
    """

    def __init__(self, measure: Measure, clock: Callable[[], float] = time.monotonic) -> None:
        self._measure, self._clock = measure, clock
        self._until = float("-inf")
        self._last = MemoryInUse()

    def __call__(self, snapshot: Snapshot) -> MemoryInUse:
        """Memory in use, at most :data:`CACHE_SECONDS` old."""
        if self._clock() >= self._until:
            self._last = self._measure(snapshot)
            self._until = self._clock() + CACHE_SECONDS
        return self._last
