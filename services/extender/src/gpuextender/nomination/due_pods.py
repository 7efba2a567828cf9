"""Which pending pods are due to be nominated: those that were refused, and those behind others.

A scheduler that called filter here recently leads; replicas beside schedulers that do not lead
receive no calls.

The pods of a gang are nominated together: all that need a place get one in the same step, or none
does. A batch fails when one of its pods loses its nomination or is deleted before it is bound. Then
the nominations of the other pods are given back too, so that half a gang keeps no GPUs.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from gpucore.gang.members import Member
from gpucore.model import Allocation, AllocationState, Placement
from gpucore.scheduling.candidates import PodRequirements
from gpucore.scheduling.cluster_policy import SchedulerProfiles
from gpucore.scheduling.pending_pods import UnscheduledPod
from gpucore.units import NodeName, PodUid
from gpucore.wire.pod.gangs import Gang, gang_of
from gpucore.wire.pod.spec import Pod
from gpuextender.state import State

CALLED_SECONDS: Final = 2.0
"""A backlog is nominated for a scheduler that called filter within this time: it leads."""
REFUSED_SECONDS: Final = 60.0
"""Pods that were refused here are nominated for this time after the last call."""


class DuePods:
    """The pods to nominate, in the scheduler's order.

    Args:
        refused_pods: the pods that no offered node could take, those to be tried first in front.
        is_refused: whether a pod is one of them.
        after: number of pending pods at the head of the queue that are not nominated; ``None``
            nominates refused pods alone.
        now: seconds of a steady clock.
        profiles: of the one scheduler that has several names.
    """

    def __init__(
        self,
        state: State,
        *,
        refused_pods: Callable[[], Sequence[Pod]],
        is_refused: Callable[[PodUid], bool],
        after: int | None,
        now: Callable[[], float],
        profiles: SchedulerProfiles = SchedulerProfiles(),  # noqa: B008 - frozen
    ) -> None:
        self._state = state
        self._refused_pods, self._is_refused = refused_pods, is_refused
        self._after, self._now = after, now
        self._called: dict[str, float] = {}
        self._profiles = profiles.names

    def called(self, scheduler: str) -> None:
        """A scheduler called filter here: by one of its profiles, it calls for all."""
        names = self._profiles if scheduler in self._profiles else (scheduler,)
        self._called |= dict.fromkeys(names, self._now())

    def pods(self) -> Iterator[UnscheduledPod]:
        """Pods to be nominated now, in the scheduler's order."""
        for pod in self._refused_pods():
            pending = self._state.find(pod.namespace, pod.name)
            if pending is None or pending.pod.uid != pod.uid:
                continue
            free = self._state.ledger.allocation(pod.uid) is None
            if free and self._quiet(pod.scheduler_name) < REFUSED_SECONDS:
                yield pending
        if self._after is not None:
            yield from self._backlog(self._after)

    def _backlog(self, after: int) -> Iterator[UnscheduledPod]:
        """Pending pods behind the first ``after`` that are not refused."""
        ledger, ahead = self._state.ledger, 0
        for pending in sorted(self._state.waiting(), key=lambda one: -one.pod.priority):
            uid = pending.pod.uid
            if ledger.allocation(uid) is not None:
                ahead += uid in ledger.nominations()
            elif (
                not self._is_refused(uid)
                and self._quiet(pending.pod.scheduler_name) < CALLED_SECONDS
            ):
                ahead += 1
                if ahead > after:
                    yield pending

    def _quiet(self, scheduler: str) -> float:
        """Seconds since the scheduler called filter here."""
        return self._now() - self._called.get(scheduler, float("-inf"))


AGAIN_SECONDS: Final = 1.0
"""Least time between two plans of one gang that has no places."""
AGAIN_TIMES: Final = 10.0
"""A plan that takes long is made again after so many times its length."""
MOST_REMEMBERED: Final = 1024

Key = tuple[str, str]
PodPlacement = tuple[UnscheduledPod, Placement]


GangPlan = Callable[
    [UnscheduledPod, Mapping[NodeName, int]], tuple[tuple[Allocation, ...], tuple[PodUid, ...]]
]


