"""A simulated week: jobs arrive, wait, run for their lifetime and end.

Jobs are tried in the order of arrival, and again where a pod ended; a job that does not fit does
not hold back later ones. The members of a gang start together. No clock and no randomness here.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Final

import msgspec

from gpucore.model import Placement
from gpucore.scheduling.fit import has_room
from gpucore.simulate.hosts import Host
from gpucore.simulate.jobs import Fits, Job, PodClass, WeekPlan
from gpucore.simulate.replay import ReplayCluster, RunningPod
from gpucore.simulate.traces import Pick, TraceNode, TracePod
from gpucore.simulate.weekfigures import WeekFigures, WeekMeter
from gpucore.units import NodeName, PodUid

MOVING_SECONDS: Final = 600.0
"""At most once in this time pods are moved, as by the schedule of the chart's CronJob."""
_Kind = tuple[TracePod, int]
"""A pod without its name, and the number of members."""


class PodMove(msgspec.Struct, frozen=True):
    """A running pod that leaves its GPUs for others."""

    uid: PodUid
    to: Placement


class MovesForJob(msgspec.Struct, frozen=True):
    """Pods that move so that a waiting job of one pod can start.

    Attributes:
        number: of the job.
        placement: of its pod, free once the pods have moved.
    """

    number: int
    placement: Placement
    moves: tuple[PodMove, ...]


class WeekState(msgspec.Struct, frozen=True):
    """A moment of the week, at which pods may be moved.

    Attributes:
        now: seconds since the start.
        waiting: jobs in the order of arrival.
        movable: pods with GPUs that run and are no members of a gang.
    """

    now: float
    hosts: Mapping[NodeName, Host]
    waiting: Sequence[Job]
    movable: Mapping[PodUid, RunningPod]


FindMoves = Callable[[WeekState], MovesForJob | None]
"""Moves to carry out now; each pod has to fit where it goes."""


def fits_empty(nodes: Sequence[TraceNode]) -> Fits:
    """Whether equal pods fit the empty cluster together."""
    stage = ReplayCluster(nodes, "binpack", (), lambda _: 0)
    known: dict[_Kind, bool] = {}

    def fits(pod: TracePod, members: int) -> bool:
        kind = msgspec.structs.replace(pod, name=""), members
        if kind not in known:
            placed = _all_or_none(stage, *kind)
            for one in placed:
                stage.end(one)
            known[kind] = bool(placed)
        return known[kind]

    return fits


def week(
    nodes: Sequence[TraceNode],
    jobs: Sequence[Job],
    policy: str,
    plan: WeekPlan,
    *,
    workload: Sequence[TracePod],
    pick: Pick,
    moves: FindMoves | None = None,
    observe: Callable[[float, Mapping[NodeName, Host]], object] | None = None,
) -> WeekFigures:
    """Run all jobs to their start.

    Args:
        jobs: in the order of arrival; each fits the empty cluster.
        policy: one of ``REPLAY_POLICIES``.
        workload: the pods that usually come, for the fragmentation policies.
        moves: called every :data:`MOVING_SECONDS` at most; ``None`` moves nothing.
        observe: called after every event with the time and the hosts.
    """
    return _Week(ReplayCluster(nodes, policy, workload, pick), plan, moves).run(jobs, observe)


