"""PodGroups in the scheduling calls: one place for each pod, in all calls of one cycle.

kube-scheduler places a PodGroup in one cycle: it calls filter for pod after pod, and binds only
when enough of them have a node. So the first call plans the whole group, and each pod has a place
of its own from then on: a repeated cycle gets the same answers, and no GPU is given twice. The call
of a pod that may not go to its place exchanges it with one that was not called yet, or plans anew
for all that were not called.

A plan is released when :data:`RELEASE_SECONDS` pass without a call and without a bind, or when
another group is called: kube-scheduler runs one cycle after the other, and starts the binds of a
cycle at its end. A bind that comes later reserves all places of its cycle again, or is refused with
all others; a call that comes later in the same cycle reserves the places that were answered again,
if they are free and its pod has a place beside them. A plan that kube-scheduler has accepted, by
the status of the PodGroup or by a bind, is kept while it may wait for volumes: its places are
renewed for :data:`BINDING_SECONDS`, whatever calls come, and expire then like all others. The cycle
ends with the last of them.
"""

from collections.abc import Callable, Collection
from typing import Final

import msgspec

from gpucore.gang.group_cycle import GroupCycle
from gpucore.gang.group_places import GroupPlaces, GroupState
from gpucore.gang.group_view import GroupView, group_view
from gpucore.gang.members import Member, incomplete
from gpucore.gang.node_sets import NodeSets
from gpucore.gang.pod_groups import Key
from gpucore.gang.reservations import reserved_for
from gpucore.gang.values import GroupCause, GroupRefusal, Refused
from gpucore.model import Allocation
from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.pending_pods import UnscheduledPod
from gpucore.units import NodeName
from gpucore.wire.pod.gangs import Gang, reservation_uid

RELEASE_SECONDS: Final = 2.0
"""kube-scheduler calls filter for the next pod of a group, or binds, within milliseconds."""
REMEMBER_SECONDS: Final = 120.0
"""For how long a late bind finds the places of its cycle."""
BINDING_SECONDS: Final = 600.0
"""For how long kube-scheduler waits for the volumes of a pod (``bindTimeoutSeconds``)."""
RENEW_SECONDS: Final = 30.0
"""Age at which the places of an accepted plan are renewed, so that none expires."""
_SECOND: Final = 1_000_000_000


