"""The place of one pod of a PodGroup: its own, that of another pod, or one of a new plan."""

from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.gang.able_nodes import MOST_COMPARED
from gpucore.gang.gang_pods import GangPods
from gpucore.gang.group_cycle import GroupCycle, Places
from gpucore.gang.group_plan import plan_group
from gpucore.gang.group_view import GroupView, standing
from gpucore.gang.members import (
    MOST_RESERVED,
    GroupMember,
    NamespaceTime,
    Nodes,
    Postponed,
    planned_long,
    planning_pause,
    resting,
    too_many,
)
from gpucore.gang.values import GroupCause, GroupRefusal, GroupShortage, Refused
from gpucore.model import Allocation
from gpucore.model.constraints import PodConstraints
from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.pending_pods import Nominations
from gpucore.units import NodeName, PodUid
from gpucore.wire.pod.gangs import reservation_uid
from gpucore.wire.pod.spec import Pod

MOST_IN_VAIN: Final = 8
"""Plans in one cycle without a place for the pod that was called; each may take long."""

Planned = dict[PodUid, Allocation] | GroupShortage | Postponed


class GroupState(Protocol):
    """What is known of the cluster, and where places are reserved."""

    @property
    def ledger(self) -> Ledger:
        """Allocations of all nodes."""
        ...

    @property
    def gangs(self) -> GangPods:
        """The pods of each gang."""
        ...

    @property
    def reservation_time(self) -> NamespaceTime:
        """For how long namespaces reserved in vain."""
        ...

    @property
    def planning_time(self) -> NamespaceTime:
        """For how long the gangs of namespaces were planned."""
        ...

    @property
    def nominations(self) -> Nominations:
        """Waiting pods for which others are evicted."""
        ...

    def constraints_of(self, pod: Pod) -> PodConstraints | None:
        """What the pod requires of its node, where that is known."""
        ...

    def reserve(self, allocation: Allocation) -> None:
        """Keep a place."""
        ...

    def forget(self, uid: PodUid) -> None:
        """Give a place back."""
        ...

    def release(self, uid: PodUid) -> None:
        """Give back a place that was kept in vain."""
        ...


