"""The histories of one node, of bounded number.

Where there are too many, the namespace with the most loses the one that was measured least
recently: a namespace that creates workloads without end displaces its own histories.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from gpucore.sizing.history_documents import MOST_HISTORIES
from gpucore.sizing.usage_history import UsageHistory, WorkloadKey


class Histories:
    """Histories by workload."""

    def __init__(self, limit: int = MOST_HISTORIES) -> None:
        self._limit = limit
        self._known: dict[WorkloadKey, UsageHistory] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: WorkloadKey) -> UsageHistory | None:
        """The history of a workload, if there is one."""
        return self._known.get(key)

    def all(self) -> list[UsageHistory]:
        """Every history, in the order of the workloads."""
        return [self._known[key] for key in sorted(self._known)]

    def copies(self) -> list[UsageHistory]:
        """As :meth:`all`, as they are now; another thread may read them."""
        return [
            msgspec.structs.replace(
                each, buckets=dict(each.buckets), sm_buckets=dict(each.sm_buckets)
            )
            for each in self.all()
        ]

    def put(self, histories: Iterable[UsageHistory]) -> None:
        """Add histories that were read."""
        for history in histories:
            self._known[history.key] = history
            self._bound(history.key)

    def current(self, key: WorkloadKey, now: float) -> UsageHistory:
        """The history of a workload, with the age of its samples; a new one where there is none.

        Args:
            now: Unix seconds.
        """
        known = self._known.get(key)
        found = UsageHistory(key) if known is None else known.faded(now)
        self._known[key] = found
        if known is None:
            self._bound(key)
        return found

    def _bound(self, newest: WorkloadKey) -> None:
        while len(self._known) > self._limit:
            counts = Counter(key.namespace for key in self._known)
            largest = max(sorted(counts), key=counts.__getitem__)
            others = (k for k in self._known if k.namespace == largest and k != newest)
            oldest = min(others, key=lambda key: (self._known[key].last_seen, key), default=newest)
            del self._known[oldest]
