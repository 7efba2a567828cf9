"""Reads the state of the cluster at an interval and notifies browsers of changes.

One reader for all browsers: the API server sees the same load for one viewer as for a hundred. A
failed read keeps the last frame and adds the error to it. Slow reads are made less often: reading
takes at most a tenth of the time.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpuinspect.cluster.scoped import NO_CLAIMS, gaps
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.errors import FAILURES, PrometheusError, sentence
from gpuinspect.queries.memory_in_use import MemoryInUse
from gpuinspect.web.frames import Frame
from gpuinspect.web.history import History
from gpuinspect.web.sizing import CachedSizes

PAUSE: Final = 9
"""Times the length of a read that follow it without one."""
CACHE_SECONDS: Final = 10.0
"""Memory in use is measured less often than the cluster is read."""
EXPECTED: Final = (*FAILURES, WireError, msgspec.MsgspecError)
"""What a read may raise; anything else is a fault of the program and is logged."""
UNEXPECTED: Final = "unexpected error in a read ({}: {}); see the log of the dashboard"
Measure = Callable[[Snapshot], MemoryInUse]
_LOG: Final = logging.getLogger(__name__)


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


def pause(interval_seconds: float, *, after: float) -> float:
    """Pause in seconds after a read that took ``after`` seconds."""
    return max(interval_seconds, PAUSE * after)


class Feed:
    """Reads frames and notifies listeners of changes.

    Args:
        measure: memory in use; ``None`` where it cannot be had. Its failure is a note of the frame
            and does not stop the reads.
        clock: Unix seconds of what is read.
        of_file: a snapshot in a file is read; ``clock`` is then when that was written.
        sizes: reads what workloads used.
        began: when the program started, in Unix seconds.

    Attributes:
        history: memory over the last hours.
    """

    def __init__(
        self,
        read: Callable[[], Snapshot],
        names: Names,
        *,
        interval_seconds: float,
        measure: Measure | None = None,
        clock: Callable[[], float] = time.time,
        of_file: bool = False,
        sizes: CachedSizes | None = None,
        began: float = 0.0,
    ) -> None:
        self._read = read
        self._names = names
        self._interval_seconds = interval_seconds
        self._measure = measure
        self._clock = clock
        self._of_file = of_file
        self._sizes = sizes
        if sizes is not None:
            sizes.on_change = self.announce
        self._loop: asyncio.AbstractEventLoop | None = None
        self.history = History()
        self._news = asyncio.Condition()
        self._began = int(1000 * began)
        self.version = 0
        self.frame: Frame | None = None
        self.error = "the cluster has not been read yet"

    @property
    def revision(self) -> str:
        """Identifies what the pages show, over restarts of the program too."""
        return f"{self._began}-{self.version}"

    async def run(self) -> None:
        """Read for ever."""
        self._loop = asyncio.get_running_loop()
        while True:
            began = time.monotonic()
            await self.refresh()
            await asyncio.sleep(pause(self._interval_seconds, after=time.monotonic() - began))

    async def refresh(self) -> None:
        """Read once, and wake the listeners when something changed."""
        try:
            frame = await asyncio.to_thread(self._frame)
        except Exception as error:  # noqa: BLE001 - the reads go on, whatever happens in one
            changed = self._failed(error)
        else:
            changed = self.frame is None or not frame.shows_the_same(self.frame)
            self.frame, self.error = frame, ""
            self.history.add(frame.taken.timestamp(), frame.amounts)
        if changed:
            await self._notify()

    def _failed(self, error: Exception) -> bool:
        """Keep the last frame and add the error to it; true where pages change."""
        text = sentence(error)
        if not isinstance(error, EXPECTED):
            text = UNEXPECTED.format(type(error).__name__, error)
            if text != self.error:
                _LOG.error("reading the cluster failed", exc_info=error)
        changed, self.error = text != self.error, text
        if self.frame is not None:
            self.frame.error = text
        return changed

    async def _notify(self) -> None:
        async with self._news:
            self.version += 1
            self._news.notify_all()

    def announce(self) -> None:
        """Notify browsers of a change beside the cluster; any thread may call it."""
        if self._loop is not None and not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._notify(), self._loop)

    def _frame(self) -> Frame:
        """A frame with its costly parts computed, off the event loop."""
        taken = datetime.fromtimestamp(self._clock(), UTC)
        snapshot = self._read()
        found = self._measured(snapshot)
        frame = Frame(
            snapshot,
            self._names,
            taken=taken,
            figures=found.figures,
            note="; ".join(filter(None, (found.note, *gaps(snapshot, NO_CLAIMS)))),
            of_file=self._of_file,
        )
        frame.history = self.history
        frame.measured_sizes = self._sizes
        _ = frame.waiting, frame.fragments, frame.amounts, frame.unhealthy, frame.cells
        _ = frame.beside
        return frame

    def _measured(self, snapshot: Snapshot) -> MemoryInUse:
        if self._measure is None:
            return MemoryInUse()
        try:
            return self._measure(snapshot)
        except PrometheusError as error:
            return MemoryInUse(note=f"memory in use is unknown: {error}")

    async def newer(self, version: int) -> int:
        """The version, once it is another than ``version``."""
        async with self._news:
            await self._news.wait_for(lambda: self.version != version)
            return self.version
