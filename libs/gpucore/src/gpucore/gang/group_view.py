"""A PodGroup at one moment: its pods, the places they hold, and how many more it needs."""

from collections.abc import Mapping, Sequence

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.gang.able_nodes import stands, without_reservations
from gpucore.gang.members import GroupMember, Member
from gpucore.gang.reservations import reserved_for
from gpucore.model import Allocation
from gpucore.scheduling.nominated import NONE_NOMINATED, Nominated
from gpucore.units import PodUid
from gpucore.wire.pod.gangs import Gang


class GroupView(msgspec.Struct, frozen=True):
    """The pods of a group, from the view of one that has no node.

    Attributes:
        exist: pods of the group that have not ended.
        needed: number of places that have to be found together, besides those of placed pods.
            Pods that request nothing of ours count as placed: others decide about them.
        members: pods that need a place, the one being scheduled first.
        reserved: places that are reserved for them.
        staying: places of other pods of the group, such as those that no watch has shown yet.
        nominated: pods that go before those of the group, by the node that they are nominated for.
    """

    gang: Gang
    exist: int
    needed: int
    members: tuple[GroupMember, ...]
    reserved: Mapping[PodUid, Allocation]
    staying: tuple[Allocation, ...] = ()
    nominated: Nominated = NONE_NOMINATED


def group_view(
    ledger: Ledger,
    gang: Gang,
    pods: Sequence[Member],
    nominated: Nominated = NONE_NOMINATED,
) -> GroupView:
    """The group whose existing pods are these, the one being scheduled first."""
    scheduler = pods[0].pod.scheduler_name
    open_pods = [one for one in pods if not _placed(ledger, one)]
    members = [
        member
        for one in open_pods
        if one.pod.scheduler_name == scheduler and (member := one.group_member)
    ]
    others = sum(one.pod_request is None for one in open_pods)
    placed = len(pods) - len(open_pods)
    uids = {member.uid for member in members}
    places = reserved_for(ledger, gang)
    reserved = {uid: one for uid, one in places.items() if uid in uids}
    staying = tuple(one for uid, one in places.items() if uid not in uids)
    needed = max(gang.size - placed - others, 1)
    return GroupView(gang, len(pods), needed, tuple(members), reserved, staying, nominated)


def _placed(ledger: Ledger, member: Member) -> bool:
    return bool(member.pod.node) or ledger.allocation(member.pod.uid) is not None


def standing(
    ledger: Ledger, view: GroupView, places: Mapping[PodUid, Allocation]
) -> dict[PodUid, Allocation] | None:
    """Those of ``places`` whose pods need one; ``None`` where they no longer fit all together."""
    requests = {member.uid: member.pod_request for member in view.members}
    wanted = {uid: one for uid, one in places.items() if uid in requests}
    names = {one.placement.node for one in wanted.values()}
    nodes = without_reservations(
        ledger, [one for one in view.reserved.values() if one.placement.node in names]
    )
    for uid, one in wanted.items():
        node_info = nodes.get(one.placement.node) or ledger.node(one.placement.node)
        if node_info is None or not stands(node_info, one, requests[uid]):
            return None
        nodes[node_info.name] = nodes.get(node_info.name) or node_info.copy()
        nodes[node_info.name].put(one)
    return wanted