class GroupPlaces:
    """The places of the groups of one cluster.

    Args:
        clock: Unix nanoseconds.
    """

    def __init__(self, state: GroupState, rules: Rules, clock: Callable[[], int]) -> None:
        self._state, self._rules, self._clock = state, rules, clock

    def may_reserve(self, view: GroupView) -> bool:
        """The namespace may have the places that the group needs, and a plan for them."""
        return view.needed <= self._room(view) and self._pause(view) is None

    def _pause(self, view: GroupView) -> Postponed | None:
        """Why the group gets no new plan now; ``None`` where it may have one."""
        held = self._state.ledger.gang(*view.gang.key)
        pause = planning_pause(self._state.planning_time, view.gang, held, self._clock())
        return planned_long(view.gang, pause) if pause else None

    def _room(self, view: GroupView) -> int:
        """How many reserved places the group may have."""
        namespace = view.gang.namespace
        others = self._state.ledger.reserved(namespace) - len(view.reserved)
        return MOST_RESERVED - others

    def place(
        self, view: GroupView, cycle: GroupCycle, mine: GroupMember, names: frozenset[NodeName]
    ) -> Allocation | Refused:
        """The place of ``mine``: its own, that of another pod, or one of a new plan."""
        mine = _on_offered(mine, names)
        again, cycle.again = cycle.again, False
        reserved = None if again else self._reserved(view, cycle, mine, names)
        found = reserved or self._pause(view)
        if found is not None:
            return found
        if again:
            return self._anew(view, cycle, mine, names)
        kept = {uid: one for uid, one in view.reserved.items() if uid != mine.uid}
        alone = self._beside(view, kept, mine, names)
        if alone is not None:
            return alone
        if view.needed <= len(kept) < self._room(view) and _in_vain(cycle, kept):
            return GroupRefusal(view.gang, GroupCause.OTHERS_ONLY, placed=len(kept))
        return self._anew(view, cycle, mine, names)

    def _reserved(
        self, view: GroupView, cycle: GroupCycle, mine: GroupMember, names: Collection[NodeName]
    ) -> Allocation | None:
        """A place that is reserved already: its own, or that of another pod."""
        own = view.reserved.get(mine.uid)
        if own is not None and own.placement.node in names and self._stands(view, mine.uid, own):
            return own
        return self._exchange(view, cycle, mine, names)

    def _stands(self, view: GroupView, uid: PodUid, place: Allocation) -> bool:
        """The place of a pod can still be had beside the others that are reserved."""
        alone = {uid: place}
        return bool(self.stand(msgspec.structs.replace(view, reserved=alone), alone))

    def _exchange(
        self, view: GroupView, cycle: GroupCycle, mine: GroupMember, names: Collection[NodeName]
    ) -> Allocation | None:
        """The place of an equal pod that was not called yet, which gets the place of ``mine``."""
        like = mine.like
        for other in view.members[1:]:
            theirs = view.reserved.get(other.uid)
            if theirs is None or other.uid in cycle.answered or other.like != like:
                continue
            if theirs.placement.node in names and self._stands(view, other.uid, theirs):
                own = view.reserved.get(mine.uid)
                self._state.forget(theirs.uid)
                if own is not None:
                    self._reserve(view, other, own)
                return self._reserve(view, mine, theirs)
        return None

    def _beside(
        self, view: GroupView, kept: Places, mine: GroupMember, names: Collection[NodeName]
    ) -> Allocation | None:
        """A place beside all others that are reserved for the group."""
        if not kept or len(kept) >= self._room(view):
            return None
        found = self.plan(view, kept, [mine], lambda _: names)
        if not isinstance(found, dict) or mine.uid not in found:
            return None
        self._state.reserve(found[mine.uid])
        return found[mine.uid]

    def _anew(
        self, view: GroupView, cycle: GroupCycle, mine: GroupMember, names: frozenset[NodeName]
    ) -> Allocation | Refused:
        """A new plan for all pods that were not called yet."""
        kept = _answered(view, cycle, mine)
        released = self._released(view, cycle, mine)
        found = self._planned(view, cycle, released, mine, names) if released else None
        if released and isinstance(found, dict) and mine.uid in found:
            kept = released
        else:
            found = self._planned(view, cycle, kept, mine, names)
        if not isinstance(found, dict):
            if not kept:
                self.keep_only(view, {})
            return found
        self.keep_only(view, kept | found)
        if mine.uid in found:
            return found[mine.uid]
        cycle.in_vain += 1
        return GroupRefusal(view.gang, GroupCause.OTHERS_ONLY, placed=len(kept) + len(found))

    def _released(
        self, view: GroupView, cycle: GroupCycle, mine: GroupMember
    ) -> dict[PodUid, Allocation] | None:
        """The answers of a cycle whose plan was released; ``None`` where they are no longer free.

        kube-scheduler may pause longer in a cycle than a plan is kept, and binds the pods where it
        was answered.
        """
        answered = {uid: one for uid, one in cycle.answered.items() if uid != mine.uid}
        if cycle.binding or answered.keys() <= view.reserved.keys():
            return None
        return self.stand(view, answered)

    def _planned(
        self,
        view: GroupView,
        cycle: GroupCycle,
        kept: Places,
        mine: GroupMember,
        names: frozenset[NodeName],
    ) -> Planned:
        """A plan for all pods without a place in ``kept``, ``mine`` first."""
        rest = [mine]
        rest += [one for one in view.members if one.uid not in kept and one.uid != mine.uid]
        tries = cycle.offers.nodes(rest, names, self._state.ledger.nodes().keys())
        most = MOST_COMPARED // len(tries)
        return _best((self.plan(view, kept, rest, nodes, most) for nodes in tries), mine)

    def plan(
        self,
        view: GroupView,
        kept: Places,
        members: Collection[GroupMember],
        nodes: Nodes,
        most: int = MOST_COMPARED,
    ) -> Planned:
        """Places for ``members`` beside those that are kept; ``most`` nodes are compared."""
        room, gang, now_ns = self._room(view), view.gang, self._clock()
        if view.needed > room or len(kept) >= room:
            return too_many(gang)
        if not view.reserved:
            pause = self._state.reservation_time.pause(gang.namespace, now_ns)
            if pause:
                return resting(gang, pause)
        since = min((one.assume_time for one in view.reserved.values()), default=now_ns)
        found = plan_group(
            self._state.ledger,
            gang,
            list(members)[: room - len(kept)],
            self._rules,
            nodes=nodes,
            kept=kept,
            needed=view.needed,
            now_ns=since,
            staying=view.staying,
            nominated=view.nominated,
            most=most,
        )
        self._state.planning_time.charge(gang.namespace, now_ns, self._clock())
        return found

    def unknown(
        self, view: GroupView, cycle: GroupCycle, mine: GroupMember, node: NodeName
    ) -> Allocation | Refused:
        """The same where nobody remembers the cycle: this pod on ``node``, the others anywhere.

        Where the others go is a guess, until their own binds say it.
        """
        kept = _answered(view, cycle, mine)
        alone = msgspec.structs.replace(view, needed=1)
        first = self.plan(alone, kept, [_on_offered(mine, {node})], lambda _: {node})
        if not isinstance(first, dict):
            return first
        rest = [member for member in view.members if member.uid not in kept | first]
        every = self._state.ledger.nodes().keys()
        others = self.plan(view, kept | first, rest, lambda _: every)
        if not isinstance(others, dict) or mine.uid not in first:
            return GroupRefusal(view.gang, GroupCause.NOT_THERE, node=node)
        self.keep_only(view, kept | first | others)
        cycle.answered[mine.uid] = first[mine.uid]
        return first[mine.uid]

    def stand(self, view: GroupView, places: Places) -> dict[PodUid, Allocation] | None:
        """``places`` as they can be reserved now; ``None`` where not all can."""
        return standing(self._state.ledger, view, places)

    def keep_only(self, view: GroupView, places: Places) -> None:
        """Reserve these places for the group and no others."""
        for uid, one in view.reserved.items():
            if places.get(uid) != one:
                self._state.forget(one.uid)
        for one in places.values():
            self._state.reserve(one)

    def _reserve(self, view: GroupView, member: GroupMember, place: Allocation) -> Allocation:
        """Reserve the place of an equal pod for ``member``."""
        found = msgspec.structs.replace(place, uid=reservation_uid(view.gang, member.uid))
        self._state.reserve(found)
        return found