class GangBatches:
    """Plans gangs, and remembers which pods were nominated together.

    Args:
        plan: places for the pods of a gang that have none, and reservations to forget first.
        kind_of: what a pod is chosen by; ``None`` for a pod that is left to the scheduler.
        now: seconds of a steady clock.
    """

    def __init__(
        self,
        state: State,
        plan: GangPlan,
        kind_of: Callable[[UnscheduledPod], PodRequirements | None],
        now: Callable[[], float],
    ) -> None:
        self._state, self._plan, self._kind_of, self._now = state, plan, kind_of, now
        self._open: dict[Key, set[PodUid]] = {}
        self._not_before: dict[Key, float] = {}

    def wait(self, gang: Gang) -> float:
        """Seconds until a plan for the gang is worth the time; zero or less when it is."""
        return self._not_before.get((gang.namespace, gang.name), 0.0) - self._now()

    def has_reservations(self, gang: Gang) -> bool:
        """Places are kept for pods of the gang: its scheduler is placing them."""
        held = self._state.ledger.gang(gang.namespace, gang.name)
        return any(one.state is AllocationState.RESERVED for one in held)

    def members(self, pending: UnscheduledPod, gang: Gang) -> list[UnscheduledPod]:
        """The pods to be nominated with this one, itself included; empty if any may not be."""
        kind = self._kind_of(pending)
        alike = self._state.gangs.without_place(Member(pending.pod, pending.pod_request), gang)
        found = [UnscheduledPod(one.pod, one.pod_request) for one in alike]
        if kind is None or any(self._kind_of(one) != kind for one in found):
            return []
        return sorted(found, key=lambda one: (-one.pod.priority, one.pod.creation, one.pod.name))

    def reserve(
        self,
        pending: UnscheduledPod,
        members: Collection[UnscheduledPod],
        limits: Mapping[NodeName, int],
        *,
        room: int,
        now_ns: int,
    ) -> list[PodPlacement]:
        """Reserve a place for every pod of the gang that needs one; empty where one has none.

        Args:
            limits: nodes that may be used, with the maximum number of pods for each.
            room: maximum number of pods to nominate.
        """
        gang = gang_of(pending.pod)
        if gang is None:
            return []
        begin = self._now()
        reservations, given_up = self._plan(pending, limits)
        places = self._assigned(gang, members, reservations)
        if not 0 < len(places) <= room:
            took = self._now() - begin
            self._rest(gang, max(AGAIN_SECONDS, AGAIN_TIMES * took))
            return []
        for uid in given_up:
            self._state.forget(uid)
        for one, placement in places:
            self._state.nominate(one.pod, placement, now_ns=now_ns)
        opened = self._open.setdefault((gang.namespace, gang.name), set())
        opened.update(one.pod.uid for one, _ in places)
        return places

    def adopted(self, pod: Pod) -> None:
        """The pod is nominated already, with the others of its gang that are."""
        gang = gang_of(pod)
        if gang is not None and self._state.ledger.nomination(pod.uid) is not None:
            self._open.setdefault((gang.namespace, gang.name), set()).add(pod.uid)

    def failed(self) -> list[PodUid]:
        """Nominated pods whose gang has lost another pod; each batch is reported once."""
        found = list[PodUid]()
        for key, uids in list(self._open.items()):
            nominated = {uid for uid in uids if self._state.ledger.nomination(uid) is not None}
            lost = any(self._state.ledger.allocation(uid) is None for uid in uids)
            if lost:
                found += sorted(nominated)
            self._open[key] = nominated
            if lost or not nominated:
                del self._open[key]
        return found

    def _assigned(
        self, gang: Gang, members: Collection[UnscheduledPod], reservations: Collection[Allocation]
    ) -> list[PodPlacement]:
        """A place for each pod that needs one: pods beyond the size of the gang need none."""
        held = self._state.ledger.gang(gang.namespace, gang.name)
        placed = sum(one.state is not AllocationState.RESERVED for one in held)
        needed = min(len(members), max(gang.size - placed, 1))
        if len(reservations) < needed:
            return []
        chosen = list(members)[:needed]
        return [
            (one, reservation.placement)
            for one, reservation in zip(chosen, reservations, strict=False)
        ]

    def _rest(self, gang: Gang, seconds: float) -> None:
        if len(self._not_before) >= MOST_REMEMBERED:
            self._not_before.clear()
        self._not_before[gang.namespace, gang.name] = self._now() + seconds
