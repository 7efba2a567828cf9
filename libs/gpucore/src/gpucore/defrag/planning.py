"""The fewest evictions after which a pod that waits fits, and every evicted pod fits elsewhere.

Pods that could leave are tried from the fewest up. A set of them is a plan only where what-if, with
the whole queue of pending pods in kube-scheduler's order and a replacement of each evicted pod
behind it, places the waiting pod and every replacement, also where replacements are placed first.
Two pods of one controller never leave together. A plan that needs another order may be missed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import combinations, islice
from typing import Final

import msgspec

from gpucore.accounting.node_info import NodeInfo
from gpucore.defrag.budgets import Allowance
from gpucore.defrag.pods import AFTER_THE_END, DefragPod, DefragState, preemption
from gpucore.model import Placement
from gpucore.scheduling.candidates import Candidates
from gpucore.simulate.whatif import SimulatedCluster, WhatIfPod
from gpucore.units import NodeName, PodUid

SETS_OF_A_NODE: Final = 200
TRIED: Final = 1000
"""Sets of one waiting pod that are looked at, the smallest first."""
SIMULATED: Final = 20
"""Of those, sets with which the queue is placed."""
MOST_WAITING: Final = 2000
"""Pods of the queue that are placed; a pod behind them has no plan."""
KINDS_OF_A_NAMESPACE: Final = 10
"""Different waiting pods of a namespace for which a plan is looked for."""
NO_PLAN: Final = "no permitted evictions make it fit and leave a place for every evicted pod"
SERVED: Final = "pods were evicted for it within the last hour"
TOO_MANY: Final = "too many different pods of its namespace wait"
LAST: Final = "~"
"""Behind every time of creation."""


class Eviction(msgspec.Struct, frozen=True):
    """One pod to evict, where its GPUs are, and where what-if places its replacement."""

    pod: DefragPod
    origin: Placement
    to: Placement


class EvictionPlan(msgspec.Struct, frozen=True):
    """What to evict for one waiting pod.

    Attributes:
        placement: where the waiting pod fits then.
        pods_of: pods of each evicted pod's controller before the first eviction.
        waited: those of them that waited then, and replace none of the evicted pods.
    """

    waiting: DefragPod
    placement: Placement
    evictions: tuple[Eviction, ...]
    pods_of: Mapping[str, int] = {}
    waited: tuple[PodUid, ...] = ()

    @property
    def node(self) -> NodeName:
        """The node of all evicted pods."""
        return NodeName(self.evictions[0].pod.node)


class PlanSearch(msgspec.Struct, frozen=True):
    """The answer: a plan, or why there is none for each waiting pod, by UID."""

    plan: EvictionPlan | None = None
    reasons: Mapping[PodUid, str] = {}


class _Set(msgspec.Struct, frozen=True, order=True):
    """Pods of a node that could leave; ordered by number, then by the memory they hold."""

    pods: int
    units: int
    node: NodeName
    uids: tuple[PodUid, ...]


def find_plan(state: DefragState, allowance: Allowance) -> PlanSearch:
    """The plan for the first waiting pod in the queue that has one."""
    reasons: dict[PodUid, str] = {}
    kinds: dict[str, dict[object, str]] = {}
    base = SimulatedCluster.of(state.nodes, state.policy)
    for pod in state.waiting[:MOST_WAITING]:
        kind = (pod.pod_request, pod.constraints, pod.priority)
        tried = kinds.setdefault(pod.namespace, {})
        if obstacle := pod.obstacle or preemption(state, pod):
            reasons[pod.uid] = obstacle
        elif allowance.served(pod.uid):
            reasons[pod.uid] = SERVED
        elif kind in tried or len(tried) == KINDS_OF_A_NAMESPACE:
            reasons[pod.uid] = tried.get(kind, TOO_MANY)
        elif fitting := fitting_node(state.nodes, pod):
            reasons[pod.uid] = tried[kind] = f"it fits node {fitting} already"
        elif freed := freed_node(state, pod):
            reasons[pod.uid] = tried[kind] = (
                f"it fits node {freed} once the pods that are being deleted there are gone"
            )
        elif (plan := _plan_for(pod, state, allowance, base)) is not None:
            return PlanSearch(plan, reasons)
        else:
            reasons[pod.uid] = tried[kind] = NO_PLAN
    return PlanSearch(None, reasons)


def permitted(waiting: DefragPod, pod: DefragPod, allowance: Allowance) -> bool:
    """Whether a running pod may be evicted for a waiting one."""
    across = allowance.budgets.across_namespaces
    return (
        not pod.obstacle
        and pod.priority <= waiting.priority
        and (across or pod.namespace == waiting.namespace)
        and not allowance.disturbed(pod.owner)
    )


def simulate(
    state: DefragState,
    waiting: DefragPod | None,
    gone: Sequence[PodUid],
    replaced: Sequence[DefragPod],
    *,
    pending: Collection[PodUid] = (),
    base: SimulatedCluster | None = None,
) -> dict[PodUid, Placement] | None:
    """Where what-if places a waiting pod and replacements once pods are gone.

    Most controllers create a replacement while its predecessor is being deleted, so it is placed
    beside that. A StatefulSet creates it afterwards, and then other evicted pods may still be
    there. The waiting pod may be placed before or after both, and needs a place in each case: a
    replacement on the GPUs that it needs would make the evictions useless.

    Args:
        waiting: ``None`` where it waits no more.
        gone: pods that leave their node, in the order in which they are evicted.
        replaced: those of them whose replacement does not exist yet and has to be placed, in the
            same order.
        pending: replacements that wait, which have to be placed as well.
        base: results of the state as it is, which are used.

    Returns:
        Their placements by UID (a replacement by that of its predecessor), or ``None`` where one
        of them fits nowhere.
    """
    behind = [
        msgspec.structs.replace(pod, creation=f"{LAST}{number:06}")
        for number, pod in enumerate(replaced)
    ]
    wanted = {*pending, *(pod.uid for pod in behind)} | ({waiting.uid} if waiting else set())
    queue, base = state.queue[:MOST_WAITING], base or SimulatedCluster.of(state.nodes, state.policy)
    simulated = base.branch()
    _end(simulated, state, gone)
    placed = _placements(simulated, _in_order([*queue, *behind]), wanted)
    if placed is None or not (pending or any(pod.controller for pod in behind)):
        return placed
    simulated = base.branch()
    left = _unplaced(simulated, _in_order([*queue, *(pod for pod in behind if _is_early(pod))]))
    for uid in gone:
        _end(simulated, state, (uid,))
        late = [pod for pod in behind if pod.uid == uid and not _is_early(pod)]
        left = _unplaced(simulated, _in_order([*left, *late]))
    return None if any(pod.uid in wanted for pod in left) else placed


def _is_early(pod: DefragPod) -> bool:
    """Its controller creates another pod while it is being deleted."""
    return pod.controller is not None and pod.controller.kind != AFTER_THE_END


def _unplaced(simulated: SimulatedCluster, queue: Iterable[DefragPod]) -> list[DefragPod]:
    """The pods of a queue that have no place after all others."""
    refused: set[WhatIfPod] = set()
    left: list[DefragPod] = []
    for pod in queue:
        kind = msgspec.structs.replace(pod.whatif_pod, name="")
        if kind in refused or simulated.grant(pod.whatif_pod).placement is None:
            refused.add(kind)
            left.append(pod)
    return left


def _in_order(pods: Iterable[DefragPod]) -> Sequence[DefragPod]:
    return sorted(pods, key=lambda one: one.queue_key)


def _placements(
    simulated: SimulatedCluster, queue: Iterable[DefragPod], wanted: Collection[PodUid]
) -> dict[PodUid, Placement] | None:
    """Where the wanted pods of a queue go; ``None`` where one of them has no place."""
    missing, placed = set(wanted), dict[PodUid, Placement]()
    for pod in queue:
        if not missing:
            break
        placement = simulated.grant(pod.whatif_pod).placement
        if pod.uid not in missing:
            continue
        if placement is None:
            return None
        placed[pod.uid] = placement
        missing.discard(pod.uid)
    return None if missing else placed


def _end(simulated: SimulatedCluster, state: DefragState, gone: Collection[PodUid]) -> None:
    """Let pods end that hold GPUs."""
    names = {state.running[uid].node for uid in gone if uid in state.running}
    for name in sorted(names & state.nodes.nodes.keys()):
        held = simulated.node_infos[name].allocations.keys() & set(gone)
        simulated.end(name, {uid: state.nodes.requests.get(uid, ()) for uid in held})


def fitting_node(cluster: Candidates, pod: DefragPod) -> str:
    """A node that the pod fits now; empty for none."""
    fits = (n for n in cluster.nodes if cluster.refusal(n, pod.requirements) is None)
    return next(fits, "")


def freed_node(state: DefragState, pod: DefragPod) -> str:
    """A node that the pod fits once the pods that leave it are gone; empty for none."""
    for name, node_info in state.nodes.node_infos.items():
        leaving = state.leaving.keys() & node_info.allocations.keys()
        if leaving and state.nodes.admits_without(name, pod.requirements, leaving) is not None:
            return name
    return ""


def _plan_for(
    pod: DefragPod, state: DefragState, allowance: Allowance, base: SimulatedCluster
) -> EvictionPlan | None:
    sets = (one for name in state.nodes.nodes for one in _sets(pod, state, allowance, name))
    simulated = 0
    for chosen in nsmallest(TRIED, sets):
        evicted = sorted(
            (state.running[uid] for uid in chosen.uids),
            key=lambda one: (-one.pod_request.mem, str(one)),
        )
        if not allowance.allows([one.namespace for one in evicted]):
            continue
        if state.nodes.admits_without(chosen.node, pod.requirements, chosen.uids) is None:
            continue
        if simulated == SIMULATED:
            return None
        simulated += 1
        placed = simulate(state, pod, [one.uid for one in evicted], evicted, base=base)
        if placed is not None:
            return _plan(pod, state, evicted, placed)
    return None


def _plan(
    pod: DefragPod,
    state: DefragState,
    evicted: Sequence[DefragPod],
    placed: Mapping[PodUid, Placement],
) -> EvictionPlan:
    evictions = tuple(Eviction(one, origin_of(state, one), placed[one.uid]) for one in evicted)
    pods_of = {one.owner: state.pods_of.get(one.owner, 0) for one in evicted}
    waited = tuple(one.uid for one in state.waiting if one.owner in pods_of)
    return EvictionPlan(pod, placed[pod.uid], evictions, pods_of, waited)


def origin_of(state: DefragState, pod: DefragPod) -> Placement:
    """Where a bound pod has its GPUs."""
    return state.nodes.node_infos[pod.node].allocations[pod.uid].placement


def _sets(
    pod: DefragPod, state: DefragState, allowance: Allowance, name: NodeName
) -> Iterator[_Set]:
    """Pods of one node that may leave, of one GPU for a share and of several for exclusive GPUs."""
    most = allowance.most(name, pod.namespace)
    if not most or not state.nodes.only_resources_block(name, pod.requirements):
        return
    node_info = state.nodes.node_infos[name]
    mine = [
        uid
        for uid in node_info.allocations
        if uid in state.running and permitted(pod, state.running[uid], allowance)
    ]
    groups = _of_gpus if pod.pod_request.gpus else _of_one_gpu
    for uids in islice(groups(node_info, frozenset(mine), pod, most), SETS_OF_A_NODE):
        owners = {state.running[uid].owner for uid in uids}
        if len(owners) == len(uids):
            held = sum(sum(node_info.allocations[uid].placement.mem.values()) for uid in uids)
            yield _Set(len(uids), held, name, uids)


def _of_one_gpu(
    node_info: NodeInfo, mine: Collection[PodUid], _: DefragPod, most: int
) -> Iterator[tuple[PodUid, ...]]:
    """Sets of pods on one GPU, small ones of all GPUs before larger ones."""
    crowds = [sorted(set(device.holders) & set(mine)) for device in node_info.devices.values()]
    for size in range(1, most + 1):
        for crowd in crowds:
            yield from combinations(crowd, size)


def _of_gpus(
    node_info: NodeInfo, mine: Collection[PodUid], pod: DefragPod, most: int
) -> Iterator[tuple[PodUid, ...]]:
    """All pods of as many GPUs as the pod requests, those with the fewest pods first."""
    gpus = [
        device for device in node_info.devices.values() if device.gpu is not None and device.healthy
    ]
    gpus = [device for device in gpus if set(device.holders) <= set(mine)]
    gpus.sort(key=lambda device: (len(device.holders), device.used, device.index))
    for chosen in combinations(gpus, pod.pod_request.gpus):
        uids = tuple(dict.fromkeys(uid for device in chosen for uid in device.holders))
        if 0 < len(uids) <= most:
            yield uids
