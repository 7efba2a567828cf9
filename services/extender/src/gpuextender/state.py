"""What is known of the cluster, kept current by reflectors and read by every verb.

The API server's pods and nodes are the only truth; nothing here outlives the process. Everything
happens on one event loop, so a verb sees one state from start to end and there is no lock. Nothing
else changes the ledger: that is how :mod:`gpuextender.answers` knows which answers are old.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from time import time_ns
from typing import Final

import msgspec

from gpucore.gang import seat_of, spare
from gpucore.gangmembers import LIMIT_SECONDS, Member, Members, ReservationTime
from gpucore.ledger import Ledger
from gpucore.model import Claim, ClaimState, Demand, Placement
from gpucore.units import NodeName, PodUid
from gpucore.wire.gangs import Gang, gang_of
from gpucore.wire.names import Names
from gpucore.wire.nodes import Node, unhealthy_indexes
from gpucore.wire.pods import Pod, demand_of
from gpuextender.gangpods import GangPods
from gpuextender.nominations import Nominations

SEEN_LIMIT: Final = 4096


class Asking(msgspec.Struct, frozen=True):
    """A pod that is not bound, with what it asks; ``None`` asks nothing of ours."""

    pod: Pod
    demand: Demand | None


class State:
    """The ledger, and the pods that wait for a node.

    Args:
        names: resource domain and annotation prefix.
        reservation_limit: seconds for which the gangs of a namespace may reserve GPUs in vain.
        clock: Unix nanoseconds.

    Attributes:
        reservation_time: for how long gangs held GPUs in vain, by namespace.
        nominations: waiting pods for which others are evicted, by node.
    """

    def __init__(
        self,
        names: Names,
        *,
        reservation_limit: float = LIMIT_SECONDS,
        clock: Callable[[], int] = time_ns,
    ) -> None:
        self.names = names
        self.ledger = Ledger(names)
        self.reservation_time = ReservationTime(reservation_limit)
        self._clock = clock
        self._gang_pods = GangPods(names, lambda uid: self.ledger.claim(uid) is not None)
        self._untold: dict[NodeName, None] = {}
        self._touched: Callable[[NodeName], object] = self._untold.setdefault
        self._came: Callable[[], object] = lambda: None
        self.nominations = Nominations()
        self._waiting: dict[tuple[str, str], Asking] = {}
        self._seen: OrderedDict[PodUid, Asking] = OrderedDict()
        self._priorities: dict[PodUid, int] = {}
        self._passing: dict[PodUid, NodeName] = {}  # what may expire; cleared of the rest then

    def tell(
        self, touched: Callable[[NodeName], object], came: Callable[[], object] = lambda: None
    ) -> None:
        """Call ``touched`` with the name of every node whose books may have changed.

        Once for each that changed so far: while the cluster is read, a node changes with every pod.

        Args:
            came: called when the watch brings a pod that is new to its gang.
        """
        self._touched, self._came = touched, came
        for name in self._untold:
            touched(name)
        self._untold.clear()

    # Pods that are not bound.

    def asking(self, namespace: str, name: str, uid: PodUid) -> Asking | None:
        """The pod with this very UID: as the watch has it, else as a filter last saw it."""
        waiting = self._waiting.get((namespace, name))
        if waiting is not None and waiting.pod.uid == uid:
            return waiting
        return self._seen.get(uid)

    def find(self, namespace: str, name: str) -> Asking | None:
        """The waiting pod of this name."""
        return self._waiting.get((namespace, name))

    def waiting(self) -> Iterable[Asking]:
        """All pods that request something of ours and that a scheduler may place."""
        return (asking for asking in self._waiting.values() if not asking.pod.gated)

    def waiting_demands(self) -> Iterable[Demand]:
        """What they ask for."""
        return (asking.demand for asking in self.waiting() if asking.demand is not None)

    def members(self, asking: Asking, gang: Gang) -> Members:
        """The pods of a gang that exist, for one of them that has no place."""
        return self._gang_pods.members(Member(asking.pod, asking.demand), gang)

    def priority(self, uid: PodUid) -> int:
        """Priority of a bound pod that holds a claim; 0 where nothing is known."""
        return self._priorities.get(uid, 0)

    def saw(self, pod: Pod) -> Asking:
        """Remember a pod that the scheduler asks about: its bind may come before the watch does."""
        asking = Asking(pod, demand_of(pod, self.names))
        self._seen[pod.uid] = asking
        self._seen.move_to_end(pod.uid)
        if len(self._seen) > SEEN_LIMIT:
            self._seen.popitem(last=False)
        return asking

    # Every change of the ledger.

    def assume(self, pod: Pod, placement: Placement, *, now_ns: int) -> Claim:
        """Reserve; the claim that stands already wins."""
        claim = self.ledger.assume(pod, placement, now_ns=now_ns)
        self._passing[claim.uid] = claim.placement.node
        self._touched(claim.placement.node)
        return claim

    def reserve(self, claim: Claim) -> None:
        """Keep a place for a pod of a gang that is to come."""
        self._passing[claim.uid] = claim.placement.node
        self._around(claim.uid, lambda: self.ledger.reserve(claim))

    def forget(self, uid: PodUid) -> None:
        """Give back what was assumed or reserved; a gang keeps the place of its member."""
        claim = self.ledger.claim(uid)
        self._around(uid, lambda: self.ledger.forget(uid))
        if claim is not None and claim.gang and claim.state is ClaimState.ASSUMED:
            self.reserve(seat_of(claim))

    def expire(self, *, now_ns: int, ttl_ns: int) -> list[PodUid]:
        """Give back what nothing confirmed for ``ttl_ns``."""
        held = {uid: self.ledger.claim(uid) for uid in self._passing}
        late = self.ledger.expire(now_ns, ttl_ns)
        for uid in late:
            self._charge(held[uid], now_ns)
            self._touched(self._passing.pop(uid))
        for uid in [uid for uid in self._passing if not self._passes(uid)]:
            del self._passing[uid]
        return late

    def pod_changed(self, pod: Pod) -> None:
        """A pod is as it says, by watch or by a read of our own."""
        self._around(pod.uid, lambda: self.ledger.pod_changed(pod))
        self._note(pod)
        self._settle(pod)

    def pod_gone(self, pod: Pod) -> None:
        """A pod object was deleted."""
        self._around(pod.uid, lambda: self.ledger.pod_gone(pod.uid))
        self._gang_pods.drop(pod.uid)
        self._freed(self.nominations.drop(pod.uid))
        self._seen.pop(pod.uid, None)
        self._priorities.pop(pod.uid, None)
        waiting = self._waiting.get((pod.namespace, pod.name))
        if waiting is not None and waiting.pod.uid == pod.uid:
            del self._waiting[pod.namespace, pod.name]
        self._settle(pod)

    def relist_pods(self, pods: Iterable[Pod]) -> None:
        """These are all pods."""
        listed = list(pods)
        before = dict(self.ledger.claims())
        self.ledger.relist_pods(listed)
        self._touch_changed(before)
        self._waiting.clear()
        self._priorities.clear()
        self._gang_pods.clear()
        self.nominations.clear()
        for pod in listed:
            self._note(pod)
        gangs = {gang for pod in listed if (gang := gang_of(pod))}
        for gang in gangs | self._vanished_gangs(gangs):
            self._trim(gang)

    def relist_nodes(self, nodes: Iterable[Node]) -> None:
        """These are all nodes."""
        listed = {node.name: node for node in nodes}
        for name in self.ledger.nodes().keys() - listed.keys():
            self.node_gone(name)
        for node in listed.values():
            self.node_changed(node)

    def node_changed(self, node: Node) -> None:
        """A node is as it says."""
        account = self.ledger.node(node.name)
        shape = account.shape if account else None
        self.ledger.node_changed(node)
        account = self.ledger.node(node.name)
        if account is None or account.shape is not shape:
            self._touched(node.name)

    def node_gone(self, name: NodeName) -> None:
        """A node was deleted."""
        self.ledger.node_gone(name)
        self._touched(name)

    def unhealthy_changed(self, node: NodeName, text: str) -> None:
        """The legacy ConfigMap of ``node`` lists these cards; empty text lists none."""
        self.ledger.unhealthy_changed(node, unhealthy_indexes(text))
        self._touched(node)

    def _passes(self, uid: PodUid) -> bool:
        """Its claim still ends by itself."""
        claim = self.ledger.claim(uid)
        return claim is not None and claim.state in (ClaimState.ASSUMED, ClaimState.RESERVED)

    def _around(self, uid: PodUid, change: Callable[[], object]) -> None:
        """Change the claim of ``uid``; touch the nodes it leaves and comes to."""
        before = self.ledger.claim(uid)
        change()
        after = self.ledger.claim(uid)
        if before is after:
            return
        for claim in (before, after):
            if claim is not None:
                self._touched(claim.placement.node)

    def _touch_changed(self, before: Mapping[PodUid, Claim]) -> None:
        """Touch the nodes whose claims are not those of ``before``."""
        after = self.ledger.claims()
        for uid in before.keys() | after.keys():
            old, new = before.get(uid), after.get(uid)
            if old is not new:
                for claim in filter(None, (old, new)):
                    self._touched(claim.placement.node)

    def _settle(self, pod: Pod) -> None:
        """Forget places that are kept for pods of its gang which will not come."""
        gang = gang_of(pod)
        if gang is not None:
            self._trim(gang)

    def _vanished_gangs(self, gangs: Iterable[Gang]) -> set[Gang]:
        """Gangs other than ``gangs`` for which something is reserved, as gangs without a pod."""
        present = {(gang.namespace, gang.name) for gang in gangs}
        return {
            Gang(claim.namespace, claim.gang, 0)
            for claim in self.ledger.claims().values()
            if claim.state is ClaimState.RESERVED and (claim.namespace, claim.gang) not in present
        }

    def _trim(self, gang: Gang) -> None:
        claims = self.ledger.gang(gang.namespace, gang.name)
        if not any(claim.state is ClaimState.RESERVED for claim in claims):
            return
        asked = [uid for uid, one in self._seen.items() if gang_of(one.pod) == gang]
        waiting = self._gang_pods.waiting(gang, asked)
        for uid in spare(claims, gang.size, waiting=waiting):
            self._charge(self.ledger.claim(uid), self._clock())
            self.forget(uid)

    def _charge(self, claim: Claim | None, now_ns: int) -> None:
        """A place that was kept for a pod of a gang ends without it."""
        if claim is not None and claim.state is ClaimState.RESERVED:
            self.reservation_time.charge(claim.namespace, claim.assume_time, now_ns)

    def _freed(self, node: NodeName | None) -> None:
        """Room of this node is no longer kept for a nominated pod."""
        if node is not None:
            self._touched(node)

    def _note(self, pod: Pod) -> None:
        """Keep the list of waiting pods, and the priority of those that hold something."""
        if pod.priority and self.ledger.claim(pod.uid) is not None:
            self._priorities[pod.uid] = pod.priority
        else:
            self._priorities.pop(pod.uid, None)
        joined = self._gang_pods.note(pod)
        key = (pod.namespace, pod.name)
        if pod.node or pod.finished or pod.terminating:
            self._seen.pop(pod.uid, None)
            self._waiting.pop(key, None)
            self._freed(self.nominations.drop(pod.uid))
        elif (demand := demand_of(pod, self.names)) is not None:
            self._waiting[key] = Asking(pod, demand)
            self._freed(self.nominations.note(pod, demand))
        if joined:
            self._came()
