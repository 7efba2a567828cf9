"""Histories of all nodes by workload, of bounded number and age.

A workload that is not among the first :data:`MOST_WORKLOADS`, or :data:`MOST_OF_NAMESPACE` of its
namespace, is unknown: it is never known with the histories of some of its nodes only.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from gpucore.sizing.merging import HistoryMerge
from gpucore.sizing.usage_history import UsageHistory, WorkloadKey

MOST_WORKLOADS: Final = 20_000
MOST_OF_NAMESPACE: Final = 1000
WHOLE_SECONDS: Final = 24 * 3600.0
"""For this time the last read of all nodes counts where a later one misses some."""


class MergedHistories:
    """Adds up the histories of the nodes, one node after the other.

    Args:
        now: Unix seconds up to which samples fade; 0 where they do not.
        window_seconds: workloads that were not measured for this time do not count.
        limit: maximum number of workloads.
        of_namespace: maximum number of workloads of one namespace.
    """

    def __init__(
        self,
        now: float = 0.0,
        *,
        window_seconds: float = math.inf,
        limit: int = MOST_WORKLOADS,
        of_namespace: int = MOST_OF_NAMESPACE,
    ) -> None:
        self._now, self._oldest = now, now - window_seconds
        self._limit, self._of_namespace = limit, of_namespace
        self._counts: Counter[str] = Counter()
        self._merges: dict[WorkloadKey, HistoryMerge] = {}

    def add(self, histories: Iterable[UsageHistory]) -> None:
        """Add the histories of a node."""
        for each in histories:
            merge = self._merges.get(each.key)
            if merge is None and self._has_room(each.key.namespace):
                self._counts[each.key.namespace] += 1
                merge = self._merges[each.key] = HistoryMerge(self._now)
            if merge is not None:
                merge.add(each)

    def complete(self) -> dict[WorkloadKey, UsageHistory]:
        """The histories once all nodes are added, without workloads that ended long ago."""
        results = {key: merge.result for key, merge in self._merges.items()}
        return {
            key: each
            for key, each in results.items()
            if each is not None and each.last_seen >= self._oldest
        }

    def _has_room(self, namespace: str) -> bool:
        few = self._counts[namespace] < self._of_namespace
        return few and len(self._merges) < self._limit


class HistoryRead(msgspec.Struct, frozen=True):
    """One read of the plugins.

    Attributes:
        at: seconds of a monotonic clock.
        whole: every plugin replied.
    """

    at: float
    items: Mapping[WorkloadKey, UsageHistory]
    whole: bool


class KnownHistories:
    """What the last reads brought.

    Args:
        fresh_seconds: for which a read counts.
    """

    def __init__(self, fresh_seconds: float) -> None:
        self._fresh_seconds = fresh_seconds
        self._latest: HistoryRead | None = None
        self._whole: HistoryRead | None = None

    def put(self, read: HistoryRead) -> None:
        """Take a read; the last one of all nodes is kept beside one that misses some."""
        self._latest = read
        if read.whole:
            self._whole = read

    def workloads(self) -> Collection[WorkloadKey]:
        """Workloads of the last read, whatever its age."""
        return () if self._latest is None else self._latest.items.keys()

    def of(self, key: WorkloadKey, now: float) -> tuple[tuple[UsageHistory, ...], bool]:
        """Histories of a workload of which all count, and whether no node is missing.

        Nothing where the last read is too old, or does not have the workload.
        """
        latest, whole = self._latest, self._whole
        if latest is None or now - latest.at > self._fresh_seconds or key not in latest.items:
            return (), False
        if latest.whole:
            return (latest.items[key],), True
        if whole is None or now - whole.at > WHOLE_SECONDS or key not in whole.items:
            return (latest.items[key],), False
        return (latest.items[key], whole.items[key]), True
