"""Two weeks of a workload: one is recorded, then its recommended size is applied for another.

Recording and recommendation are the product's own: ``Histories`` and ``UsageHistory`` with the
interval and the rules of the device plugin's recorder, and ``recommend``. The plugin runs all the
time, so it sees every pod from its start.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from operator import add
from typing import Final, NamedTuple

from workload_shapes import HOUR, WEEK, PodRun, Workload, runs

from gpucore.sizing.evidence import SizingRules
from gpucore.sizing.histories import Histories
from gpucore.sizing.merging import merged
from gpucore.sizing.recommendation import Recommendation, recommend
from gpucore.sizing.usage_history import START_SECONDS, UsageHistory, WorkloadKey
from gpucore.units import GIB as UNIT

GIB: Final = 1 << 30
FIRST: Final = 1_700_000_000.0
"""Unix seconds at which the first week begins."""
RESTART_SECONDS: Final = 60.0
"""Assumption: a pod that ran out of memory is replaced in this time."""


class Hours(NamedTuple):
    """Pod hours, and those of them with an out-of-memory; of changed programs apart."""

    total: int = 0
    failed: int = 0
    changed: int = 0

    def plus(self, other: "Hours") -> "Hours":
        """The sum of both."""
        return Hours(*map(add, self, other))


class Nodes:
    """The histories of a workload, whose pods are on a node each.

    Args:
        interval: seconds between samples.
    """

    def __init__(self, workload: Workload, interval: float) -> None:
        self._workload, self._interval = workload, interval
        self.key = WorkloadKey("bench", "Workload", workload.name, "main")
        self._nodes = [Histories() for _ in range(workload.replicas)]

    def copy(self) -> "Nodes":
        """The same histories, to go on with."""
        found = Nodes(self._workload, self._interval)
        for node, known in zip(found._nodes, self._nodes, strict=True):
            node.put(known.copies())
        return found

    def merged(self) -> UsageHistory:
        """What a person reads: the histories of all nodes together."""
        found = (known for node in self._nodes for known in node.all())
        return merged(found) or UsageHistory(self.key)

    def fail(self, at: float, limit: int) -> None:
        """A pod ran out of memory."""
        self._nodes[0].current(self.key, FIRST + at).fail(FIRST + at, limit)

    def record(self, found: Sequence[PodRun], limit: int, since: float, until: float) -> None:
        """Record all pods from a time on, and up to another."""
        count = len(self._nodes)
        for number, node in enumerate(self._nodes):
            for run in found[number::count]:
                if run.end > since and run.begin < until:
                    self._record(node, run, limit, (since, until))

    def _record(
        self, node: Histories, run: PodRun, limit: int, window: tuple[float, float]
    ) -> None:
        """As the recorder of the device plugin; a step that fails leaves what was in use before."""
        interval, (since, until) = self._interval, window
        first = ceil(run.begin / interval) * interval
        taken, gpus, steps = self._workload.taken, self._workload.gpus, run.steps
        allowed, index, used = int(taken * limit) if taken else limit, 0, 0
        now, end = max(first, ceil(since / interval) * interval), min(run.end, until)
        while now <= end:
            while index < len(steps) and steps[index].at <= now:
                if steps[index].needed <= allowed:
                    used = allowed if taken else min(steps[index].used, allowed)
                index += 1
            history = node.current(self.key, FIRST + now)
            if now == first:
                history.pods += 1
                history.starts += 1
            starting = now - first < START_SECONDS
            history.record(
                FIRST + now,
                used,
                requested_bytes=limit,
                limit_bytes=limit,
                gpus=gpus,
                starting=starting,
            )
            now += interval


def recorded(workload: Workload, seed: int, interval: float) -> Nodes:
    """The histories of the first week."""
    found = Nodes(workload, interval)
    found.record(runs(workload, seed, 0), workload.request, 0.0, WEEK)
    return found


def failures(run: PodRun, workload: Workload, limit: int) -> Iterator[tuple[float, float]]:
    """From when to when a pod needs more than it may use."""
    ends = (*(step.at for step in run.steps[1:]), run.end)
    allowed = int(workload.taken * limit) if workload.taken else limit
    for step, end in zip(run.steps, ends, strict=True):
        if step.needed > allowed:
            yield step.at, end


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
        nodes: with the histories of the first week.
        known: the node knows of failed allocations; otherwise it sees the use of memory only.

    Attributes:
        raises: when the limit was raised, and to how many bytes.
    """

    def __init__(
        self, workload: Workload, seed: int, nodes: Nodes, rules: SizingRules, *, known: bool
    ) -> None:
        self._workload, self._rules, self._known = workload, rules, known
        self._runs = runs(workload, seed, 1)
        self._nodes, self._seen = nodes.copy(), WEEK
        self.raises: list[tuple[float, int]] = []

    def played(self, limit: int, until: float = 2 * WEEK) -> Hours:
        """Pod hours of the week, which begins with this limit, with events up to a time."""
        now, failed = WEEK, set[tuple[int, int]]()
        while (at := self._next(now, limit)) is not None and at < until:
            raised = self._raised(at, limit)
            after = at + RESTART_SECONDS if raised > limit else (at // HOUR + 1) * HOUR
            failed |= {(pod, int(at // HOUR)) for pod in self._failing(at, after, limit)}
            if raised > limit:
                self.raises.append((at, raised))
            now, limit = after, raised
        self.look(until, limit)
        total = sum(len(slots(run.begin, run.end)) for run in self._runs)
        return Hours(total, len(failed), sum(self._runs[pod].changed for pod, _ in failed))

    def look(self, until: float, limit: int) -> None:
        """Record up to a time."""
        self._nodes.record(self._runs, limit, self._seen + 1, until)
        self._seen = max(self._seen, until)

    def recommended(self) -> Recommendation:
        """The recommendation by what was recorded."""
        return recommend(self._nodes.merged(), UNIT, self._rules)

    def _raised(self, at: float, limit: int) -> int:
        """The limit after an out-of-memory, in bytes."""
        self.look(at, limit)
        if self._known:
            self._nodes.fail(at, limit)
        found = self.recommended()
        return limit if found.size is None else max(limit, found.size.limit * GIB)

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