def _answered(view: GroupView, cycle: GroupCycle, mine: GroupMember) -> dict[PodUid, Allocation]:
    """The reserved places of the other pods that were called in this cycle."""
    reserved = view.reserved.items()
    return {uid: one for uid, one in reserved if uid in cycle.answered and uid != mine.uid}


def _in_vain(cycle: GroupCycle, kept: Places) -> bool:
    """A new plan has no place for a pod without one: no place in ``kept`` may be given up for it.

    Also after so many plans in vain: thousands of pods of one group may find no place, and others
    wait meanwhile.
    """
    return kept.keys() <= cycle.answered.keys() or cycle.in_vain >= MOST_IN_VAIN


def _best(tries: Iterable[Planned], mine: GroupMember) -> Planned:
    """The first plan with a place for ``mine``, else the first of all; or why there is none."""
    found: Planned | None = None
    for one in tries:
        if isinstance(one, dict) and mine.uid in one:
            return one
        if not isinstance(found, dict):
            found = one
    assert found is not None
    return found


def _on_offered(mine: GroupMember, names: Collection[NodeName]) -> GroupMember:
    """``mine``, nominated for a node that it is offered or for none."""
    return (
        mine if mine.nominated in names else msgspec.structs.replace(mine, nominated=NodeName(""))
    )
