"""The histories of one workload on several nodes as one, whatever their order.

The samples of each node fade as on a node where the workload still runs, because the plugin of a
node that it has left changes its history no more. A time of more than :data:`GAP_SECONDS` in which
no node has a sample counts as this time, as it does in the history of one node.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

import msgspec

from gpucore.sizing.usage_history import GAP_SECONDS, UsageHistory


class _Span(NamedTuple):
    """From the first sample to the last, in Unix seconds."""

    first: float
    last: float


class HistoryMerge:
    """Adds up the histories of one workload, one node after the other.

    Args:
        now: Unix seconds up to which samples fade; 0 where they do not.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._sum: UsageHistory | None = None
        self._spans: list[_Span] = []

    def add(self, history: UsageHistory) -> None:
        """Add the history of a node, unless nothing is left of it.

        Raises:
            ValueError: it belongs to another workload.
        """
        faded = history.faded(self._now)
        if faded.is_forgotten:
            return
        self._sum = faded if self._sum is None else _added(self._sum, faded)
        if faded.samples:
            self._spans = _joined([*self._spans, _Span(faded.first_seen, faded.last_seen)])

    @property
    def result(self) -> UsageHistory | None:
        """What all nodes together measured; ``None`` where nothing is left."""
        if self._sum is None or not self._spans:
            return self._sum
        last = self._sum.last_seen
        spans = _joined([*self._spans, _Span(last, last)])
        gaps = (after.first - before.last for before, after in pairwise(spans))
        first = spans[0].first + sum(gap - GAP_SECONDS for gap in gaps)
        return msgspec.structs.replace(self._sum, first_seen=first)


def merged(histories: Iterable[UsageHistory], now: float = 0.0) -> UsageHistory | None:
    """The histories of a workload on several nodes as one; ``None`` where nothing is left.

    Request, limit, number of GPUs and whether these are claimed are those of the latest sample.

    Args:
        histories: of the nodes, in any order.
        now: Unix seconds up to which samples fade; 0 where they do not.

    Raises:
        ValueError: they belong to different workloads.
    """
    merge = HistoryMerge(now)
    for each in histories:
        merge.add(each)
    return merge.result


def _joined(spans: Iterable[_Span]) -> list[_Span]:
    """The spans in order, those as one between which the whole time counts."""
    found: list[_Span] = []
    for span in sorted(spans):
        if found and span.first - found[-1].last <= GAP_SECONDS:
            found[-1] = _Span(found[-1].first, max(found[-1].last, span.last))
        else:
            found.append(span)
    return found


def _added(one: UsageHistory, other: UsageHistory) -> UsageHistory:
    if one.key != other.key:
        raise ValueError(f"histories of different workloads: {one.key} and {other.key}")
    newest = max((one, other), key=_last_settings)
    return UsageHistory(
        key=one.key,
        first_seen=_first(one.first_seen, other.first_seen),
        last_seen=newest.last_seen,
        pods=one.pods + other.pods,
        starts=one.starts + other.starts,
        samples=one.samples + other.samples,
        buckets=_sum(one.buckets, other.buckets),
        sm_buckets=_sum(one.sm_buckets, other.sm_buckets),
        peak_bytes=max(one.peak_bytes, other.peak_bytes),
        start_peak_bytes=max(one.start_peak_bytes, other.start_peak_bytes),
        out_of_memory=one.out_of_memory + other.out_of_memory,
        requested_bytes=newest.requested_bytes,
        limit_bytes=newest.limit_bytes,
        faded_at=_first(one.faded_at, other.faded_at),
        ran_out=max(one.ran_out, other.ran_out),
        reached=max(one.reached, other.reached),
        gpus=newest.gpus,
        claims=newest.claims,
        week_peak_bytes=max(one.week_peak_bytes, other.week_peak_bytes),
    )


def _sum(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    indexes = sorted(one.keys() | other.keys())
    return {index: one.get(index, 0) + other.get(index, 0) for index in indexes}


def _last_settings(history: UsageHistory) -> tuple[float, int, int, int, bool]:
    sizes = (history.requested_bytes, history.limit_bytes, history.gpus)
    return (history.last_seen, *sizes, history.claims)


def _first(one: float, other: float) -> float:
    """The earlier of two times, of which 0 is none."""
    return min(one, other) if one and other else one or other
