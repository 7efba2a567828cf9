"""Placements for the pods of a PodGroup: for at least so many as it needs, or for none.

Unlike a gang that labels name, a PodGroup may have pods of different requests and more pods than it
needs, and each of its pods has a place of its own: kube-scheduler calls filter for all of them
before it binds the first. Pods with the same request that may go to the same nodes are placed
together. A pod that kube-scheduler nominated gets a place on its own node if it can: evicted pods
made room for it there, and kube-scheduler evaluates that node first.

Requests are placed one after the other, the largest first. If that fails, the request that found
too few places goes first in another attempt. Not guaranteed: that a placement is found for pods of
different requests whenever one exists. Many different requests on many nodes are
compared on the nodes with most left only, so that no group takes the extender's time.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo, common_unit
from gpucore.gang.able_nodes import MOST_COMPARED, able_nodes, reserved_place, without_reservations
from gpucore.gang.members import GroupMember, Nodes
from gpucore.gang.spread import NodeOffer, spread_over
from gpucore.gang.values import GroupShortage
from gpucore.model import Allocation, AllocationState, Placement, PodRequest
from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.nominated import NONE_NOMINATED, Nominated, beside_nominated
from gpucore.units import NodeName, PodUid
from gpucore.wire.pod.gangs import Gang, reservation_uid

MOST_ORDERS: Final = 8
"""Orders of the requests that are tried."""
LEAST_COMPARED: Final = 10
"""Nodes that are compared for each of the most requests that a group may have."""


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
    staying: Collection[Allocation] = (),
    nominated: Nominated = NONE_NOMINATED,
    most: int = MOST_COMPARED,
) -> dict[PodUid, Allocation] | GroupShortage:
    """Places for ``members``, besides those that are kept; for the first ones if not for all.

    Args:
        nodes: names of the nodes that a pod may go to; one object for pods that may go to the same.
        kept: reservations that stay, by the UIDs of their pods.
        needed: number of places that the group needs, those that are kept included.
        staying: reservations that stay beside these; all others of the group end.
        nominated: pods that go before those of the group, by the node that they are nominated for.
        most: maximum number of nodes that all attempts compare.
    """
    held = ledger.gang(gang.namespace, gang.name)
    home = {one.placement.node for one in held if one.state is not AllocationState.RESERVED}
    home.update(one.placement.node for one in kept.values())
    without = _with_only(ledger, held, (*kept.values(), *staying))
    changed = beside_nominated(ledger, without, nominated)
    empty = _Filling(ledger, gang, changed, rules, home, now_ns)
    room = 0
    for found in _attempts(empty, members, nodes, most):
        if len(found) + len(kept) >= needed:
            return found
        room = max(room, len(found))
    counts = Counter(member.pod_request for member in members)
    unit = common_unit(ledger.nodes().values())
    return GroupShortage(gang, needed - len(kept), room, tuple(counts.items()), unit)


def _with_only(
    ledger: Ledger, held: Iterable[Allocation], kept: Iterable[Allocation]
) -> dict[NodeName, NodeInfo]:
    """Copies of the nodes on which a group has other reservations than those that are kept."""
    staying = {one.uid: one for one in kept}
    ending = (one for one in held if one.state is AllocationState.RESERVED)
    changed = without_reservations(ledger, [one for one in ending if staying.get(one.uid) != one])
    for one in staying.values():
        if ledger.allocation(one.uid) != one:
            _put(ledger, changed, one)
    return changed


class _Filling(msgspec.Struct):
    """The nodes while a plan fills them.

    Attributes:
        changed: nodes that differ from the ledger.
        home: nodes on which the group is already.
        found: the places so far.
    """

    ledger: Ledger
    gang: Gang
    changed: dict[NodeName, NodeInfo]
    rules: Rules
    home: Collection[NodeName]
    now_ns: int
    found: dict[PodUid, Allocation] = msgspec.field(default_factory=dict)

    def copy(self) -> "_Filling":
        """Nodes that are filled without a change of these."""
        changed = {name: one.copy() for name, one in self.changed.items()}
        return msgspec.structs.replace(self, changed=changed, found=dict(self.found))

    def place(
        self, alike: Sequence[GroupMember], names: Collection[NodeName], *, most: int
    ) -> bool:
        """Give places on these nodes to as many of equal pods as fit; whether all have one."""
        able = able_nodes(self.ledger, self.changed, alike[0].pod_request, names, most=most)
        places = _spread(able, alike, self.rules, self.home)
        for member, placement in zip(alike, places, strict=False):
            uid = reservation_uid(self.gang, member.uid)
            one = reserved_place(
                self.ledger, self.gang, uid, member.pod_request, placement, now_ns=self.now_ns
            )
            _put(self.ledger, self.changed, one)
            self.found[member.uid] = one
        return len(places) == len(alike)


_Alike = tuple[list[GroupMember], Collection[NodeName]]
"""Pods with one request, and the nodes that they may go to."""


def _attempts(
    empty: _Filling, members: Sequence[GroupMember], nodes: Nodes, most: int
) -> Iterator[dict[PodUid, Allocation]]:
    """Places found with the nominated pods on their own nodes, and without."""
    nominated = _nominated(members)
    starts: list[list[_Alike]] = [nominated, []] if nominated else [[]]
    for first in starts:
        start = empty.copy()
        for alike, names in first:
            start.place(alike, names, most=most)
        rest = [one for one in members if one.uid not in start.found]
        yield from _orders(start, _by_size(rest, nodes), most // len(starts))


def _orders(
    start: _Filling, requests: Sequence[_Alike], most: int
) -> Iterator[dict[PodUid, Allocation]]:
    """Places found in several orders of the requests, while few nodes are compared for all."""
    each = max(most // max(len(requests), 1), LEAST_COMPARED)
    compared = sum(min(len(names), each) for _, names in requests)
    limit = min(max(most // max(compared, 1), 1), MOST_ORDERS)
    order, tried = tuple(range(len(requests))), set[tuple[int, ...]]()
    while order not in tried and len(tried) < limit:
        tried.add(order)
        filling = start.copy()
        short = [number for number in order if not filling.place(*requests[number], most=each)]
        yield filling.found
        order = (*short[:1], *(number for number in order if number not in short[:1]))


def _nominated(members: Sequence[GroupMember]) -> list[_Alike]:
    """The nominated pods, with their own nodes."""
    groups: dict[tuple[PodRequest, NodeName], list[GroupMember]] = {}
    for one in members:
        if one.nominated:
            groups.setdefault((one.pod_request, one.nominated), []).append(one)
    return [(alike, {node}) for (_, node), alike in groups.items()]


def _by_size(members: Sequence[GroupMember], nodes: Nodes) -> list[_Alike]:
    """Pods with one request that may go to one set of nodes, the largest requests first.

    Their order stays. Pods with volumes are many kinds, which mostly may go to every node.
    """
    groups: dict[tuple[PodRequest, int], list[GroupMember]] = {}
    names = {one.uid: nodes(one) for one in members}
    for one in members:
        groups.setdefault((one.pod_request, id(names[one.uid])), []).append(one)
    found = [(alike, names[alike[0].uid]) for alike in groups.values()]
    return sorted(found, key=lambda group: group[0][0].size, reverse=True)


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
    node_info = ledger.node(one.placement.node)
    if node_info is not None:
        if node_info.name not in changed:
            changed[node_info.name] = node_info.copy()
        changed[node_info.name].put(one)
