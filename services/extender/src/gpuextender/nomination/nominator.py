"""Nominates pending pods: chooses their nodes ahead of kube-scheduler, for the whole cluster.

kube-scheduler evaluates a pod's ``status.nominatedNodeName`` first and, where the pod fits there,
no other node: one filter call with one name, no scoring. So the extender chooses for each pending
pod the best of all nodes that admit it, reserves the place in the ledger, and writes the name.

A write pays only where it comes before the scheduler does. The pods at the head of the scheduler's
queue are therefore left alone; nominated are those behind them, and those that the scheduler
refused by a sample of nodes although another node admits them.

It nominates only for schedulers that called lately. :mod:`gpuextender.nomination.rounds` decides
when a round begins, and that only the extender beside the leading scheduler has rounds.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

import msgspec

from gpucore.kubescheduler.node_fit import pods_admitted
from gpucore.model import FitError
from gpucore.nomination import NominationPauses, QueueOrder, giving_way, left_to_scheduler
from gpucore.scheduling.candidates import PodRequirements
from gpucore.scheduling.cluster_policy import SchedulerProfiles
from gpucore.scheduling.filter import filter_nodes
from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.node_ranking import NodeRanking, Rating, rate_node
from gpucore.scheduling.nominated import node_beside, reserved_for_nominated
from gpucore.scheduling.pending_pods import UnscheduledPod
from gpucore.scheduling.policy import place
from gpucore.units import NodeName, PodUid
from gpucore.wire.pod.gangs import Gang, gang_of
from gpucore.wire.pod.spec import Pod
from gpuextender.clock import unix_ns
from gpuextender.nomination.due_pods import DuePods, GangBatches
from gpuextender.nomination.ends import KEPT_BACKLOG_SECONDS, KEPT_SECONDS, NominationEnds
from gpuextender.nomination.writes import NominationWrites
from gpuextender.scheduling.gangs import Gangs
from gpuextender.scheduling.requeue import Requeue
from gpuextender.state import State
from gpukube.server.time_slices import TimeSlices

IDLE_SECONDS: Final = 30.0
"""After this time without a nomination nothing is kept of what nodes answered."""
LOOKED_AT: Final = 64
"""Nodes with enough GPU memory whose other rules are looked at before a preemption."""
MOST_ON_A_NODE: Final = 64
"""kube-scheduler adds all pods nominated to a node before it evaluates the node for one of them."""


class Nominator:
    """Decides, a round at a time.

    Args:
        after: number of pending pods at the head of the queue that are not nominated; ``None``
            nominates refused pods alone.
        limit: maximum number of nominated pods that are not bound.
        profiles: of the one scheduler that has several names.
        clock: Unix nanoseconds.
        now: seconds of a steady clock.

    Attributes:
        woken: set when a round may find something to do.
        ends: how nominations end.
    """

    def __init__(
        self,
        state: State,
        requeue: Requeue,
        writes: NominationWrites,
        gangs: Gangs,
        *,
        rules: Rules,
        after: int | None,
        limit: int,
        profiles: SchedulerProfiles = SchedulerProfiles(),  # noqa: B008 - frozen
        clock: Callable[[], int] = unix_ns,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._state, self._requeue, self._writes = state, requeue, writes
        self._rules, self._after, self._limit = rules, after, limit
        self._clock, self._now = clock, now
        self._ranking = NodeRanking(self._rate)
        self._due = DuePods(
            state,
            refused_pods=requeue.refused_pods,
            is_refused=requeue.is_refused,
            after=after,
            now=now,
            profiles=profiles,
        )
        self._pauses = NominationPauses()
        self.ends = NominationEnds(
            state,
            writes,
            self._pauses,
            kept=KEPT_SECONDS if after is None else KEPT_BACKLOG_SECONDS,
            clock=clock,
            now=now,
        )
        writes.failed = self._failed
        self._batches = GangBatches(state, gangs.plan, self._kind, now)
        self._next = float("inf")
        self.woken = asyncio.Event()
        self._active = 0.0
        self._order = QueueOrder()
        self._nowhere = set[tuple[PodRequirements, int]]()
        self._counts = Counter[NodeName]()

    # What happens, as the rest of the process reports it.

    def scheduler_called(self, pod: Pod) -> None:
        """This replica got the filter call of the pod's scheduler."""
        self._due.called(pod.scheduler_name)
        self._order.scheduler_called(pod.uid, self._state.ledger.nominations())
        self._writes.scheduler_called(pod.uid)
        if self._after is not None:
            self.woken.set()

    def refused(self, pending: UnscheduledPod) -> None:
        """No node that the scheduler offered can take the pod."""
        self._pauses.refused(pending.pod.uid, self._now())
        self.woken.set()

    def _failed(self, uid: PodUid) -> None:
        """The patch of a pod failed."""
        self._pauses.lost(uid, self._now())
        self.woken.set()

    def node_changed(self, name: NodeName) -> None:
        """What the node can take may have changed."""
        self._ranking.node_changed(name)
        self.ends.node_changed(name)
        if self._writes.written or self._state.ledger.nominations():
            self.woken.set()

    def fits_elsewhere(self, pending: UnscheduledPod) -> bool:
        """A node admits the pod, so that the pod is nominated there and needs no eviction.

        It may be one that nominated pods of lower priority give up in the next round. A pod that
        passed filter is not nominated: kube-scheduler itself rejects the nodes that fit.
        """
        kind, uid = self._kind(pending), pending.pod.uid
        if kind is None or not self._pauses.hopeful(uid):
            return False
        if self._after is None and not self._requeue.is_refused(uid):
            return False
        ledger = self._state.ledger
        names, _ = filter_nodes(ledger, kind.pod_request, list(ledger.nodes()))
        fits = any(
            self._rate(name, kind) is not None and not self._kept(name, pending)
            for name in names[:LOOKED_AT]
        ) or bool(self._giving_way(pending, kind)[1])
        if fits:
            self._requeue.spared(uid)
        return fits

    def adopt(self, pending: UnscheduledPod, name: NodeName) -> None:
        """An earlier extender nominated the pod: reserve the place again if the node admits it."""
        if self._writes.stands(pending.pod.uid):
            return  # it is of this one, which gave the place back
        bare = msgspec.structs.replace(pending.pod, nominated=NodeName(""))
        kind = self._kind(UnscheduledPod(bare, pending.pod_request))
        if kind is not None and self._rate(name, kind) is not None:
            self._reserve(pending, kind, name, write=False)
            self._batches.adopted(pending.pod)
        self.ends.adopt(pending.pod, name)
        self.woken.set()

    # One round.

    def due(self) -> bool:
        """Whether a pod awaits a nomination, even if no node fits it."""
        return next(self._due.pods(), None) is not None

    async def round(self) -> float:
        """Nominate the pods that are due; seconds until the next round, infinite for none."""
        self._next = float("inf")
        await self.nominate()
        return self._next

    async def nominate(self) -> int:
        """Nominate the pods that are due; how many were."""
        self._next = min(self._next, self.ends.withdraw(self._batches.failed))
        room = self._order.window(self._limit) - len(self._state.ledger.nominations())
        count, slices = 0, TimeSlices()
        self._nowhere.clear()
        self._counts = Counter(self._state.ledger.nominated_nodes())
        for pending in list(self._due.pods()):
            if count >= room:
                break
            count += await self._nominate(pending, slices)
        self._active = self._now() if count or not self._active else self._active
        if len(self._ranking) and self._now() - self._active > IDLE_SECONDS:
            self._ranking.clear()
        return count

    async def _nominate(self, pending: UnscheduledPod, slices: TimeSlices) -> int:
        kind, gang = self._kind(pending), gang_of(pending.pod)
        if kind is None or not self._worth_a_look(pending, kind, gang):
            return 0
        for _ in self._ranking.refresh(kind, self._state.ledger.nodes):
            await slices.yield_to_loop()
        if not self._still_waits(pending.pod):
            return 0
        if gang is not None:
            return self._nominate_gang(pending, gang, kind)
        name = self._ranking.best(
            kind, lambda name: self._crowded(name) or self._kept(name, pending)
        ) or self._make_way(pending, kind)
        if name is None:
            self._nowhere.add((kind, pending.pod.priority))
            self._requeue.fits_nowhere(pending.pod.uid)
            return 0
        return int(self._reserve(pending, kind, name))

    def _worth_a_look(
        self, pending: UnscheduledPod, kind: PodRequirements, gang: Gang | None
    ) -> bool:
        """The pod has no pause, and its like was not found to fit nowhere.

        A gang is left alone while places that filter reserved serve it.
        """
        if not self._may_be_nominated(pending.pod.uid):
            return False
        if gang is None and (kind, pending.pod.priority) in self._nowhere:
            self._requeue.fits_nowhere(pending.pod.uid)
            return False
        if gang is None:
            return True
        wait = self._batches.wait(gang)
        if wait > 0:
            self._next = min(self._next, wait)
            return False
        refused = self._requeue.is_refused(pending.pod.uid)
        return refused or not self._batches.has_reservations(gang)

    def _nominate_gang(self, pending: UnscheduledPod, gang: Gang, kind: PodRequirements) -> int:
        """Nominate all pods of the gang that need a place, or none; how many were."""
        members = self._batches.members(pending, gang)
        if not all(self._may_be_nominated(one.pod.uid) for one in members):
            return 0
        room = self._limit - len(self._state.ledger.nominations())
        limits = self._limits(gang, kind)
        places = self._batches.reserve(pending, members, limits, room=room, now_ns=self._clock())
        for one, placement in places:
            self._counts[placement.node] += 1
            self._writes.put(one.pod, placement.node)
        return len(places)

    def _limits(self, gang: Gang, kind: PodRequirements) -> dict[NodeName, int]:
        """Nodes for the pods of a gang, those with its reservations included."""
        held = self._state.ledger.gang(gang.namespace, gang.name)
        names = {*self._ranking.admitting(kind), *(one.placement.node for one in held)}
        limits = dict[NodeName, int]()
        for name in sorted(names):
            node = self._state.candidates.node(name)
            if node is not None:
                limits[name] = pods_admitted(node, kind.constraints, gang.size)
        return {name: most for name, most in limits.items() if most > 0}

    def _crowded(self, name: NodeName) -> bool:
        """The node has so many nominated pods that kube-scheduler evaluates it more slowly."""
        return self._counts[name] >= MOST_ON_A_NODE

    def _kept(self, name: NodeName, pending: UnscheduledPod) -> bool:
        """Free GPUs of the node are reserved for pods that another component nominated to it."""
        node_info, request = self._state.ledger.node(name), pending.pod_request
        nominations = self._state.nominations
        if not nominations or request is None:
            return False
        return reserved_for_nominated(nominations, node_info, pending.pod, request) is not None

    def _kind(self, pending: UnscheduledPod) -> PodRequirements | None:
        """What is chosen by; ``None`` for a pod that is left to the scheduler."""
        request, constraints = pending.pod_request, pending.pod.constraints
        if request is None or request.fault or constraints is None:
            return None
        if left_to_scheduler(pending.pod) or pending.pod.nominated:
            return None
        return PodRequirements(request, constraints)

    def _may_be_nominated(self, uid: PodUid) -> bool:
        """No nomination of it stands, and no pause is left; the next round comes when it ends."""
        if self._writes.stands(uid):
            return False
        left = self._pauses.left(uid, self._now())
        if left > 0:
            self._next = min(self._next, left)
        return left <= 0

    def _still_waits(self, pod: Pod) -> bool:
        """Nothing happened to the pod while nodes were rated."""
        known = self._state.find(pod.namespace, pod.name)
        free = self._state.ledger.allocation(pod.uid) is None
        return free and known is not None and known.pod.uid == pod.uid

    def _reserve(
        self, pending: UnscheduledPod, kind: PodRequirements, name: NodeName, *, write: bool = True
    ) -> bool:
        node_info, pod = self._state.ledger.node(name), pending.pod
        if node_info is None:
            return False
        free = node_beside(node_info, self._state.nominations.before(name, pod))
        placement = place(free, kind.pod_request, self._rules.policy, grouping=self._rules.grouping)
        if isinstance(placement, FitError):
            return False
        self._state.nominate(pod, placement, now_ns=self._clock())
        self._counts[name] += 1
        if write:
            self._writes.put(pod, name)
        return True

    def _make_way(self, pending: UnscheduledPod, kind: PodRequirements) -> NodeName | None:
        """A node that nominated pods of lower priority give up for this one."""
        name, losers = self._giving_way(pending, kind)
        for uid in losers:
            self._state.forget_nomination(uid)
        return name if losers else None

    def _giving_way(
        self, pending: UnscheduledPod, kind: PodRequirements
    ) -> tuple[NodeName, Sequence[PodUid]]:
        """The node, and the nominated pods that lose it; none where that is no help."""
        by_node: dict[NodeName, list[tuple[int, Pod, PodRequirements]]] = {}
        for allocation, pod, other in self.ends.nominated():
            if pod.priority < pending.pod.priority:
                by_node.setdefault(allocation, []).append((pod.priority, pod, other))
        for name, found in by_node.items():
            node_info, node = self._state.ledger.node(name), self._state.candidates.node(name)
            if node_info is None or node is None:
                continue
            found.sort(key=lambda one: one[0])
            lower = [(pod.uid, other) for _, pod, other in found]
            held = self._state.nominations.before(name, pending.pod)
            losers = giving_way(node_info, node, kind, lower, held)
            if losers:
                return name, losers
        return NodeName(""), ()

    def _rate(self, name: NodeName, kind: PodRequirements) -> Rating | None:
        node_info, node = self._state.ledger.node(name), self._state.candidates.node(name)
        if node_info is None or node is None:
            return None
        return rate_node(node_info, node, kind, self._rules.policy, self._rules.grouping)
