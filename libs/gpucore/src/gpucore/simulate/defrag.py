"""The fewest pods whose move frees exclusive GPUs of one node, or units on one GPU.

Candidates are tried from the fewest pods up; the first whose pods all find another place is the
answer. The goal is reserved first and the core then places the pods like new ones, largest first,
so a returned plan can be carried out; a plan that needs another order may be missed. After the
moves a pod that requests the goal fits on the named GPUs. Nothing is moved here, and no pod with
constraints that are not evaluated.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations, islice
from operator import attrgetter
from typing import Final

import msgspec

from gpucore.accounting.device_info import DeviceInfo
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import (
    Allocation,
    AllocationState,
    ContainerRequest,
    GpuAmounts,
    Placement,
    PodRequest,
)
from gpucore.model.constraints import UNCONSTRAINED, CandidateNode, PodConstraints
from gpucore.scheduling.device_fit import device_fit_error, exclusive_fit_error, usable_devices
from gpucore.scheduling.fit import fit
from gpucore.simulate.whatif import NO_NODES, SimulatedCluster, WhatIfPod
from gpucore.units import GpuIndex, NodeName, PodUid

TRIES: Final = 200
"""Maximum number of candidates; the first one of a request evaluates every node."""

ROOM: Final = PodUid("room")
"""Of the reservation for the goal."""

SPARE: Final = 4
"""GPUs of a node that are considered beyond the wanted number, those with the fewest pods."""


class Move(msgspec.Struct, frozen=True):
    """One pod that would leave its GPU for another."""

    allocation: Allocation
    to: Placement


class MovePlan(msgspec.Struct, frozen=True):
    """What to move, and what that frees; no moves where the goal is already free.

    Attributes:
        gpus: of ``node``, free as a whole or with the wanted block.
    """

    node: NodeName
    gpus: tuple[GpuIndex, ...]
    moves: tuple[Move, ...] = ()


class Goal(msgspec.Struct, frozen=True):
    """The wanted capacity: a number of exclusive GPUs of one node, or units on one GPU."""

    gpus: int = 0
    units: int = 0

    @property
    def pod_request(self) -> PodRequest:
        """The request of a pod that takes all of it."""
        one = ContainerRequest(mem=self.units, gpus=self.gpus)
        return PodRequest((one,), mem=self.units, gpus=self.gpus)


class _Candidate(msgspec.Struct, frozen=True, order=True):
    """Pods that could leave; ordered by how many they are, then by how much they hold."""

    pods: int
    units: int
    node: NodeName
    gpus: tuple[GpuIndex, ...]
    uids: tuple[PodUid, ...]
    first: bool = True


def unconstrained(_: PodUid) -> PodConstraints:
    """Of pods that require nothing besides GPUs."""
    return UNCONSTRAINED


def defragment(
    node_infos: Mapping[NodeName, NodeInfo],
    pod_requests: Mapping[PodUid, PodRequest],
    goal: Goal,
    *,
    nodes: Mapping[NodeName, CandidateNode] = NO_NODES,
    constraints_of: Callable[[PodUid], PodConstraints] = unconstrained,
) -> MovePlan | None:
    """The plan with the fewest moves, or ``None`` where none was found.

    Args:
        node_infos: state of the nodes that take new pods, which is not changed.
        pod_requests: the request of each pod that may be moved; other pods are not moved.
        goal: the wanted capacity.
        nodes: the input of kube-scheduler's own rules; a node without one fits everything.
        constraints_of: what each of these pods requires besides GPUs.
    """
    queue = [c for node_info in node_infos.values() for c in _candidates(node_info, goal)]
    heapify(queue)
    simulated = SimulatedCluster(node_infos, nodes=nodes)
    for _ in range(TRIES):
        if not queue:
            return None
        candidate = heappop(queue)
        moves = _moves(simulated, pod_requests, constraints_of, candidate, goal)
        if moves is not None:
            return MovePlan(candidate.node, candidate.gpus, moves)
        for other in _alternatives(node_infos[candidate.node], candidate, goal):
            heappush(queue, other)
    return None


def _candidates(node_info: NodeInfo, goal: Goal) -> Iterator[_Candidate]:
    why = fit(node_info, goal.pod_request)
    if why is not None and why.unresolvable:
        return
    gpus = usable_devices(node_info.devices.values(), goal.pod_request)
    if goal.gpus:
        gpus.sort(key=lambda device: (len(device.holders), device.used, device.index))
        for chosen in combinations(
            sorted(gpus[: goal.gpus + SPARE], key=attrgetter("index")), goal.gpus
        ):
            yield _of(node_info, chosen, [uid for device in chosen for uid in device.holders])
        return
    for device in gpus:
        if goal.units <= device.total:
            yield from _block(node_info, device, goal.units)


def _block(node_info: NodeInfo, device: DeviceInfo, units: int) -> Iterator[_Candidate]:
    """The largest holders until enough is free: the fewest there can be."""
    missing, leaving = units - (device.total - device.withheld - device.used), []
    for uid, hold in sorted(device.holders.items(), key=lambda pair: (-pair[1].mem, pair[0])):
        if missing <= 0 and not device.taken:
            break
        leaving.append(uid)
        missing -= hold.mem
    if missing <= 0:
        yield _of(node_info, [device], leaving)


def _alternatives(node_info: NodeInfo, failed: _Candidate, goal: Goal) -> Iterator[_Candidate]:
    """After the largest holders of a GPU found no place: as many others, or one more."""
    if goal.gpus or not failed.first:
        return
    device = node_info.devices[failed.gpus[0]]
    missing = goal.units - (device.total - device.withheld - device.used)
    sizes = (failed.pods, failed.pods + 1)
    chosen = (each for size in sizes for each in combinations(sorted(device.holders), size))
    for uids in islice(chosen, TRIES):
        if sum(device.holders[uid].mem for uid in uids) >= missing:
            yield msgspec.structs.replace(_of(node_info, [device], list(uids)), first=False)


def _of(node_info: NodeInfo, gpus: Sequence[DeviceInfo], uids: list[PodUid]) -> _Candidate:
    unique = tuple(dict.fromkeys(uids))
    held = sum(
        device.holders[uid].mem for device in gpus for uid in unique if uid in device.holders
    )
    return _Candidate(
        len(unique), held, node_info.name, tuple(device.index for device in gpus), unique
    )


def _moves(
    simulated: SimulatedCluster,
    pod_requests: Mapping[PodUid, PodRequest],
    constraints_of: Callable[[PodUid], PodConstraints],
    candidate: _Candidate,
    goal: Goal,
) -> tuple[Move, ...] | None:
    """The new placement of each pod once the goal is reserved; ``None`` where one does not fit."""
    if not all(uid in pod_requests for uid in candidate.uids):
        return None
    constraints = {uid: constraints_of(uid) for uid in candidate.uids}
    if any(each.unsupported for each in constraints.values()):
        return None
    held, later = simulated.node_infos[candidate.node].allocations, simulated.branch()
    leaving = [held[uid] for uid in candidate.uids]
    later.end(candidate.node, {uid: each.requests for uid, each in constraints.items()})
    node_info = later.node_infos[candidate.node].copy()
    node_info.put(_reservation(candidate, goal))
    leaving.sort(
        key=lambda allocation: (
            -pod_requests[allocation.uid].mem,
            allocation.namespace,
            allocation.name,
        )
    )
    later.change(node_info)
    outcomes = [
        later.grant(WhatIfPod(uid, pod_requests[uid], constraints[uid]))
        for uid in (allocation.uid for allocation in leaving)
    ]
    moves = [
        Move(allocation, outcome.placement)
        for allocation, outcome in zip(leaving, outcomes, strict=True)
        if outcome.placement is not None
    ]
    if len(moves) < len(leaving) or not _fits(later.node_infos[candidate.node], candidate, goal):
        return None
    return tuple(moves)


def _fits(moved: NodeInfo, candidate: _Candidate, goal: Goal) -> bool:
    """After the moves, a pod may be admitted in the place of the reservation."""
    node_info, request = moved.copy(), goal.pod_request
    node_info.drop(ROOM)
    for index in candidate.gpus:
        device = node_info.devices[index]
        if exclusive_fit_error(device, request) if goal.gpus else device_fit_error(device, request):
            return False
    return fit(node_info, request) is None


def _reservation(candidate: _Candidate, goal: Goal) -> Allocation:
    block: GpuAmounts = dict.fromkeys(candidate.gpus, goal.units) if goal.units else {}
    whole = candidate.gpus if goal.gpus else ()
    place = Placement(candidate.node, mem=block, group=whole)
    return Allocation(ROOM, "", "room", AllocationState.ASSUMED, place)
