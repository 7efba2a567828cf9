"""A simulated week: jobs arrive, wait, run for their lifetime and end.

Jobs are tried in the order of arrival, and again where a pod ended; a job that does not fit does
not hold back later ones. The members of a gang start together. No clock and no randomness here.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

import msgspec

from gpucore.scheduling.node_ranking import may_fit
from gpucore.simulate.arrivals import Pick
from gpucore.simulate.defrag import Goal, Move, defragment
from gpucore.simulate.hosts import Host
from gpucore.simulate.jobs import Fits, Job, PodClass, WeekPlan
from gpucore.simulate.replay import ReplayCluster, RunningPod
from gpucore.simulate.traces import TraceNode, TracePod
from gpucore.simulate.weekfigures import WeekFigures, WeekMeter
from gpucore.units import MILLI, NodeName, PodUid

DEFRAGMENT_SECONDS: Final = 3600.0
"""At most once in this time pods are moved for the oldest waiting pod with exclusive GPUs."""
_Kind = tuple[TracePod, int]
"""A pod without its name, and the number of members."""


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
    defragmenting: bool = False,
    observe: Callable[[float, Mapping[NodeName, Host]], object] | None = None,
) -> WeekFigures:
    """Run all jobs to their start.

    Args:
        jobs: in the order of arrival; each fits the empty cluster.
        policy: one of ``REPLAY_POLICIES``.
        workload: the pods that usually come, for the fragmentation policies.
        pick: random choice, for the random policy.
        defragmenting: move pods for waiting ones.
        observe: called after every event with the time and the hosts.
    """
    return _Week(ReplayCluster(nodes, policy, workload, pick), plan, defragmenting).run(
        jobs, observe
    )


class _Week:
    def __init__(self, stage: ReplayCluster, plan: WeekPlan, defragmenting: bool) -> None:  # noqa: FBT001
        gpus = sum(len(host.node_info.devices) for host in stage.hosts.values())
        self._stage, self._plan, self._defragmenting = stage, plan, defragmenting
        self._start = plan.warm_days * plan.seconds / plan.days
        self._meter = WeekMeter(gpus, self._start, plan.seconds)
        self._opened: dict[NodeName, int] = {}
        self._queue: dict[_Kind, deque[Job]] = {}
        self._running: dict[PodUid, RunningPod] = {}
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
            if self._defragmenting and now - self._tried >= DEFRAGMENT_SECONDS:
                self._defragment(now)
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
        for one in placed:
            self._running[one.uid] = one
            self._opened_on(one.host)
        if not placed:
            return False
        self._meter.allocated += job.milli
        heappush(self._ends, (now + job.seconds, job.number, tuple(one.uid for one in placed)))
        if job.arrival >= self._start:
            self._waits.setdefault(job.pod_class, []).append(now - job.arrival)
        return True

    def _end(self, now: float) -> None:
        _, _, uids = heappop(self._ends)
        freed: dict[NodeName, Host] = {}
        for uid in uids:
            one = self._running.pop(self._current(uid))
            self._stage.end(one)
            self._opened_on(one.host)
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
            self._meter.waiting -= jobs.popleft().milli
            if jobs:
                heappush(heads, (jobs[0].number, kind))
            else:
                del self._queue[kind]

    def _opened_on(self, host: Host) -> None:
        name = host.node_info.name
        now = sum(bool(device.holders) for device in host.node_info.devices.values())
        self._meter.opened += now - self._opened.get(name, 0)
        self._opened[name] = now

    def _defragment(self, now: float) -> None:
        """Move pods for the oldest waiting pod with exclusive GPUs that is no gang."""
        waiting = [
            jobs[0]
            for (pod, members), jobs in self._queue.items()
            if members == 1 and pod.gpus and pod.gpu_milli == MILLI
        ]
        if not waiting:
            return
        self._tried = now
        job = min(waiting, key=lambda one: one.number)
        hosts = {name: host for name, host in self._stage.hosts.items() if host.runs(job.pod)}
        plan = defragment(
            {name: host.node_info for name, host in hosts.items()},
            {uid: one.pod.pod_request() for uid, one in self._running.items() if one.pod.gpus},
            Goal(gpus=job.pod.gpus),
        )
        if plan is not None and plan.moves and self._moves_done(plan.moves):
            self._moves += len(plan.moves)
            self._retry(list(self._stage.hosts.values()), now)

    def _moves_done(self, moves: Sequence[Move]) -> bool:
        """Move the pods; False, and nothing moved, where CPU, memory or a model forbids it."""
        old = [self._running[move.allocation.uid] for move in moves]
        for one in old:
            self._stage.end(one)
        new = list(self._at_targets(old, moves))
        done = len(new) == len(old)
        if not done:
            for one in new:
                self._stage.end(one)
            new = [self._stage.put(one.pod, one.host, one.placement) for one in old]
        for before, after in zip(old, new, strict=True):
            del self._running[before.uid]
            self._running[after.uid] = after
            self._moved[before.uid] = after.uid
            self._opened_on(before.host)
            self._opened_on(after.host)
        return done

    def _at_targets(
        self, pods: Sequence[RunningPod], moves: Sequence[Move]
    ) -> Iterator[RunningPod]:
        for one, move in zip(pods, moves, strict=True):
            host = self._stage.hosts[move.to.node]
            if not host.runs(one.pod):
                return
            yield self._stage.put(one.pod, host, move.to)


def _kind(job: Job) -> _Kind:
    return msgspec.structs.replace(job.pod, name=""), job.members


def _may_run(host: Host, pod: TracePod) -> bool:
    return host.runs(pod) and (not pod.gpus or may_fit(host.node_info, pod.pod_request()))


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
