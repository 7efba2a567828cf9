"""Gangs in the scheduling calls: the nodes a gang's pod may use, and its reserved placement.

The core chooses placements; this module keeps them in the state. Every scheduling call uses it,
because a scheduler may be configured to make any of them alone, and a repeated call changes
nothing. A gang never preempts: evictions for one of its pods do not help the others.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from gpucore.explain.gangs import gang_sentence, group_sentence
from gpucore.explain.sentences import sentence
from gpucore.gang.group_cycles import PodGroupCycles
from gpucore.gang.members import Postponed, planning_pause, resting
from gpucore.gang.placement import place_gang, taken
from gpucore.gang.pod_groups import Key
from gpucore.gang.values import GangPlacement, Shortage
from gpucore.kubescheduler.node_fit import pods_admitted
from gpucore.model import Allocation, AllocationState, Code, FitError, Placement, PodRequest
from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.pending_pods import UnscheduledPod
from gpucore.scheduling.policy import MAX_SCORE
from gpucore.units import NodeName, PodUid, listed
from gpucore.wire.pod.gangs import Gang, gang_of, reservation_uid
from gpucore.wire.pod.spec import Pod
from gpuextender.clock import unix_ns
from gpuextender.scheduling.messages import FilterStatuses
from gpuextender.state import KEPT_FOR_GANGS, State
from gpukube.server.time_slices import TimeSlices

BIND_SECONDS: Final = 0.1
"""For how long a PodGroup waits for the binds of the cycle before."""
LOOK_SECONDS: Final = 0.01
RELEASE_LOOK_SECONDS: Final = 0.25
"""kube-scheduler tries a refused group again after 3 s; other pods get the released GPUs before."""
RESUME_SECONDS: Final = 1.0
"""For how long the first filter call waits; gangs after that wait for their own calls."""
NAMED: Final = 5
"""Nodes that a refusal names; the others are counted."""
_NO_LIMITS: Final[Mapping[NodeName, int]] = MappingProxyType({})


class Gangs:
    """The gangs of one cluster.

    Args:
        rules: how GPUs are chosen.
        clock: Unix nanoseconds.
    """

    def __init__(self, state: State, rules: Rules, *, clock: Callable[[], int] = unix_ns) -> None:
        self._state = state
        self._rules = rules
        self._clock = clock
        self.groups = PodGroupCycles(state, rules, clock)

    def admit(
        self, pending: UnscheduledPod, names: Sequence[NodeName]
    ) -> frozenset[NodeName] | str | None:
        """Nodes of ``names`` that the pod may go to, or why to none; ``None``: it has no gang."""
        gang = self._state.gangs.gang_of(pending.pod)
        if gang is None or pending.pod_request is None or pending.pod_request.fault:
            return None
        standing = self._state.ledger.allocation(pending.pod.uid)
        if standing is not None:
            return frozenset({standing.placement.node}.intersection(names))
        if gang.is_group:
            place = self.groups.admit(pending, gang, names)
            if isinstance(place, Allocation):
                return frozenset({place.placement.node})
            return group_sentence(place)
        reservations = self._reservations(gang, pending, pending.pod_request, names)
        if isinstance(reservations, str):
            return reservations
        return frozenset(one.placement.node for one in reservations).intersection(names)

    async def settled(self, pod: Pod) -> None:
        """Before a PodGroup is judged, wait for the binds of the cycle before, or release it."""
        gang = gang_of(pod)
        if gang is None or not gang.is_group:
            return
        until = asyncio.get_running_loop().time() + BIND_SECONDS
        while before := self.groups.unbound_beside(gang):
            if asyncio.get_running_loop().time() >= until:
                for key in before:
                    self.groups.release(key)
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def resume(self) -> None:
        """Reserve the places that half placed gangs lack: those of another process are lost.

        Of gangs by labels: kube-scheduler places the pods of a PodGroup in one cycle.
        """
        slices, loop = TimeSlices(), asyncio.get_running_loop()
        until, tried = loop.time() + RESUME_SECONDS, set[tuple[Key, PodRequest]]()
        for pod in [one.pod for one in self._state.waiting()]:
            pending, gang = self._state.find(pod.namespace, pod.name), gang_of(pod)
            if pending is None or pending.pod.uid != pod.uid or gang is None or gang.is_group:
                continue
            request = pending.pod_request
            if request is None or request.fault:
                continue
            if pending.pod.nominated or self._state.ledger.allocation(pending.pod.uid) is not None:
                continue  # its place is kept
            if (gang.key, request) not in tried and self._half_placed(gang):
                tried.add((gang.key, request))
                limits = self._admitting(pending.pod, gang)
                self._reservations(gang, pending, request, limits, limits)
            if loop.time() >= until:
                return
            await slices.yield_to_loop()

    def _half_placed(self, gang: Gang) -> bool:
        """Pods of the gang are bound or being bound."""
        held = self._state.ledger.gang(*gang.key)
        return any(one.state not in KEPT_FOR_GANGS for one in held)

    def _admitting(self, pod: Pod, gang: Gang) -> dict[NodeName, int]:
        """Nodes that kube-scheduler's rules admit, as far as known, with the number of pods."""
        found = dict[NodeName, int]()
        for name in self._state.ledger.nodes():
            node = self._state.candidates.node(name)
            if pod.constraints is None or node is None:
                found[name] = gang.size
            elif most := max(0, pods_admitted(node, pod.constraints, gang.size)):
                found[name] = most
        return found

    async def release_ended(self) -> None:
        """Release the plans of cycles that ended without binds, for ever."""
        while True:
            await asyncio.sleep(RELEASE_LOOK_SECONDS)
            self.groups.release_ended()

    def could_go(self, pending: UnscheduledPod, names: Sequence[NodeName]) -> bool:
        """Its gang could be placed now, the pod on one of ``names``; nothing is reserved."""
        gang = self._state.gangs.gang_of(pending.pod)
        if gang is None or pending.pod_request is None or pending.pod_request.fault:
            return False
        standing = self._state.ledger.allocation(pending.pod.uid)
        if standing is not None:
            return standing.placement.node in names
        if gang.is_group:
            return self.groups.could_go(pending, gang, names)
        return not isinstance(self._place_gang(gang, pending, pending.pod_request, names), str)

    def complete(self, pending: UnscheduledPod) -> bool:
        """All pods of its gang exist; a pod without a gang is complete."""
        gang = self._state.gangs.gang_of(pending.pod)
        if gang is not None and gang.is_group:
            return self.groups.complete(pending, gang)
        return gang is None or self._state.members(pending, gang).exist >= gang.size

    def paused(self, pending: UnscheduledPod) -> bool:
        """Its gang gets no new places for a while, because of what its namespace owes."""
        gang, state, now_ns = gang_of(pending.pod), self._state, self._clock()
        if gang is None:
            return False
        held = state.ledger.gang(*gang.key)
        return planning_pause(state.planning_time, gang, held, now_ns) > 0 or (
            self._rest(gang, held, now_ns) > 0
        )

    def filter(
        self, pending: UnscheduledPod, names: Sequence[NodeName]
    ) -> tuple[list[NodeName], FilterStatuses] | None:
        """Node names for the pod, and the refusals of the others; ``None`` for a pod of no gang."""
        admitted = self.admit(pending, names)
        if admitted is None:
            return None
        if isinstance(admitted, str):
            fits, text = [], admitted
        else:
            fits = [name for name in names if name in admitted]
            text = f"the gang of pod {pending.pod.name} has reserved places on {_places(admitted)}"
        failed: dict[str, str] = dict.fromkeys(set(names).difference(fits), text)
        return fits, FilterStatuses(failed, failed, Counter({Code.GANG: len(failed)}))

    def scores(
        self, pending: UnscheduledPod, names: Sequence[NodeName]
    ) -> dict[NodeName, int] | None:
        """The best mark for nodes where a place is kept, 0 for others; ``None``: it has no gang."""
        gang = gang_of(pending.pod)
        if gang is not None and gang.is_group:
            return self._group_scores(pending, gang, names)
        found = self.filter(pending, names)
        if found is None:
            return None
        return dict.fromkeys(names, 0) | dict.fromkeys(found[0], MAX_SCORE)

    def _group_scores(
        self, pending: UnscheduledPod, gang: Gang, names: Sequence[NodeName]
    ) -> dict[NodeName, int]:
        """The best mark for the node of the pod's place; a call of prioritize begins no cycle."""
        uids = (pending.pod.uid, reservation_uid(gang, pending.pod.uid))
        held = filter(None, map(self._state.ledger.allocation, uids))
        return dict.fromkeys(names, 0) | {
            one.placement.node: MAX_SCORE for one in held if one.placement.node in names
        }

    def plan(
        self, pending: UnscheduledPod, limits: Mapping[NodeName, int]
    ) -> tuple[tuple[Allocation, ...], tuple[PodUid, ...]]:
        """Places for the pods of its gang that have none, and reservations to forget first.

        Nothing is reserved. Both are empty where the gang cannot be placed.

        Args:
            limits: nodes that may be used, with the maximum number of pods by kube-scheduler's
                rules.
        """
        gang = gang_of(pending.pod)
        if gang is None or pending.pod_request is None or pending.pod_request.fault:
            return (), ()
        found = self._place_gang(gang, pending, pending.pod_request, limits, limits)
        if isinstance(found, str):
            return (), ()
        counts = Counter(one.placement.node for one in found.reservations)
        if any(count > limits.get(name, 0) for name, count in counts.items()):
            return (), ()
        kept = tuple(
            one.uid for one in found.reservations if self._state.ledger.allocation(one.uid)
        )
        return found.reservations, (*found.given_up, *kept)

    def take(
        self, pending: UnscheduledPod, pod_request: PodRequest, node: NodeName
    ) -> Placement | str | None:
        """The place of a pod on ``node``, no longer kept: assume it at once.

        Answers why it has none there, or ``None`` for a pod of no gang.
        """
        gang = self._state.gangs.gang_of(pending.pod)
        if gang is None or pod_request.fault:
            return None
        nominated = self._state.ledger.nomination(pending.pod.uid)
        if nominated is not None and nominated.placement.node == node:
            placement = self._taken(nominated, pod_request)
            self._state.forget(pending.pod.uid)
            return placement
        if gang.is_group:
            place = self.groups.take(pending, gang, node)
            if isinstance(place, Allocation):
                return self._taken(place, pod_request)
            return group_sentence(place)
        reservations = self._reservations(gang, pending, pod_request, (node,))
        if isinstance(reservations, str):
            return reservations
        return self._taken(
            next(one for one in reservations if one.placement.node == node), pod_request
        )

    def _taken(self, kept: Allocation, pod_request: PodRequest) -> Placement | str:
        """The GPUs of a place that is kept, which is given back."""
        placement = taken(self._state.ledger, kept, pod_request, self._rules)
        if isinstance(placement, FitError):
            return sentence(placement)
        self._state.forget(kept.uid)
        return placement

    def _reservations(
        self,
        gang: Gang,
        pending: UnscheduledPod,
        pod_request: PodRequest,
        names: Collection[NodeName],
        limits: Mapping[NodeName, int] = _NO_LIMITS,
    ) -> tuple[Allocation, ...] | str:
        """The places of the pods of the gang that have none, kept from now on; or why none."""
        found = self._place_gang(gang, pending, pod_request, names, limits)
        if isinstance(found, str):
            return found
        for uid in found.given_up:
            self._state.forget(uid)
        for allocation in found.reservations:
            self._state.reserve(allocation)
        return found.reservations

    def _place_gang(
        self,
        gang: Gang,
        pending: UnscheduledPod,
        pod_request: PodRequest,
        names: Collection[NodeName],
        limits: Mapping[NodeName, int] = _NO_LIMITS,
    ) -> GangPlacement | str:
        """The places that the gang would get, or why it gets none."""
        ledger, now_ns = self._state.ledger, self._clock()
        held = ledger.gang(gang.namespace, gang.name)
        pause = self._rest(gang, held, now_ns)
        if pause:  # before the gang is planned, which may take long
            return gang_sentence(resting(gang, pause))
        members = self._state.members(pending, gang)
        found = place_gang(
            ledger,
            gang,
            pod_request,
            frozenset(names),
            self._rules,
            members=members,
            now_ns=now_ns,
            limits=limits,
            nominated=self._state.nominations.beside(pending.pod),
            pause=planning_pause(self._state.planning_time, gang, held, now_ns),
        )
        if isinstance(found, Postponed):
            return gang_sentence(found)
        fresh = not isinstance(found, Shortage) and any(
            ledger.allocation(allocation.uid) is None for allocation in found.reservations
        )
        if isinstance(found, Shortage) or fresh or found.given_up:  # places that stand are no plan
            self._state.planning_time.charge(gang.namespace, now_ns, self._clock())
        if isinstance(found, Shortage):
            return gang_sentence(found)
        pause = self._state.reservation_time.pause(gang.namespace, now_ns) if fresh else 0.0
        return gang_sentence(resting(gang, pause)) if pause else found

    def _rest(self, gang: Gang, held: Collection[Allocation], now_ns: int) -> float:
        """Seconds for which nothing is reserved for a gang that has no reservations."""
        pause = self._state.reservation_time.pause(gang.namespace, now_ns)
        reserved = pause and any(one.state is AllocationState.RESERVED for one in held)
        return 0.0 if reserved else pause


def _places(nodes: Collection[NodeName]) -> str:
    """Nodes in words, the first by name: every node that is refused gets the sentence."""
    return listed(sorted(nodes), NAMED) or "nodes that are not offered"