class _Week:
    def __init__(self, stage: ReplayCluster, plan: WeekPlan, moves: FindMoves | None) -> None:
        gpus = sum(len(host.node_info.devices) for host in stage.hosts.values())
        self._stage, self._plan, self._find_moves = stage, plan, moves
        self._start = plan.warm_days * plan.seconds / plan.days
        self._meter = WeekMeter(gpus, self._start, plan.seconds)
        self._opened: dict[NodeName, int] = {}
        self._queue: dict[_Kind, deque[Job]] = {}
        self._running: dict[PodUid, RunningPod] = {}
        self._movable: dict[PodUid, RunningPod] = {}
        self._moved: dict[PodUid, PodUid] = {}
        self._ends: list[tuple[float, int, tuple[PodUid, ...]]] = []
        self._waits: dict[PodClass, list[float]] = {}
        self._moves = 0
        self._tried = float("-inf")

    def run(
        self,
        jobs: Sequence[Job],
        observe: Callable[[float, Mapping[NodeName, Host]], object] | None,
    ) -> WeekFigures:
        coming = deque(jobs)
        while coming or any(self._queue.values()):
            if coming and (not self._ends or coming[0].arrival < self._ends[0][0]):
                now = coming[0].arrival
                self._meter.advance(now)
                self._arrive(coming.popleft(), now)
            else:
                now = self._ends[0][0]
                self._meter.advance(now)
                self._end(now)
            if now - self._tried >= MOVING_SECONDS:
                self._move(now)
            if observe is not None:
                observe(now, self._stage.hosts)
        self._finish()
        return self._meter.figures(self._moves, self._waits)

    def _finish(self) -> None:
        """Measure until the end of the week, where the last job started earlier."""
        while self._ends:
            now = self._ends[0][0]
            self._meter.advance(now)
            self._end(now)
        self._meter.advance(self._plan.seconds)

    def _arrive(self, job: Job, now: float) -> None:
        if not self._started(job, now):
            self._meter.waiting += job.milli
            self._queue.setdefault(_kind(job), deque()).append(job)

    def _started(self, job: Job, now: float) -> bool:
        placed = _all_or_none(self._stage, job.pod, job.members)
        if placed:
            self._begin(job, placed, now)
        return bool(placed)

    def _begin(self, job: Job, placed: Sequence[RunningPod], now: float) -> None:
        for one in placed:
            self._runs(one, movable=job.members == 1 and job.pod.gpus > 0)
        self._meter.allocated += job.milli
        heappush(self._ends, (now + job.seconds, job.number, tuple(one.uid for one in placed)))
        if job.arrival >= self._start:
            self._waits.setdefault(job.pod_class, []).append(now - job.arrival)

    def _runs(self, one: RunningPod, *, movable: bool) -> None:
        self._running[one.uid] = one
        if movable:
            self._movable[one.uid] = one
        self._opened_on(one.host)

    def _stopped(self, uid: PodUid) -> RunningPod:
        one = self._running.pop(uid)
        self._movable.pop(uid, None)
        self._stage.end(one)
        self._opened_on(one.host)
        return one

    def _end(self, now: float) -> None:
        _, _, uids = heappop(self._ends)
        freed: dict[NodeName, Host] = {}
        for uid in uids:
            one = self._stopped(self._current(uid))
            self._meter.allocated -= one.pod.milli
            freed[one.host.node_info.name] = one.host
        self._retry(list(freed.values()), now)

    def _current(self, uid: PodUid) -> PodUid:
        while uid in self._moved:
            uid = self._moved.pop(uid)
        return uid

    def _retry(self, freed: Sequence[Host], now: float) -> None:
        """Try the oldest job of each kind that may fit where something is free now."""
        heads = [
            (jobs[0].number, kind)
            for kind, jobs in self._queue.items()
            if any(_may_run(host, kind[0]) for host in freed)
        ]
        heapify(heads)
        while heads:
            _, kind = heappop(heads)
            jobs = self._queue[kind]
            if not self._started(jobs[0], now):
                continue
            self._dequeue(kind)
            if kind in self._queue:
                heappush(heads, (jobs[0].number, kind))

    def _dequeue(self, kind: _Kind) -> Job:
        """The oldest job of a kind does not wait any more."""
        jobs = self._queue[kind]
        job = jobs.popleft()
        self._meter.waiting -= job.milli
        if not jobs:
            del self._queue[kind]
        return job

    def _opened_on(self, host: Host) -> None:
        name = host.node_info.name
        now = sum(bool(device.holders) for device in host.node_info.devices.values())
        self._meter.opened += now - self._opened.get(name, 0)
        self._opened[name] = now

    def _move(self, now: float) -> None:
        """Move pods for a waiting job, and try the other jobs with what is free then."""
        if self._find_moves is None or not self._queue:
            return
        self._tried = now
        waiting = sorted(chain.from_iterable(self._queue.values()), key=lambda job: job.number)
        found = self._find_moves(WeekState(now, self._stage.hosts, waiting, self._movable))
        if found is None:
            return
        kind = _kind(next(job for job in waiting if job.number == found.number))
        old = [self._stopped(move.uid) for move in found.moves]
        job = self._dequeue(kind)
        self._begin(job, [self._put(job.pod, found.placement)], now)
        for one, move in zip(old, found.moves, strict=True):
            after = self._put(one.pod, move.to)
            self._runs(after, movable=True)
            self._moved[one.uid] = after.uid
        self._moves += len(old)
        self._retry(list(self._stage.hosts.values()), now)

    def _put(self, pod: TracePod, placement: Placement) -> RunningPod:
        return self._stage.put(pod, self._stage.hosts[placement.node], placement)


def _kind(job: Job) -> _Kind:
    return msgspec.structs.replace(job.pod, name=""), job.members


def _may_run(host: Host, pod: TracePod) -> bool:
    return host.runs(pod) and (not pod.gpus or has_room(host.node_info, pod.pod_request()))


def _all_or_none(stage: ReplayCluster, pod: TracePod, members: int) -> list[RunningPod]:
    """Each member on its host; empty where one finds none."""
    placed: list[RunningPod] = []
    for _ in range(members):
        one = stage.place(pod)
        if one is None:
            for other in placed:
                stage.end(other)
            return []
        placed.append(one)
    return placed