class PodGroupCycles:
    """The cycles of all groups.

    Args:
        clock: Unix nanoseconds.
    """

    def __init__(self, state: GroupState, rules: Rules, clock: Callable[[], int]) -> None:
        self._state, self._clock = state, clock
        self._places = GroupPlaces(state, rules, clock)
        self._cycles: dict[Key, GroupCycle] = {}
        self._sets = NodeSets()
        self._changes = 0

    def changed(self) -> None:
        """The cluster changed: a group that had too little room may have enough."""
        self._changes += 1

    def admit(
        self, pending: UnscheduledPod, gang: Gang, names: Collection[NodeName]
    ) -> Allocation | Refused:
        """The place of a pod on one of ``names``, reserved from now on; or why it has none."""
        view = self._view(pending, gang)
        cycle, scheduled = self._cycle(gang.key), self._state.gangs.groups.scheduled(gang.key)
        waiting = {member.uid for member in view.members}
        cycle.called(pending.pod.uid, waiting, self._clock(), scheduled=scheduled)
        if view.exist < gang.size:
            return incomplete(gang, view.exist)
        if cycle.shortage is not None:
            shortage, change = cycle.shortage
            if change == self._changes:
                cycle.refused.add(pending.pod.uid)
                return shortage
        mine = view.members[0]
        offered = frozenset(names)
        cycle.offers.add(mine, offered)
        found = self._places.place(view, cycle, mine, offered)
        cycle.called_ns = self._clock()
        if isinstance(found, Allocation):
            cycle.answered[mine.uid] = found
            return found
        cycle.refused.add(mine.uid)
        if not cycle.answered and not isinstance(found, GroupRefusal):
            cycle.shortage = (found, self._changes)
        return found

    def could_go(self, pending: UnscheduledPod, gang: Gang, names: Collection[NodeName]) -> bool:
        """Enough pods of the group could be placed now; nothing is reserved."""
        view = self._view(pending, gang)
        if view.exist < gang.size or not self._places.may_reserve(view):
            return False
        like, every = view.members[0].like, self._state.ledger.nodes().keys()
        found = self._places.plan(
            view, {}, view.members, lambda one: names if one.like == like else every
        )
        return isinstance(found, dict)

    def complete(self, pending: UnscheduledPod, gang: Gang) -> bool:
        """As many pods exist as are placed together."""
        pods = self._state.gangs.group(Member(pending.pod, pending.pod_request), gang)
        return len(pods) >= gang.size

    def take(self, pending: UnscheduledPod, gang: Gang, node: NodeName) -> Allocation | Refused:
        """The place of a pod that is being bound to ``node``; or why it has none."""
        view = self._view(pending, gang)
        cycle = self._cycle(gang.key)
        cycle.called_ns = self._clock()
        own = view.reserved.get(pending.pod.uid)
        if own is None or own.placement.node != node:
            found = self._found_late(view, cycle, node)
            if not isinstance(found, Allocation):
                return found
            own = found
        cycle.accept(self._clock())
        return own

    # Release.

    def unbound_beside(self, gang: Gang) -> list[Key]:
        """Groups of other cycles with a plan of which no pod was bound."""
        root = self._state.gangs.groups.root(gang.key)
        return [
            key
            for key, cycle in self._cycles.items()
            if cycle.answered
            and not self._accepted(key, cycle)
            and self._state.gangs.groups.root(key) != root
            and reserved_for(self._state.ledger, Gang(*key, 0))
        ]

    def release(self, key: Key) -> None:
        """A cycle has ended; a pod of one that is being bound keeps its place until it expires."""
        gang, cycle = Gang(*key, 0), self._cycles[key]
        accepted = self._accepted(key, cycle)
        held = {reservation_uid(gang, uid) for uid in cycle.answered} if accepted else set()
        for one in reserved_for(self._state.ledger, gang).values():
            if one.uid not in held:
                self._state.release(one.uid)

    def _accepted(self, key: Key, cycle: GroupCycle) -> bool:
        """kube-scheduler binds the pods of the cycle."""
        if not cycle.scheduled and self._state.gangs.groups.scheduled(key):
            cycle.scheduled = True
            if cycle.answered:
                cycle.accept(self._clock())
        return cycle.binding

    def _cycle(self, key: Key) -> GroupCycle:
        if key not in self._cycles:
            self._cycles[key] = GroupCycle(self._sets)
        return self._cycles[key]

    def release_ended(self) -> None:
        """Release what no call and no bind has touched for a while."""
        now_ns = self._clock()
        for key, cycle in list(self._cycles.items()):
            idle = (now_ns - cycle.called_ns) / _SECOND
            if idle >= RELEASE_SECONDS:
                self.release(key)
            accepted = self._accepted(key, cycle)
            late = accepted and (now_ns - cycle.accepted_ns) / _SECOND >= BINDING_SECONDS
            if accepted and reserved_for(self._state.ledger, Gang(*key, 0)):
                if not late:
                    self._renew(key, now_ns)
            elif late or idle >= REMEMBER_SECONDS:
                del self._cycles[key]

    def _renew(self, key: Key, now_ns: int) -> None:
        for one in reserved_for(self._state.ledger, Gang(*key, 0)).values():
            if (now_ns - one.assume_time) / _SECOND >= RENEW_SECONDS:
                self._state.reserve(msgspec.structs.replace(one, assume_time=now_ns))

    def _view(self, pending: UnscheduledPod, gang: Gang) -> GroupView:
        pod = pending.pod
        if pod.constraints is None:
            pod = msgspec.structs.replace(pod, constraints=self._state.constraints_of(pod))
        members = self._state.gangs.group(Member(pod, pending.pod_request), gang)
        return group_view(self._state.ledger, gang, members, self._state.nominations.beside(pod))

    def _found_late(
        self, view: GroupView, cycle: GroupCycle, node: NodeName
    ) -> Allocation | Refused:
        """The place of a bind whose plan was released, replaced, or made by another process."""
        mine, gang = view.members[0], view.gang
        answers = cycle.answers_for(mine.uid, node)
        if answers is None:
            return self._places.unknown(view, cycle, mine, node)
        places = self._places.stand(view, answers)
        if places is None or len(places) < view.needed:
            return GroupRefusal(gang, GroupCause.LOST)
        self._places.keep_only(view, places)
        cycle.answered = places
        return places[mine.uid]
