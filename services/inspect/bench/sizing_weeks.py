"""Two weeks of a workload: one is recorded, then its recommended size is applied for another.

Recording and recommendation are the product's own: ``Histories`` and ``UsageHistory`` with the
interval and the rules of the device plugin's recorder, and ``recommend``. The plugin runs all the
time, so it sees every pod from its start.
"""

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import takewhile
from math import ceil
from operator import add
from typing import Final, NamedTuple

import msgspec
from workload_shapes import HOUR, WEEK, PodRun, Workload, runs

from gpucore.sizing.evidence import SizingRules
from gpucore.sizing.histories import Histories
from gpucore.sizing.recommendation import Recommendation, recommend
from gpucore.sizing.usage_history import START_SECONDS, UsageHistory, WorkloadKey
from gpucore.units import GIB as UNIT

GIB: Final = 1 << 30
FIRST: Final = 1_700_000_000.0
"""Unix seconds at which the first week begins."""
RESTART_SECONDS: Final = 60.0
"""Assumption: a pod that ran out of memory is replaced in this time."""


class Sample(NamedTuple):
    """What the recorder sees of a pod in one round."""

    at: float
    used: int
    starting: bool
    new: bool


class Hours(NamedTuple):
    """Pod hours, and those of them with an out-of-memory; of changed programs apart."""

    total: int = 0
    failed: int = 0
    changed: int = 0

    def plus(self, other: "Hours") -> "Hours":
        """The sum of both."""
        return Hours(*map(add, self, other))


def samples(
    run: PodRun, taken: float, limit: int, interval: float, since: float = 0.0
) -> Iterator[Sample]:
    """The samples of a pod from a time on, at the rounds of its node; use beyond the limit fails.

    A step that fails leaves what was in use before it.
    """
    first = ceil(run.begin / interval) * interval
    now = max(first, ceil(since / interval) * interval)
    allowed, index, used = int(taken * limit) if taken else limit, 0, 0
    while now <= run.end:
        while index < len(run.steps) and run.steps[index][0] <= now:
            step = run.steps[index][1]
            if step <= allowed:
                used = allowed if taken else step
            index += 1
        yield Sample(now, used, now - first < START_SECONDS, now == first)
        now += interval


def record(
    histories: Histories, key: WorkloadKey, found: Iterable[Sample], limit: int, gpus: int
) -> None:
    """Record samples as the recorder of the device plugin does."""
    for sample in found:
        now = FIRST + sample.at
        history = histories.current(key, now)
        history.pods += sample.new
        history.starts += sample.new
        history.record(
            now,
            sample.used,
            requested_bytes=limit,
            limit_bytes=limit,
            gpus=gpus,
            starting=sample.starting,
        )


def recorded(workload: Workload, seed: int, interval: float) -> UsageHistory | None:
    """The history of the first week; ``None`` if no pod ran for a round."""
    key, histories = WorkloadKey("bench", "Workload", workload.name, "main"), Histories()
    pods = (
        samples(run, workload.taken, workload.request, interval) for run in runs(workload, seed, 0)
    )
    record(histories, key, merge(*pods), workload.request, workload.gpus)
    return histories.get(key)


def failures(run: PodRun, workload: Workload, limit: int) -> Iterator[tuple[float, float]]:
    """From when to when a pod needs more than it may use."""
    ends = (*(at for at, _ in run.steps[1:]), run.end)
    allowed = int(workload.taken * limit) if workload.taken else limit
    for (at, used), end in zip(run.steps, ends, strict=True):
        if used > allowed:
            yield at, end


def slots(begin: float, end: float) -> range:
    """The hours that a time touches."""
    return range(int(begin // HOUR), ceil(end / HOUR))


def hours(workload: Workload, found: Iterable[PodRun], limit: int) -> Hours:
    """Pod hours of a week with a limit that stays."""
    total = Hours()
    for run in found:
        failed = {
            slot for begin, end in failures(run, workload, limit) for slot in slots(begin, end)
        }
        count = len(slots(run.begin, run.end))
        total = total.plus(Hours(count, len(failed), len(failed) if run.changed else 0))
    return total


class SecondWeek:
    """The second week of a workload, whose size is recommended anew after each out-of-memory.

    Args:
        history: of the first week.
        known: the node knows of failed allocations; otherwise it sees the use of memory only.
    """

    def __init__(
        self,
        workload: Workload,
        seed: int,
        history: UsageHistory,
        rules: SizingRules,
        interval: float,
        *,
        known: bool,
    ) -> None:
        self._workload, self._rules, self._interval = workload, rules, interval
        self._known, self._runs = known, runs(workload, seed, 1)
        self._histories, self._key = Histories(), history.key
        copy = msgspec.structs.replace(history, buckets=dict(history.buckets))
        self._histories.put([copy])
        self._seen = WEEK
        self.raises: list[tuple[float, int]] = []

    def played(self, limit: int) -> Hours:
        """Pod hours of the week, which begins with this limit."""
        now, failed = WEEK, set[tuple[int, int]]()
        while (at := self._next(now, limit)) is not None:
            self._look(at, limit)
            if self._known:
                self._history(at).fail(FIRST + at, limit)
            raised = max(limit, self._recommended(at))
            after = at + RESTART_SECONDS if raised > limit else (at // HOUR + 1) * HOUR
            failed |= {(pod, int(at // HOUR)) for pod in self._failing(at, after, limit)}
            if raised > limit:
                self.raises.append((at, raised))
            now, limit = after, raised
        self._look(2 * WEEK, limit)
        total = sum(len(slots(run.begin, run.end)) for run in self._runs)
        return Hours(total, len(failed), sum(self._runs[pod].changed for pod, _ in failed))

    def recommended(self) -> Recommendation:
        """The recommendation at the end."""
        return recommend(self._history(self._seen), UNIT, self._rules)

    def _next(self, now: float, limit: int) -> float | None:
        """When a pod needs more than the limit next."""
        found = (
            max(begin, now)
            for run in self._runs
            for begin, end in failures(run, self._workload, limit)
            if end > now
        )
        return min(found, default=None)

    def _failing(self, begin: float, end: float, limit: int) -> Iterator[int]:
        """The pods that need more than the limit in this time, by their place."""
        for pod, run in enumerate(self._runs):
            found = failures(run, self._workload, limit)
            if any(low < end and high > begin for low, high in found):
                yield pod

    def _look(self, until: float, limit: int) -> None:
        """Record up to a time."""
        pods = (
            samples(run, self._workload.taken, limit, self._interval, self._seen)
            for run in self._runs
            if run.end > self._seen and run.begin < until
        )
        fresh = takewhile(lambda each: each.at < until, merge(*pods))
        record(self._histories, self._key, fresh, limit, self._workload.gpus)
        self._seen = max(self._seen, until)

    def _history(self, at: float) -> UsageHistory:
        return self._histories.current(self._key, FIRST + at)

    def _recommended(self, at: float) -> int:
        found = recommend(self._history(at), UNIT, self._rules)
        return 0 if found.size is None else found.size.limit * GIB
