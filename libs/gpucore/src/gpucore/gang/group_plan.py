"""Placements for the pods of a PodGroup: for at least so many as it needs, or for none.

Unlike a gang that labels name, a PodGroup may have pods of different requests and more pods than it
needs, and each of its pods has a place of its own: kube-scheduler calls filter for all of them
before it binds the first. Pods with the same request, owner and scheduler are interchangeable.

Requests are placed one after the other, the largest first. Not guaranteed: that a placement is
found for pods of different requests whenever one exists.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import groupby

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo, common_unit
from gpucore.gang.members import Member, Postponed
from gpucore.gang.placement import able_nodes, without_reservations
from gpucore.gang.spread import NodeOffer, spread_over
from gpucore.gang.values import Rules
from gpucore.model import Allocation, AllocationState, Placement, PodRequest
from gpucore.units import MemoryUnit, NodeName, PodUid
from gpucore.wire.pod.gangs import Gang

Kind = tuple[str, str]
"""Owner and scheduler of a pod: such pods may go to the same nodes."""
Nodes = Callable[[Kind], Collection[NodeName]]


class GroupMember(msgspec.Struct, frozen=True):
    """A pod of a group that has no node and requests something of ours."""

    uid: PodUid
    pod_request: PodRequest
    kind: Kind

    @property
    def like(self) -> tuple[PodRequest, Kind]:
        """Equal for pods that could take each other's place."""
        return self.pod_request, self.kind

    @property
    def size(self) -> tuple[int, int, int]:
        """By which the largest request is placed first."""
        request = self.pod_request
        return request.gpus, request.mem, request.core


def group_member(member: Member) -> GroupMember | None:
    """``member`` as one that is to be placed; ``None`` where it is not."""
    request, pod = member.pod_request, member.pod
    if request is None or request.fault or not member.pending:
        return None
    return GroupMember(pod.uid, request, (pod.owner, pod.scheduler_name))


class GroupShortage(msgspec.Struct, frozen=True):
    """Why too few pods of a group can be placed.

    Attributes:
        needed: pods that have to be placed together, besides those that are.
        found: how many could be placed.
        requests: of the pods without a node, with their numbers.
        unit: of all nodes; ``None`` where they differ.
    """

    gang: Gang
    needed: int
    found: int
    requests: tuple[tuple[PodRequest, int], ...]
    unit: MemoryUnit | None = None


class GroupCause(StrEnum):
    """Why one pod of a group has no place."""

    OTHERS_ONLY = "others only"
    """The group has places, for other pods."""
    LOST = "lost"
    """Other pods took the places since filter was called."""
    NOT_THERE = "not there"
    """There is no place on the node of the bind."""


class GroupRefusal(msgspec.Struct, frozen=True):
    """Why one pod of a group has no place.

    Attributes:
        placed: number of the group's pods that have one.
        node: of the bind; empty in a filter call.
    """

    gang: Gang
    cause: GroupCause
    placed: int = 0
    node: NodeName = NodeName("")


Refused = GroupShortage | GroupRefusal | Postponed
"""Why a pod of a group has no place: a value, not an error."""


def reservation_uid(gang: Gang, uid: PodUid) -> PodUid:
    """The UID of the place that is reserved for a pod of ``gang``."""
    return PodUid(f"gang/{gang.namespace}/{gang.name}/{uid}")


def reserved_for(ledger: Ledger, gang: Gang) -> dict[PodUid, Allocation]:
    """The places that are reserved for pods of a group, by the pods' UIDs."""
    return reserved_of(gang, ledger.gang(gang.namespace, gang.name))


def reserved_of(gang: Gang, allocations: Iterable[Allocation]) -> dict[PodUid, Allocation]:
    """The same of all allocations of the group."""
    prefix = len(reservation_uid(gang, PodUid("")))
    return {
        PodUid(one.uid[prefix:]): one
        for one in allocations
        if one.state is AllocationState.RESERVED
    }


def reservation(
    gang: Gang, member: GroupMember, placement: Placement, ledger: Ledger, now_ns: int
) -> Allocation:
    """A place for ``member``, reserved from now on."""
    node_info = ledger.node(placement.node)
    return Allocation(
        uid=reservation_uid(gang, member.uid),
        namespace=gang.namespace,
        name=f"gang {gang.name}",
        state=AllocationState.RESERVED,
        placement=placement,
        exclusive=member.pod_request.whole_device,
        unit=node_info.unit if node_info else None,
        assume_time=now_ns,
        gang=gang.name,
    )


def plan_group(
    ledger: Ledger,
    gang: Gang,
    members: Sequence[GroupMember],
    rules: Rules,
    *,
    nodes: Nodes,
    kept: Mapping[PodUid, Allocation],
    needed: int,
    now_ns: int,
) -> dict[PodUid, Allocation] | GroupShortage:
    """Places for ``members``, besides those that are kept; for the first ones if not for all.

    Args:
        nodes: names of the nodes that pods of a kind may go to.
        kept: reservations that stay, by the UIDs of their pods; all others of the group end.
        needed: number of places that the group needs, those that are kept included.
    """
    held = ledger.gang(gang.namespace, gang.name)
    reservations = [one for one in held if one.state is AllocationState.RESERVED]
    home = {one.placement.node for one in held if one not in reservations}
    changed = without_reservations(ledger, reservations)
    for one in kept.values():
        _put(ledger, changed, one)
    home.update(one.placement.node for one in kept.values())
    found = dict[PodUid, Allocation]()
    for alike in _by_size(members):
        able = able_nodes(ledger, changed, alike[0].pod_request, nodes(alike[0].kind))
        places = _spread(able, alike, rules, home)
        for member, placement in zip(alike, places, strict=False):
            one = reservation(gang, member, placement, ledger, now_ns)
            _put(ledger, changed, one)
            found[member.uid] = one
    if len(found) + len(kept) < needed:
        requests = Counter(member.pod_request for member in members)
        unit = common_unit(ledger.nodes().values())
        return GroupShortage(gang, needed - len(kept), len(found), tuple(requests.items()), unit)
    return found


def _by_size(members: Sequence[GroupMember]) -> list[list[GroupMember]]:
    """Pods that are alike, the largest requests first; their order stays."""
    first = {one.like: -number for number, one in reversed(list(enumerate(members)))}
    ordered = sorted(members, key=lambda one: (one.size, first[one.like]), reverse=True)
    return [list(alike) for _, alike in groupby(ordered, key=lambda one: one.like)]


def _spread(
    able: Iterable[NodeInfo],
    alike: Sequence[GroupMember],
    rules: Rules,
    home: Collection[NodeName],
) -> list[Placement]:
    """Placements for as many of equal pods as fit, on few and well connected nodes."""
    request = alike[0].pod_request
    offers = [NodeOffer(one, request, rules, most=len(alike)) for one in able]
    count = min(len(alike), sum(offer.room for offer in offers))
    chosen = spread_over(offers, count, home)
    return [placement for offer, load in chosen for placement in offer.load(load)]


def _put(ledger: Ledger, changed: dict[NodeName, NodeInfo], one: Allocation) -> None:
    """Add an allocation to the copy of its node."""
    name = one.placement.node
    node_info = changed.get(name) or ledger.node(name)
    if node_info is not None:
        changed[name] = changed.get(name) or node_info.copy()
        changed[name].put(one)
