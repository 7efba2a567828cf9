"""The nodes that can take pods of a gang, with the places that are reserved for it left out."""

from collections.abc import Collection, Iterable, Mapping
from heapq import nlargest
from typing import Final

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Allocation, AllocationState, Placement, PodRequest
from gpucore.scheduling.device_fit import per_device
from gpucore.scheduling.filter import roomy_nodes
from gpucore.scheduling.fit import fit, free_gpus, has_room, is_plain
from gpucore.units import NodeName, PodUid
from gpucore.wire.pod.gangs import Gang

MOST_COMPARED: Final = 20_000
"""Nodes that one plan compares, for all its requests together: for less than two seconds."""


def without_reservations(
    ledger: Ledger, reservations: Iterable[Allocation]
) -> dict[NodeName, NodeInfo]:
    """Copies of the nodes with reservations of the gang, without those."""
    without: dict[NodeName, NodeInfo] = {}
    for one in reservations:
        name = one.placement.node
        if name not in without and (node_info := ledger.node(name)) is not None:
            without[name] = node_info.copy()
        if name in without:
            without[name].drop(one.uid)
    return without


def standing_places(
    ledger: Ledger, reservations: Collection[Allocation], pod_request: PodRequest
) -> tuple[Allocation, ...]:
    """The places that stand for pods with one request, on nodes without any of them.

    Only nodes on which that is not obvious are copied: a gang may have a thousand places, and each
    call for one of its pods comes here.
    """
    shape = shape_of(pod_request)
    plain = is_plain(pod_request) and not pod_request.combines_gpus
    doubtful = {
        one.placement.node
        for one in reservations
        if not (plain and shape_of_place(one) == shape and _surely_stands(ledger, one))
    }
    without = without_reservations(
        ledger, [one for one in reservations if one.placement.node in doubtful]
    )
    fitting = {name for name, node_info in without.items() if fit(node_info, pod_request) is None}
    crowded = {name for name in without if _is_crowded(ledger.node(name))}

    def still_stands(one: Allocation) -> bool:
        name = one.placement.node
        if name not in doubtful:
            return True
        holds = name in fitting and _still_open(without[name], one, pod_request)
        if holds and name in crowded:  # the next place has to fit beside this one
            without[name].put(one)
            if fit(without[name], pod_request) is not None:
                fitting.discard(name)
        return holds

    return tuple(filter(still_stands, reservations))


def _is_crowded(node_info: NodeInfo | None) -> bool:
    """Pods that bypassed the scheduler may have what is reserved for the gang."""
    return node_info is not None and bool(
        node_info.overfull or node_info.reserved_units() or node_info.reserved_core()
    )


def _surely_stands(ledger: Ledger, kept: Allocation) -> bool:
    """The node counts the place, on healthy GPUs, and none of its GPUs has more than it takes.

    So it fits a plain request of that place's shape once the place is given back.
    """
    node_info = ledger.node(kept.placement.node)
    if node_info is None or kept.uid not in node_info.allocations or node_info.overfull:
        return False
    offered = node_info.free_gpus if kept.placement.group else node_info.max_allocatable_memory
    if offered < 0 or node_info.pending or node_info.pending_gpus:
        return False
    return all(node_info.devices[index].healthy for index in kept.placement.gpus)


def stands(node_info: NodeInfo, kept: Allocation, pod_request: PodRequest) -> bool:
    """The place still is what a pod with this request needs and could be given."""
    return _still_open(node_info, kept, pod_request) and fit(node_info, pod_request) is None


def _still_open(node_info: NodeInfo, kept: Allocation, pod_request: PodRequest) -> bool:
    """The GPUs of the place are as many and as free as the request needs."""
    placement, (mem, _) = kept.placement, per_device(pod_request)
    gpus = [node_info.devices.get(index) for index in placement.gpus]
    alike = len(placement.group) == pod_request.gpus and len(gpus) == (
        pod_request.gpus or pod_request.gpu_count
    )
    return (
        alike
        and all(units == mem for units in placement.mem.values())
        and all(
            device
            and device.open
            and (device.empty or not pod_request.gpus)
            and not (device.mig and pod_request.combines_gpus)
            for device in gpus
        )
    )


def able_nodes(
    ledger: Ledger,
    without: Mapping[NodeName, NodeInfo],
    pod_request: PodRequest,
    names: Collection[NodeName],
    *,
    most: int = MOST_COMPARED,
) -> list[NodeInfo]:
    """State of the nodes that fit a pod, from ``without`` before the ledger.

    Args:
        most: maximum number of nodes that are compared; of more with room, those with most left.
    """
    unchanged = (name for name in names if name not in without)
    roomy = roomy_nodes(ledger, pod_request, unchanged)
    if len(roomy) > most:
        roomy = nlargest(most, roomy, key=_published(ledger, pod_request).__getitem__)
    compared = [one for name in roomy if (one := ledger.node(name)) is not None]
    compared += [
        one for name, one in without.items() if name in names and has_room(one, pod_request)
    ]
    if len(compared) > most:
        compared = nlargest(most, compared, key=lambda one: (_left(one, pod_request), one.name))
    if is_plain(pod_request):
        return compared
    return [one for one in compared if fit(one, pod_request) is None]


def _published(ledger: Ledger, pod_request: PodRequest) -> Mapping[NodeName, int]:
    """By node, what :func:`_left` answers."""
    if not pod_request.gpus:
        return ledger.free_units
    return ledger.free_full_gpu_counts if pod_request.combines_gpus else ledger.free_gpu_counts


def _left(node_info: NodeInfo, pod_request: PodRequest) -> int:
    """What a node has left for further pods of this kind."""
    if pod_request.gpus:
        return free_gpus(node_info, pod_request)
    return node_info.free_units()


class PlaceShape(msgspec.Struct, frozen=True):
    """What a place of a gang holds; pods whose requests need the same of GPUs share their places.

    Pods of one gang may have different requests, such as a launcher and its workers. The place of
    one kind is of no use to the other, so it stays while pods of its own kind wait.

    Attributes:
        exclusive: number of exclusive GPUs.
        gpus: number of GPUs, exclusive or shared.
        mem, core: units and percent on each shared GPU.
        alone: a share that has its GPUs to itself.
    """

    exclusive: int
    gpus: int
    mem: int
    core: int
    alone: bool


def shape_of(pod_request: PodRequest) -> PlaceShape:
    """The places for pods with this request."""
    mem, core = per_device(pod_request)
    gpus = pod_request.gpus or pod_request.gpu_count
    return PlaceShape(pod_request.gpus, gpus, mem, core, pod_request.whole_device)


def shape_of_place(place: Allocation) -> PlaceShape:
    """The shape of a place that is reserved."""
    placement = place.placement
    mem, core = (max(part.values(), default=0) for part in (placement.mem, placement.core))
    gpus = len(placement.gpus)
    return PlaceShape(len(placement.group), gpus, mem, core, place.exclusive)


def reserved_place(
    ledger: Ledger,
    gang: Gang,
    uid: PodUid,
    pod_request: PodRequest,
    placement: Placement,
    *,
    now_ns: int,
) -> Allocation:
    """A place for a pod with this request, reserved from now on under a UID of its own."""
    node_info = ledger.node(placement.node)
    return Allocation(
        uid=uid,
        namespace=gang.namespace,
        name=f"gang {gang.name}",
        state=AllocationState.RESERVED,
        placement=placement,
        exclusive=pod_request.whole_device,
        unit=node_info.unit if node_info else None,
        assume_time=now_ns,
        gang=gang.name,
    )
