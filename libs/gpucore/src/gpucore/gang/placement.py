"""Gang placement: all pods of a gang get GPUs on few, well connected nodes, or none does.

Nothing is reserved before all pods of the gang exist (:mod:`gpucore.gang.members`). The filter call
of the first pod then chooses placements for all pods with the same request. The ledger reserves
those of the others (:data:`gpucore.model.AllocationState.RESERVED`) until the pods are scheduled or
deleted, or the reservation expires. A later pod passes filter only on nodes with a reservation for
its gang. After a restart the members that the API server shows are counted, and placements for the
missing ones are chosen again. Places of pods with other requests stay, up to the size of the gang.

Not guaranteed: that a half-running gang completes when other pods took the capacity while nothing
was reserved, that pods of one gang with different requests are placed together, and the best of all
sets of nodes: their number is minimal, and each next one is the best linked.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import count
from types import MappingProxyType
from typing import Final

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo, common_unit
from gpucore.gang.able_nodes import (
    able_nodes,
    reserved_place,
    shape_of,
    shape_of_place,
    standing_places,
    without_reservations,
)
from gpucore.gang.members import (
    MOST_RESERVED,
    Members,
    Postponed,
    incomplete,
    planned_long,
    too_many,
)
from gpucore.gang.spread import NodeOffer, spread_over
from gpucore.gang.values import GangPlacement, Shortage
from gpucore.model import Allocation, AllocationState, FitError, Placement, PodRequest
from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.nominated import NONE_NOMINATED, Nominated, beside_nominated
from gpucore.scheduling.policy import place
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.pod.gangs import Gang

ROOMIEST: Final = 3
"""Nodes that a shortage names; the others are counted."""
_NO_LIMITS: Final[Mapping[NodeName, int]] = MappingProxyType({})


def place_gang(
    ledger: Ledger,
    gang: Gang,
    pod_request: PodRequest,
    names: Collection[NodeName],
    rules: Rules,
    *,
    members: Members,
    now_ns: int,
    limits: Mapping[NodeName, int] = _NO_LIMITS,
    nominated: Nominated = NONE_NOMINATED,
    pause: float = 0.0,
) -> GangPlacement | Shortage | Postponed:
    """Placements for the pods of ``gang`` without one: existing reservations, else new ones.

    Args:
        pod_request: of the pod being scheduled; it has no allocation.
        names: nodes that may be used for new placements.
        members: the pods of the gang that exist.
        now_ns: when new reservations begin, in Unix nanoseconds; those that are chosen anew keep
            the time of the first.
        limits: maximum number of the pods by node, for other reasons than GPUs; pods with reserved
            places are not subtracted.
        nominated: pods that go before those of the gang, by the node that they are nominated for.
        pause: seconds for which the namespace gets no new plan.
    """
    allocations = ledger.gang(gang.namespace, gang.name)
    reservations = [
        allocation for allocation in allocations if allocation.state is AllocationState.RESERVED
    ]
    placed = len(allocations) - len(reservations)
    if not placed and members.exist < gang.size:
        return incomplete(gang, members.exist)
    missing = max(min(gang.size - placed, members.alike), 1)
    replaced = _replaceable(reservations, pod_request, most_others=gang.size - placed - missing)
    kept = standing_places(ledger, replaced.values(), pod_request)
    if len(kept) >= missing and any(one.placement.node in names for one in kept):
        return GangPlacement(kept)
    if pause:
        return planned_long(gang, pause)
    if ledger.reserved(gang.namespace) - len(replaced) + missing > MOST_RESERVED:
        return too_many(gang)
    standing = {one.uid: one for one in allocations if one.uid not in replaced}
    home = {one.placement.node for one in standing.values()}
    without = without_reservations(ledger, replaced.values())
    changed = beside_nominated(ledger, without, nominated)
    node_infos = able_nodes(ledger, changed, pod_request, names)
    left = _left(limits, standing.values())
    offers = [
        NodeOffer(one, pod_request, rules, most=most)
        for one in node_infos
        if (most := min(missing, left.get(one.name, missing))) > 0
    ]
    chosen = spread_over(offers, missing, home)
    if not chosen:
        first = nlargest(ROOMIEST, offers, key=lambda one: one.room)
        roomiest = tuple((one.name, one.room) for one in first)
        room = sum(one.room for one in offers)
        unit = common_unit(one for name in names if (one := ledger.node(name)))
        return Shortage(gang, pod_request, missing, room, len(offers), roomiest, unit)
    placements = [placement for offer, pods in chosen for placement in offer.load(pods)]
    since = min((one.assume_time for one in reservations), default=now_ns)
    uids = (uid for uid in _uids(gang) if uid not in standing)
    fresh = tuple(
        reserved_place(ledger, gang, uid, pod_request, placement, now_ns=since)
        for uid, placement in zip(uids, placements, strict=False)
    )
    return GangPlacement(fresh, tuple(replaced))


def taken(
    ledger: Ledger, kept: Allocation, pod_request: PodRequest, rules: Rules
) -> Placement | FitError:
    """The placement of a pod that takes a place that is kept in ``ledger``."""
    node_info = without_reservations(ledger, [kept])[kept.placement.node]

    def choose(_: NodeInfo, free: Sequence[GpuIndex], count: int) -> tuple[GpuIndex, ...]:
        gpus = tuple(gpu for gpu in kept.placement.gpus if gpu in free)
        return gpus if len(gpus) == count else tuple(free[:count])

    return place(node_info, pod_request, rules.policy, choose_group=choose)


def _replaceable(
    reservations: Collection[Allocation], pod_request: PodRequest, *, most_others: int
) -> dict[PodUid, Allocation]:
    """The places that may be chosen anew for pods with a request, by UID.

    Args:
        most_others: maximum number of places for pods with other requests, which stay.
    """
    shape = shape_of(pod_request)
    others = [one.uid for one in reservations if shape_of_place(one) != shape]
    staying = frozenset(others[: max(most_others, 0)])
    return {one.uid: one for one in reservations if one.uid not in staying}


def _left(limits: Mapping[NodeName, int], standing: Iterable[Allocation]) -> dict[NodeName, int]:
    """The limits less the places that stay reserved for pods of the gang, which are not there."""
    reserved = Counter(
        one.placement.node for one in standing if one.state is AllocationState.RESERVED
    )
    return {name: most - reserved[name] for name, most in limits.items()}


def _uids(gang: Gang) -> Iterator[PodUid]:
    """UIDs of the places of a gang."""
    return (PodUid(f"gang/{gang.namespace}/{gang.name}/{number}") for number in count())
