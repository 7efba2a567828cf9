"""Moves in a simulated week, by the plans of ``gpushare defrag`` and its budgets of an hour.

All pods are in one namespace and have one priority; each has a controller of its own that creates
it again, and none forbids its move. A pod that moved is another pod: it may move again within the
hour.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from gpucore.defrag.budgets import Allowance, Budgets, PastEviction, recent
from gpucore.defrag.planning import EvictionPlan, find_plan
from gpucore.defrag.pods import DefragPod, DefragState
from gpucore.model.constraints import (
    CPU,
    CandidateNode,
    NodeSelectorTerm,
    PodConstraints,
    Requirement,
    Resources,
)
from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.cluster_policy import DEFAULT_POLICY, ClusterPolicy
from gpucore.scheduling.host_rooms import MEMORY
from gpucore.scheduling.policy import POLICIES
from gpucore.simulate.hosts import Host
from gpucore.simulate.jobs import Job
from gpucore.simulate.replay import RunningPod
from gpucore.simulate.traces import TraceNode, TracePod
from gpucore.simulate.week import MovesForJob, PodMove, WeekState
from gpucore.units import NodeName, PodUid

WAITED_SECONDS: Final = 120.0
"""For which a pod must have waited; the default of the chart."""
_MODEL: Final = "model"
_YOUNG: Final = "it has waited for less than two minutes"
_GANG: Final = "it belongs to a gang"


class WeekMoves:
    """The moves of one week.

    Args:
        policy: of the week; one that the extender does not have counts as the default one.
    """

    def __init__(
        self, nodes: Sequence[TraceNode], policy: str, budgets: Budgets | None = None
    ) -> None:
        self._nodes = {NodeName(node.name): _offered(node) for node in nodes}
        name = policy if policy in POLICIES else DEFAULT_POLICY
        self._policy = ClusterPolicy(name)
        self._budgets = budgets or Budgets()
        self._history: tuple[PastEviction, ...] = ()
        self._constraints: dict[TracePod, PodConstraints] = {}

    def __call__(self, state: WeekState) -> MovesForJob | None:
        """The plan for the first waiting job that has one."""
        now = int(state.now)
        self._history = recent(self._history, now)
        plan = find_plan(self._defrag_state(state), Allowance(self._budgets, self._history)).plan
        if plan is None:
            return None
        self._history += tuple(_past(plan, now))
        moves = tuple(PodMove(one.pod.uid, one.to) for one in plan.evictions)
        return MovesForJob(int(plan.waiting.name), plan.placement, moves)

    def _defrag_state(self, state: WeekState) -> DefragState:
        return DefragState(
            Candidates(
                {name: host.node_info for name, host in state.hosts.items()},
                {name: self._node(name, host) for name, host in state.hosts.items()},
                {uid: _requests(one.pod) for uid, one in state.movable.items()},
            ),
            tuple(pod for job in state.waiting for pod in self._waiting(job, state.now)),
            {uid: self._running(uid, one) for uid, one in state.movable.items()},
            policy=self._policy,
        )

    def _node(self, name: NodeName, host: Host) -> CandidateNode:
        node = self._nodes[name]
        left = {CPU: host.cpu_milli, MEMORY: host.memory_mib << 20}
        requested = {key: total - left[key] for key, total in node.allocatable.items()}
        return msgspec.structs.replace(node, requested=requested)

    def _waiting(self, job: Job, now: float) -> Sequence[DefragPod]:
        """The pods of a job, one for each member."""
        if not job.pod.gpus:
            return ()
        young = now - job.arrival < WAITED_SECONDS
        obstacle = _GANG if job.members > 1 else _YOUNG if young else ""
        one = DefragPod(
            PodUid(f"waits/{job.number}"),
            "",
            str(job.number),
            job.pod.pod_request(),
            self._constraints_of(job.pod),
            creation=f"{job.number:09}",
            obstacle=obstacle,
        )
        return (one,) * job.members

    def _running(self, uid: PodUid, one: RunningPod) -> DefragPod:
        return DefragPod(
            uid,
            "",
            uid,
            one.pod.pod_request(),
            self._constraints_of(one.pod),
            owner=uid,
            node=one.host.node_info.name,
        )

    def _constraints_of(self, pod: TracePod) -> PodConstraints:
        known = self._constraints.get(pod)
        if known is None:
            known = self._constraints[pod] = _constraints(pod)
        return known


def _past(plan: EvictionPlan, now: int) -> Sequence[PastEviction]:
    return [
        PastEviction(now, plan.node, "", one.pod.uid, one.pod.owner, plan.waiting.uid, "")
        for one in plan.evictions
    ]


def _offered(node: TraceNode) -> CandidateNode:
    offered = {CPU: node.cpu_milli, MEMORY: node.memory_mib << 20}
    return CandidateNode(NodeName(node.name), {_MODEL: node.model}, allocatable=offered)


def _constraints(pod: TracePod) -> PodConstraints:
    affinity = None
    if pod.models:
        affinity = (NodeSelectorTerm((Requirement(_MODEL, "In", tuple(sorted(pod.models))),)),)
    return PodConstraints(affinity=affinity, requests=_requests(pod))


def _requests(pod: TracePod) -> Resources:
    return ((CPU, pod.cpu_milli), (MEMORY, pod.memory_mib << 20))
