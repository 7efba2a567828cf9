"""Memory of workloads, used against requested, read in a thread of its own and cached.

Reading the histories of many plugins takes seconds, so neither the feed nor a page waits for its
end: a page shows what was read last, and viewers are notified of what is new.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.wire.errors import WireError
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.errors import FAILURES, sentence
from gpuinspect.queries.workload_sizes import WorkloadSizes

CACHE_SECONDS: Final = 60.0
WAIT_SECONDS: Final = 1.0
"""The longest wait of a page, while nothing was read yet."""
MeasureSizes = Callable[[Snapshot, Ledger], WorkloadSizes]


def _nobody() -> None:
    """Notifies nobody."""


class CachedSizes:
    """Reads again on the first request after :data:`CACHE_SECONDS`; one read at a time.

    Args:
        measure: reads the histories of a cluster and computes sizes.
        clock: seconds that only grow.

    Attributes:
        on_change: called by the thread that read something new.
    """

    def __init__(
        self, measure: MeasureSizes, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._measure, self._clock = measure, clock
        self.on_change: Callable[[], None] = _nobody
        self._lock = threading.Lock()
        self._until = float("-inf")
        self._last: WorkloadSizes | None = None
        self._read_once = threading.Event()
        self._reading = False

    def latest(self, snapshot: Snapshot, ledger: Ledger) -> WorkloadSizes | None:
        """What was read last; ``None`` while the first read takes long."""
        with self._lock:
            due = not self._reading and self._clock() >= self._until
            self._reading = self._reading or due
        if due:
            work = threading.Thread(target=self._refresh, args=(snapshot, ledger), daemon=True)
            work.start()
        self._read_once.wait(WAIT_SECONDS)
        return self._last

    def _refresh(self, snapshot: Snapshot, ledger: Ledger) -> None:
        try:
            found = self._measure(snapshot, ledger)
        except (*FAILURES, WireError, msgspec.MsgspecError) as error:
            known = self._last or WorkloadSizes()
            note = f"the memory of workloads cannot be read: {sentence(error)}"
            found = msgspec.structs.replace(known, note=note)
        finally:
            with self._lock:
                self._reading, self._until = False, self._clock() + CACHE_SECONDS
        changed, self._last = found != self._last, found
        self._read_once.set()
        if changed:
            self.on_change()
