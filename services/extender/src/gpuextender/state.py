"""What is known of the cluster: informers keep it current, and every request reads it.

The API server's pods and nodes are the only truth; nothing here outlives the process but the
history of the mix (:mod:`gpuextender.mixhistory`). Everything happens on one event loop, so a
request sees one state from start to end and there is no lock. Nothing else changes the ledger: the
event handler is called for every changed node, and the cache drops the results of that node.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from time import monotonic
from typing import Final

from gpucore.accounting.ledger import Ledger
from gpucore.gang.gang_pods import GangPods
from gpucore.gang.members import (
    LIMIT_SECONDS,
    PLANNING_SECONDS,
    Member,
    Members,
    NamespaceTime,
)
from gpucore.gang.reservations import reservation_of, vanished_gangs
from gpucore.kubescheduler.candidate_nodes import CandidateNodes
from gpucore.model import Allocation, AllocationState, Placement, PodRequest
from gpucore.model.constraints import PodConstraints
from gpucore.scheduling.host_rooms import arrival_of, room_of
from gpucore.scheduling.pending_pods import Nominations, PendingPods, UnscheduledPod
from gpucore.scheduling.preemption import Victim
from gpucore.units import NodeName, PodUid
from gpucore.wire.names import Names
from gpucore.wire.node.inventories import unhealthy_indexes
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.gangs import Gang, gang_of
from gpucore.wire.pod.spec import Pod, created, started
from gpucore.wire.whole_requests import pod_request_of
from gpucore.workload.history import LearnedMix
from gpuextender.clock import unix_ns

_creation: Final = attrgetter("creation")
_PASSING: Final = (AllocationState.ASSUMED, AllocationState.RESERVED, AllocationState.NOMINATED)
KEPT_FOR_GANGS: Final = frozenset({AllocationState.RESERVED, AllocationState.NOMINATED})


class State:
    """The ledger, and the pods that wait for a node.

    Args:
        names: resource domain and annotation prefix.
        reservation_limit: seconds for which incomplete gangs of a namespace may reserve GPUs.
        clock: Unix nanoseconds.

    Attributes:
        reservation_time: for how long incomplete gangs reserved GPUs, by namespace.
        planning_time: for how long gangs were planned, by namespace.
        nominations: waiting pods for which others are evicted, by node.
        gangs: the pods of each gang, and the PodGroups of Kubernetes.
        candidates: the nodes as kube-scheduler's filters see them.
        filter_called: called with each pod of a scheduler's request.
        filtered: when a scheduler last sent a pod, in seconds of the monotonic clock.
        mix: the pods that usually come, by which the fragmentation policy compares nodes.
        host_changed: called with each node whose CPU, memory or other input of kube-scheduler's
            filters may have changed.
    """

    def __init__(
        self,
        names: Names,
        *,
        reservation_limit: float = LIMIT_SECONDS,
        clock: Callable[[], int] = unix_ns,
    ) -> None:
        self.names = names
        self.ledger = Ledger(names)
        self.reservation_time = NamespaceTime(reservation_limit)
        self.planning_time = NamespaceTime(PLANNING_SECONDS)
        self._clock = clock
        self.gangs = GangPods(names, lambda uid: self.ledger.allocation(uid) is not None)
        self._unreported: dict[NodeName, None] = {}
        self._node_changed: Callable[[NodeName], object] = self._unreported.setdefault
        self._member_added: Callable[[], object] = lambda: None
        self.nominations = Nominations()
        self.candidates = CandidateNodes(names)
        self.filter_called: Callable[[Pod], object] = lambda _: None
        self.filtered = 0.0
        self.mix = LearnedMix()
        self.host_changed: Callable[[NodeName], object] = lambda _: None
        self.candidates.on_change = self._on_host
        self._pending = PendingPods()
        self._priorities: dict[PodUid, int] = {}
        self._starts: dict[PodUid, float] = {}
        self._terminating = set[PodUid]()
        self._passing: dict[PodUid, NodeName] = {}  # what may expire; cleared of the rest then

    def add_event_handler(
        self,
        node_changed: Callable[[NodeName], object],
        member_added: Callable[[], object] = lambda: None,
    ) -> None:
        """Call ``node_changed`` with the name of every node whose ledger entry may have changed.

        Once for each that changed so far: while the cluster is read, a node changes with every pod.

        Args:
            member_added: called when the watch brings a pod that is new to its gang.
        """
        self._node_changed, self._member_added = node_changed, member_added
        self.gangs.groups.resized = member_added
        for name in self._unreported:
            node_changed(name)
        self._unreported.clear()

    # Pods that are not bound.

    def pending_pod(self, namespace: str, name: str, uid: PodUid) -> UnscheduledPod | None:
        """The pod with this very UID: as the watch has it, else as a filter last saw it."""
        return self._pending.get(namespace, name, uid)

    def find(self, namespace: str, name: str) -> UnscheduledPod | None:
        """The waiting pod of this name."""
        return self._pending.find(namespace, name)

    def waiting(self) -> Iterable[UnscheduledPod]:
        """All pods that request something of ours and that a scheduler may place."""
        return (pending for pending in self._pending.waiting() if not pending.pod.gated)

    def pending(self) -> int:
        """Number of pods that request something of ours and are not bound."""
        return len(self._pending)

    def queued(self, schedulers: Iterable[str]) -> int:
        """Number of these that wait for their first try by one of these schedulers."""
        return self._pending.queued(schedulers)

    def shown(self) -> int:
        """Number of pods that request something of ours and that came without a node so far."""
        return self._pending.shown

    def waiting_requests(self) -> Iterable[PodRequest]:
        """Their requests."""
        return (
            pending.pod_request for pending in self.waiting() if pending.pod_request is not None
        )

    def members(self, pending: UnscheduledPod, gang: Gang) -> Members:
        """The pods of a gang that exist, for one of them that has no place."""
        return self.gangs.members(Member(pending.pod, pending.pod_request), gang)

    def victim(self, uid: PodUid) -> Victim:
        """A bound pod as one to evict: its priority, and its start where it holds GPUs."""
        return Victim(uid, self._priorities.get(uid, 0), self._starts.get(uid, 0.0))

    def terminates(self, uid: PodUid) -> bool:
        """The pod is being deleted."""
        return uid in self._terminating

    def nominated_below(self, priority: int) -> dict[NodeName, list[Victim]]:
        """Pods of lower priority for whose nomination something is reserved, by node."""
        found: dict[NodeName, list[Victim]] = {}
        for uid in self.ledger.nominations():
            one = self.ledger.nomination(uid)
            pending = self.pending_pod(one.namespace, one.name, uid) if one else None
            if one is not None and pending is not None and pending.pod.priority < priority:
                lower = found.setdefault(one.placement.node, [])
                lower.append(Victim(uid, pending.pod.priority))
        return found

    def saw(self, pod: Pod) -> UnscheduledPod:
        """Store a pod of a scheduler's request: its bind may arrive before the watch event."""
        pending = UnscheduledPod(pod, pod_request_of(pod, self.names))
        self.filtered = monotonic()
        self.filter_called(pod)
        self._pending.saw(pending)
        return pending

    def called_within(self, seconds: float) -> bool:
        """Whether a scheduler sent a pod in this time."""
        return bool(self.filtered) and monotonic() - self.filtered < seconds

    # Every change of the ledger.

    def assume(self, pod: Pod, placement: Placement, *, now_ns: int) -> Allocation:
        """Reserve; the allocation that stands already wins."""
        allocation = self.ledger.assume(pod, placement, now_ns=now_ns)
        self._passing[allocation.uid] = allocation.placement.node
        self._reserve_requests(pod, allocation)
        self._node_changed(allocation.placement.node)
        return allocation

    def nominate(self, pod: Pod, placement: Placement, *, now_ns: int) -> Allocation:
        """Reserve for a pod that is nominated; the allocation that stands already wins."""
        allocation = self.ledger.nominate(pod, placement, now_ns=now_ns)
        self._passing[allocation.uid] = allocation.placement.node
        self._reserve_requests(pod, allocation)
        self._freed(self.nominations.drop(pod.uid))
        self._node_changed(allocation.placement.node)
        return allocation

    def reserve(self, allocation: Allocation, pod: Pod | None = None) -> None:
        """Keep a place for a pod of a gang that is to come, or for the claims of ``pod``."""
        self._passing[allocation.uid] = allocation.placement.node
        self._around(allocation.uid, lambda: self.ledger.reserve(allocation))
        if pod is not None:
            self._reserve_requests(pod, allocation)

    def release(self, uid: PodUid) -> None:
        """A place that was kept for a pod of a gang was kept in vain."""
        self._charge(self.ledger.allocation(uid), self._clock())
        self.forget(uid)

    def forget(self, uid: PodUid) -> None:
        """Give back what was assumed or reserved; a gang keeps the place of a pod that waits."""
        one = self.ledger.allocation(uid)
        self._around(uid, lambda: self.ledger.forget(uid))
        if one is None or not one.gang or one.state is not AllocationState.ASSUMED:
            return
        if self._pending.get(one.namespace, one.name, uid) is not None:
            self.reserve(reservation_of(one))

    def forget_nomination(self, uid: PodUid) -> None:
        """Give back what is reserved for a nominated pod, unless it is being bound.

        Where this process had not written its nomination yet, that of another component counts.
        """
        allocation = self.ledger.nomination(uid)
        if allocation is None:
            return
        written = self.ledger.nominations()[uid]
        self.release(uid)
        known = self.find(allocation.namespace, allocation.name)
        if known is not None and known.pod.uid == uid and not written:
            self._note(known.pod)

    def expire(self, *, now_ns: int, ttl_ns: int) -> list[PodUid]:
        """Give back what nothing confirmed for ``ttl_ns``."""
        held = {uid: self.ledger.allocation(uid) for uid in self._passing}
        late = self.ledger.expire(now_ns, ttl_ns)
        for uid in late:
            self._charge(held[uid], now_ns)
            self.candidates.release(uid)
            self._node_changed(self._passing.pop(uid))
        for uid in [uid for uid in self._passing if not self._passes(uid)]:
            del self._passing[uid]
        return late

    def pod_changed(self, pod: Pod) -> None:
        """Enter a pod, from the watch or from a read of this process."""
        self.candidates.pod_changed(pod)
        self._around(pod.uid, lambda: self.ledger.pod_changed(pod))
        self._note(pod)
        self._count(pod)
        self._trim(gang_of(pod))

    def pod_gone(self, pod: Pod) -> None:
        """A pod object was deleted."""
        self.candidates.pod_gone(pod.uid)
        self._around(pod.uid, lambda: self.ledger.pod_gone(pod.uid))
        self.gangs.drop(pod.uid)
        self._freed(self.nominations.drop(pod.uid))
        self._pending.gone(pod)
        self._priorities.pop(pod.uid, None)
        self._starts.pop(pod.uid, None)
        self._terminating.discard(pod.uid)
        self._trim(gang_of(pod))

    def relist_pods(self, pods: Iterable[Pod]) -> None:
        """These are all pods."""
        listed = list(pods)
        before = dict(self.ledger.allocations())
        self.ledger.relist_pods(listed)
        self.candidates.relist_pods(listed)
        for uid in before.keys() - self.ledger.allocations().keys():
            self.candidates.release(uid)
        self._touch_changed(before)
        self._pending.clear()
        self._priorities.clear()
        self._starts.clear()
        self._terminating.clear()
        self.gangs.clear()
        self.nominations.clear()
        for pod in listed:
            self._note(pod)
        for pod in sorted(listed, key=_creation, reverse=True):
            self._count(pod)  # once the history is full, older pods cost nothing
        gangs = {gang for pod in listed if (gang := gang_of(pod))}
        for gang in gangs | vanished_gangs(self.ledger.allocations().values(), gangs):
            self._trim(gang)

    def relist_nodes(self, nodes: Iterable[Node]) -> None:
        """These are all nodes."""
        listed = {node.name: node for node in nodes}
        for name in self.ledger.nodes().keys() - listed.keys():
            self.node_gone(name)
        for node in listed.values():
            self.node_changed(node)

    def node_changed(self, node: Node) -> None:
        """Enter a node."""
        node_info = self.ledger.node(node.name)
        shape = node_info.shape if node_info else None
        self.ledger.node_changed(node)
        self.candidates.node_changed(node)
        node_info = self.ledger.node(node.name)
        if node_info is None or node_info.shape is not shape:
            self.use_mix(node.name)
            self._node_changed(node.name)

    def node_gone(self, name: NodeName) -> None:
        """A node was deleted."""
        self.ledger.node_gone(name)
        self.candidates.node_gone(name)
        self._node_changed(name)

    def unhealthy_changed(self, node: NodeName, text: str) -> None:
        """The legacy ConfigMap of ``node`` lists these GPUs; empty text lists none."""
        self.ledger.unhealthy_changed(node, unhealthy_indexes(text))
        self._node_changed(node)

    def touched(self, node: NodeName) -> None:
        """What claims hold on a node, or what it offers them, may have changed."""
        self._node_changed(node)

    def use_mix(self, name: NodeName) -> None:
        """Let the node compare placements by the mix in use and what it has left."""
        node_info = self.ledger.node(name)
        node = None if self.mix.mix is None else self.candidates.node(name)
        if node_info is not None and node is not None and self.mix.mix is not None:
            node_info.host = room_of(node_info, node, self.mix.mix)

    def _on_host(self, name: NodeName) -> None:
        self.use_mix(name)
        self.host_changed(name)

    def _count(self, pod: Pod) -> None:
        """Count a pod with GPUs for the mix."""
        time = created(pod)
        if not self.mix.history.misses(pod.uid, time):
            return
        request = pod_request_of(pod, self.names)
        if request is not None and not request.fault:
            arrival = arrival_of(pod.namespace, request, pod.constraints, time)
            self.mix.history.note(pod.uid, arrival)

    def _passes(self, uid: PodUid) -> bool:
        """Its allocation still ends by itself."""
        allocation = self.ledger.allocation(uid)
        return allocation is not None and allocation.state in _PASSING

    def _reserve_requests(self, pod: Pod, allocation: Allocation) -> None:
        """Count what the pod requests besides GPUs on the node of its allocation."""
        known = pod.constraints or self.constraints_of(pod)
        if known is not None:
            self.candidates.reserve(pod.uid, allocation.placement.node, known.requests)

    def constraints_of(self, pod: Pod) -> PodConstraints | None:
        """Those that the watch brought: a scheduler's copy of a pod is read without."""
        waiting = self._pending.find(pod.namespace, pod.name)
        return waiting.pod.constraints if waiting and waiting.pod.uid == pod.uid else None

    def _around(self, uid: PodUid, change: Callable[[], object]) -> None:
        """Change the allocation of ``uid``; touch the nodes it leaves and comes to."""
        before = self.ledger.allocation(uid)
        change()
        after = self.ledger.allocation(uid)
        if before is after:
            return
        if after is None:
            self.candidates.release(uid)
        self._touch(before, after)

    def _touch_changed(self, before: Mapping[PodUid, Allocation]) -> None:
        """Touch the nodes whose allocations are not those of ``before``."""
        after = self.ledger.allocations()
        for uid in before.keys() | after.keys():
            old, new = before.get(uid), after.get(uid)
            if old is not new:
                self._touch(old, new)

    def _touch(self, *allocations: Allocation | None) -> None:
        for allocation in filter(None, allocations):
            self._node_changed(allocation.placement.node)

    def _trim(self, gang: Gang | None) -> None:
        """Forget places that are kept for pods of a gang which will not come."""
        if gang is None:
            return
        allocations = self.ledger.gang(gang.namespace, gang.name)
        if not any(allocation.state is AllocationState.RESERVED for allocation in allocations):
            return
        for uid in self.gangs.spare(gang, allocations, self._pending.seen_of(gang)):
            self.release(uid)

    def _charge(self, allocation: Allocation | None, now_ns: int) -> None:
        """A place that was kept for a pod of a gang ends without it."""
        if allocation is not None and allocation.gang and allocation.state in KEPT_FOR_GANGS:
            self.reservation_time.charge(allocation.namespace, allocation.assume_time, now_ns)

    def _freed(self, node: NodeName | None) -> None:
        """The node's capacity is no longer reserved for a nominated pod."""
        if node is not None:
            self._node_changed(node)

    def _note(self, pod: Pod) -> None:
        """Keep the list of waiting pods, and how important those are that have a node."""
        self._rank(pod)
        (self._terminating.add if pod.terminating else self._terminating.discard)(pod.uid)
        joined = self.gangs.note(pod)
        if pod.node or pod.finished or pod.terminating:
            self._pending.placed(pod)
            self._freed(self.nominations.drop(pod.uid))
        elif (pod_request := pod_request_of(pod, self.names)) is not None:
            self._pending.put(UnscheduledPod(pod, pod_request))
            if self.ledger.nomination(pod.uid) is None and not self._has_place(pod):
                self._freed(self.nominations.note(pod, pod_request))
        if joined:
            self._member_added()

    def _rank(self, pod: Pod) -> None:
        """Keep what :meth:`victim` needs; nothing for most pods of priority 0."""
        holds = self.ledger.allocation(pod.uid) is not None
        if pod.priority and (holds or (pod.node and not pod.finished)):
            self._priorities[pod.uid] = pod.priority
        else:
            self._priorities.pop(pod.uid, None)
        if holds:
            self._starts[pod.uid] = started(pod)
        else:
            self._starts.pop(pod.uid, None)

    def _has_place(self, pod: Pod) -> bool:
        """Its gang by labels holds a place on the node that the pod is nominated for.

        kube-scheduler nominates every pod while it binds it, which takes long with volumes. Of a
        PodGroup, whose plan may be released before, the place of each pod is known by its UID.
        """
        gang = gang_of(pod) if pod.nominated else None
        return (
            gang is not None
            and not gang.is_group
            and any(
                one.state is AllocationState.RESERVED and one.placement.node == pod.nominated
                for one in self.ledger.gang(gang.namespace, gang.name)
            )
        )
