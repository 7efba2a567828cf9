"""PodGroups in the scheduling calls: one place for each pod, in all calls of one cycle.

kube-scheduler places a PodGroup in one cycle: it calls filter for pod after pod, and binds only
when enough of them have a node. So the first call plans the whole group, and each pod has a place
of its own from then on: a repeated cycle gets the same answers, and no GPU is given twice. The call
of a pod that may not go to its place exchanges it with one that was not called yet, or plans anew
for all that were not called.

A plan is released when :data:`RELEASE_SECONDS` pass without a call and without a bind, or when
another group is called: kube-scheduler runs one cycle after the other, and starts the binds of a
cycle at its end. A bind that comes later reserves all places of its cycle again, or is refused with
all others. No plan is released that kube-scheduler has accepted, by the status of the PodGroup.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from gpucore.gang.group_plan import (
    GroupMember,
    GroupShortage,
    Kind,
    plan_group,
    reservation,
    reservation_uid,
)
from gpucore.gang.group_view import GroupView, group_view, standing
from gpucore.gang.members import MOST_RESERVED, incomplete, resting, too_many
from gpucore.gang.spread import Rules
from gpucore.model import Allocation
from gpucore.scheduling.pending_pods import UnscheduledPod
from gpucore.units import NodeName, PodUid
from gpucore.wire.pod.gangs import Gang
from gpuextender.state import State

RELEASE_SECONDS: Final = 2.0
"""kube-scheduler calls filter for the next pod of a group, or binds, within milliseconds."""
BIND_SECONDS: Final = 0.1
"""For how long the next group waits for the binds of the cycle before."""
LOOK_SECONDS: Final = 0.01
REMEMBER_SECONDS: Final = 120.0
"""For how long a late bind finds the places of its cycle."""
SIMULATIONS: Final = 8
"""Earlier answers that are remembered: kube-scheduler may try several sets of nodes in a cycle."""
_SECOND: Final = 1_000_000_000

Places = Mapping[PodUid, Allocation]


class GroupCycle:
    """What was answered to the pods of one group.

    Attributes:
        answered: the places that the current cycle was given.
        earlier: those of cycles before, and of other sets of nodes.
        nodes: what was offered to each kind of pods.
        shortage: why the whole group is refused, and in which state of the cluster.
        binding: a bind has come, so the answers hold until the pods are bound.
        scheduled: kube-scheduler had placed the group before this cycle.
        called_ns: when the last call came.
    """

    def __init__(self, *, scheduled: bool) -> None:
        self.scheduled = scheduled
        self.answered: dict[PodUid, Allocation] = {}
        self.earlier: deque[Places] = deque(maxlen=SIMULATIONS)
        self.nodes: dict[Kind, Collection[NodeName]] = {}
        self.shortage: tuple[str, int] = ("", -1)
        self.refused: set[PodUid] = set()
        self.binding = False
        self.called_ns = 0

    def called(
        self, uid: PodUid, waiting: Collection[PodUid], now_ns: int, *, scheduled: bool
    ) -> None:
        """Filter is called for a pod; a second call for it begins another cycle."""
        self.called_ns = now_ns
        self.scheduled = self.scheduled or (scheduled and not self.answered)
        self.answered = {key: one for key, one in self.answered.items() if key in waiting}
        self.binding = self.binding and bool(self.answered)
        if uid in self.refused or (uid in self.answered and not self.binding):
            self.refused.clear()
            self.shortage = ("", -1)
        if uid in self.answered and not self.binding:
            self.earlier.append(self.answered)
            self.answered = {}
            self.nodes.clear()

    def answers_for(self, uid: PodUid, node: NodeName) -> Places | None:
        """The newest answers in which the pod was sent to ``node``."""
        found = (self.answered, *reversed(self.earlier))
        return next((one for one in found if uid in one and one[uid].placement.node == node), None)


class PodGroupCycles:
    """The cycles of all groups.

    Args:
        clock: Unix nanoseconds.
    """

    def __init__(self, state: State, rules: Rules, clock: Callable[[], int]) -> None:
        self._state, self._rules, self._clock = state, rules, clock
        self._cycles: dict[tuple[str, str], GroupCycle] = {}
        self._changes = 0
        self._planned = asyncio.Event()

    def changed(self) -> None:
        """The cluster changed: a group that had too little room may have enough."""
        self._changes += 1

    def admit(
        self, pending: UnscheduledPod, gang: Gang, names: Collection[NodeName]
    ) -> Allocation | str:
        """The place of a pod on one of ``names``, reserved from now on; or why it has none."""
        view = self._view(pending, gang)
        cycle, scheduled = self._cycle(gang.key), self._state.pod_groups.scheduled(gang.key)
        waiting = {member.uid for member in view.members}
        cycle.called(pending.pod.uid, waiting, self._clock(), scheduled=scheduled)
        if view.exist < gang.size:
            return incomplete(gang, view.exist).sentence
        text, change = cycle.shortage
        if text and change == self._changes:
            cycle.refused.add(pending.pod.uid)
            return text
        mine = view.members[0]
        cycle.nodes[mine.kind] = frozenset(names)
        found = self._place(view, cycle, mine, cycle.nodes[mine.kind])
        if isinstance(found, str):
            cycle.refused.add(mine.uid)
            if not cycle.answered:
                cycle.shortage = (found, self._changes)
        else:
            cycle.answered[mine.uid] = found
            self._planned.set()
        return found

    def could_go(self, pending: UnscheduledPod, gang: Gang, names: Collection[NodeName]) -> bool:
        """Enough pods of the group could be placed now; nothing is reserved."""
        view = self._view(pending, gang)
        if view.exist < gang.size or not self.may_reserve(view):
            return False
        found = self._plan(view, {}, view.members, lambda _: names)
        return not isinstance(found, str | GroupShortage)

    def complete(self, pending: UnscheduledPod, gang: Gang) -> bool:
        """As many pods exist as are placed together."""
        return self._view(pending, gang).exist >= gang.size

    def take(self, pending: UnscheduledPod, gang: Gang, node: NodeName) -> Allocation | str:
        """The place of a pod that is being bound to ``node``; or why it has none."""
        view = self._view(pending, gang)
        cycle = self._cycle(gang.key)
        cycle.called_ns = self._clock()
        own = view.reserved.get(pending.pod.uid)
        if own is None or own.placement.node != node:
            found = self._found_late(view, cycle, node)
            if isinstance(found, str):
                return found
            own = found
        cycle.binding = True
        self._planned.set()
        return own

    # Release.

    async def settled(self, gang: Gang) -> None:
        """Wait for the binds of the cycle before that of ``gang``, and release it without any."""
        root = self._state.pod_groups.root(gang.key)
        until = asyncio.get_running_loop().time() + BIND_SECONDS
        while before := self._unbound_beside(root):
            if asyncio.get_running_loop().time() >= until:
                for key in before:
                    self._release(key, self._cycles[key])
                return
            await asyncio.sleep(LOOK_SECONDS)

    def _unbound_beside(self, root: tuple[str, str]) -> list[tuple[str, str]]:
        """Other groups with a plan of which no pod was bound."""
        return [
            key
            for key, cycle in self._cycles.items()
            if cycle.answered
            and not self._accepted(key, cycle)
            and self._state.pod_groups.root(key) != root
            and self._state.reservations(Gang(*key, 0))
        ]

    def _accepted(self, key: tuple[str, str], cycle: GroupCycle) -> bool:
        """kube-scheduler binds the pods of the cycle."""
        if not cycle.scheduled and self._state.pod_groups.scheduled(key):
            cycle.scheduled, cycle.binding = True, bool(cycle.answered)
        return cycle.binding

    def _cycle(self, key: tuple[str, str]) -> GroupCycle:
        if key not in self._cycles:
            self._cycles[key] = GroupCycle(scheduled=self._state.pod_groups.scheduled(key))
        return self._cycles[key]

    async def run(self) -> None:
        """Release the plans of cycles that ended without binds, for ever."""
        while True:
            await self._planned.wait()
            await asyncio.sleep(self.release_ended())

    def release_ended(self) -> float:
        """Release what no call and no bind has touched for a while; seconds until the next look."""
        now_ns = self._clock()
        for key, cycle in list(self._cycles.items()):
            idle = (now_ns - cycle.called_ns) / _SECOND
            if idle >= RELEASE_SECONDS:
                self._release(key, cycle)
            if idle >= REMEMBER_SECONDS:
                del self._cycles[key]
        if not self._cycles:
            self._planned.clear()
        return RELEASE_SECONDS / 4

    def _release(self, key: tuple[str, str], cycle: GroupCycle) -> None:
        """A pod of a cycle that is being bound keeps its place until the reservation expires."""
        gang = Gang(*key, 0)
        accepted = self._accepted(key, cycle)
        held = {reservation_uid(gang, uid) for uid in cycle.answered} if accepted else set()
        for one in self._state.reservations(gang):
            if one.uid not in held:
                self._state.release(one.uid)

    # Places.

    def _view(self, pending: UnscheduledPod, gang: Gang) -> GroupView:
        return group_view(self._state.ledger, gang, self._state.group(pending, gang))

    def may_reserve(self, view: GroupView) -> bool:
        """The namespace may have the places that the group needs."""
        return view.needed <= self._room(view)

    def _room(self, view: GroupView) -> int:
        """How many reserved places the group may have."""
        namespace = view.gang.namespace
        others = self._state.ledger.reserved(namespace) - len(view.reserved)
        return MOST_RESERVED - others

    def _place(
        self, view: GroupView, cycle: GroupCycle, mine: GroupMember, names: Collection[NodeName]
    ) -> Allocation | str:
        """The place of ``mine``: its own, that of another pod, or one of a new plan."""
        own = view.reserved.get(mine.uid)
        if own is not None and own.placement.node in names and self._stand(view, {mine.uid: own}):
            return own
        exchanged = self._exchange(view, cycle, mine, names)
        if exchanged is not None:
            return exchanged
        alone = self._beside(view, mine, names)
        return alone or self._anew(view, cycle, mine)

    def _exchange(
        self, view: GroupView, cycle: GroupCycle, mine: GroupMember, names: Collection[NodeName]
    ) -> Allocation | None:
        """The place of an equal pod that was not called yet, which gets the place of ``mine``."""
        for other in view.members[1:]:
            theirs = view.reserved.get(other.uid)
            if other.like != mine.like or theirs is None or other.uid in cycle.answered:
                continue
            if theirs.placement.node in names and self._stand(view, {other.uid: theirs}):
                own = view.reserved.get(mine.uid)
                self._state.forget(theirs.uid)
                if own is not None:
                    self._reserve(view, other, own)
                return self._reserve(view, mine, theirs)
        return None

    def _beside(
        self, view: GroupView, mine: GroupMember, names: Collection[NodeName]
    ) -> Allocation | None:
        """A place beside all others that are reserved for the group."""
        kept = {uid: one for uid, one in view.reserved.items() if uid != mine.uid}
        if not kept or len(kept) >= self._room(view):
            return None
        found = self._plan(view, kept, [mine], lambda _: names)
        if isinstance(found, str | GroupShortage) or mine.uid not in found:
            return None
        self._state.reserve(found[mine.uid])
        return found[mine.uid]

    def _anew(self, view: GroupView, cycle: GroupCycle, mine: GroupMember) -> Allocation | str:
        """A new plan for all pods that were not called yet."""
        kept = {uid: one for uid, one in view.reserved.items() if uid in cycle.answered}
        kept.pop(mine.uid, None)
        rest = [member for member in view.members if member.uid not in kept]
        every = self._state.ledger.nodes().keys()
        found = self._plan(view, kept, rest, lambda kind: cycle.nodes.get(kind, every))
        if isinstance(found, str | GroupShortage):
            if not kept:
                self._keep_only(view, {})
            return found if isinstance(found, str) else found.sentence
        self._keep_only(view, kept | found)
        if mine.uid in found:
            return found[mine.uid]
        return f"{view.gang.name} has GPUs for {len(kept) + len(found)} of its pending pods"

    def _plan(
        self,
        view: GroupView,
        kept: Places,
        members: Collection[GroupMember],
        nodes: Callable[[Kind], Collection[NodeName]],
    ) -> dict[PodUid, Allocation] | GroupShortage | str:
        room, gang, now_ns = self._room(view), view.gang, self._clock()
        if view.needed > room or len(kept) >= room:
            return too_many(gang).sentence
        if not view.reserved:
            pause = self._state.reservation_time.pause(gang.namespace, now_ns)
            if pause:
                return resting(gang, pause).sentence
        since = min((one.assume_time for one in view.reserved.values()), default=now_ns)
        return plan_group(
            self._state.ledger,
            gang,
            list(members)[: room - len(kept)],
            self._rules,
            nodes=nodes,
            kept=kept,
            needed=view.needed,
            now_ns=since,
        )

    def _found_late(self, view: GroupView, cycle: GroupCycle, node: NodeName) -> Allocation | str:
        """The place of a bind whose plan was released, replaced, or made by another process."""
        mine, gang = view.members[0], view.gang
        answers = cycle.answers_for(mine.uid, node)
        if answers is None:
            return self._unknown(view, cycle, mine, node)
        places = self._stand(view, answers)
        if places is None or len(places) < view.needed:
            return f"{gang.name} has lost its GPUs to other pods since filter was called"
        self._keep_only(view, places)
        cycle.answered = places
        return places[mine.uid]

    def _unknown(
        self, view: GroupView, cycle: GroupCycle, mine: GroupMember, node: NodeName
    ) -> Allocation | str:
        """The same where nobody remembers the cycle: this pod on ``node``, the others anywhere."""
        kept = {uid: one for uid, one in view.reserved.items() if uid != mine.uid}
        alone = msgspec.structs.replace(view, needed=1)
        first = self._plan(alone, kept, [mine], lambda _: {node})
        if isinstance(first, str | GroupShortage):
            return first if isinstance(first, str) else first.sentence
        rest = [member for member in view.members if member.uid not in kept | first]
        every = self._state.ledger.nodes().keys()
        others = self._plan(view, kept | first, rest, lambda _: every)
        if isinstance(others, str | GroupShortage) or mine.uid not in first:
            return f"{view.gang.name} has no place for the pod on {node}"
        self._keep_only(view, kept | first | others)
        cycle.answered[mine.uid] = first[mine.uid]
        return first[mine.uid]

    def _stand(self, view: GroupView, places: Places) -> dict[PodUid, Allocation] | None:
        """``places`` as they can be reserved now; ``None`` where not all can."""
        return standing(self._state.ledger, view, places)

    def _keep_only(self, view: GroupView, places: Places) -> None:
        """Reserve these places for the group and no others."""
        for uid, one in view.reserved.items():
            if places.get(uid) != one:
                self._state.forget(one.uid)
        for one in places.values():
            self._state.reserve(one)

    def _reserve(self, view: GroupView, member: GroupMember, place: Allocation) -> Allocation:
        found = reservation(
            view.gang, member, place.placement, self._state.ledger, place.assume_time
        )
        self._state.reserve(found)
        return found
