"""The one state machine: which pod holds what on which node.

::

                 assume                watch: bound             watch: ASSIGNED is true
    (no claim) ---------> ASSUMED ------------------> BOUND -----------------------> CONFIRMED
        |                  |  |                        ^ |                              |
        |  watch: bound    |  | forget (bind failed)   | | watch: gone, Succeeded,      |
        +------------------|--|------------------------+ | Failed, or not in a list     |
                           |  | expire (nobody told)     v                              v
                           |  +--------------------> (no claim) <-----------------------+
                           +-- watch: gone or finished --^

Invariants, which the tests execute:

* One claim a pod UID, on one node. Assuming a pod again gives back the claim that stands.
* A card's books are the sum over the claims on it; ``free`` is never below zero.
* What the watch says wins over what was assumed. A list of all pods gives the same books as any
  history of events that ends there, but for claims still ASSUMED: their bind is under way.
* A node that vanishes keeps its claims; they count again when it returns.
* A place that is RESERVED for a pod to come (:mod:`gpucore.gang`) counts like any claim, and ends
  like an ASSUMED one: it is forgotten, or it expires.

A pod event costs the same however many pods there are: it touches the cards of one pod.
Not thread safe, and no clock: the owner calls from one task and passes the time.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from gpucore.account import NodeAccount
from gpucore.model import Claim, ClaimState, Placement
from gpucore.shape import ABSENT, shape_of
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.gangs import gang_of
from gpucore.wire.names import Names
from gpucore.wire.nodes import Node
from gpucore.wire.pods import Pod, claim_of, demand_of

_PASSING: Final = frozenset({ClaimState.ASSUMED, ClaimState.RESERVED})
"""States that end by themselves when nothing confirms them."""


class Ledger:
    """Books of all nodes, folded from the API server's pods and nodes, under these names."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._share_rooms: dict[NodeName, int] = {}
        self._whole_rooms: dict[NodeName, int] = {}
        self._unpublished: dict[NodeName, None] = {}
        self._accounts: dict[NodeName, NodeAccount] = {}
        self._claims: dict[PodUid, Claim] = {}
        self._assumed: dict[PodUid, int] = {}
        self._gangs: dict[tuple[str, str], set[PodUid]] = {}
        self._objects: dict[NodeName, Node] = {}
        self._unhealthy: dict[NodeName, frozenset[GpuIndex]] = {}

    # Reads.

    def node(self, name: NodeName) -> NodeAccount | None:
        """Books of one node, also of a vanished one that pods still claim."""
        return self._accounts.get(name)

    def nodes(self) -> Mapping[NodeName, NodeAccount]:
        """Books of all nodes, by name."""
        return MappingProxyType(self._accounts)

    def claim(self, uid: PodUid) -> Claim | None:
        """What one pod holds."""
        return self._claims.get(uid)

    def claims(self) -> Mapping[PodUid, Claim]:
        """What all pods hold, by UID."""
        return MappingProxyType(self._claims)

    def gang(self, namespace: str, name: str) -> list[Claim]:
        """What the members of a gang hold, and the places that are kept for others, by UID."""
        return [self._claims[uid] for uid in sorted(self._gangs.get((namespace, name), ()))]

    def reserved(self, namespace: str) -> int:
        """Places that are kept for pods of gangs of a namespace."""
        gangs = [uids for key, uids in self._gangs.items() if key[0] == namespace]
        claims = (self._claims[uid] for uids in gangs for uid in uids)
        return sum(1 for claim in claims if claim.state is ClaimState.RESERVED)

    @property
    def share_rooms(self) -> Mapping[NodeName, int]:
        """By node, the largest one-card share of memory that fits now; -1 where none is offered."""
        self._publish()
        return self._share_rooms

    @property
    def whole_rooms(self) -> Mapping[NodeName, int]:
        """By node, how many whole cards fit now; -1 where none are offered."""
        self._publish()
        return self._whole_rooms

    # Nodes.

    def node_changed(self, node: Node) -> None:
        """A node was added or changed.

        Raises:
            WireError: a capacity is no Kubernetes quantity (the API server accepts no such node).
        """
        known = self._objects.get(node.name)
        self._objects[node.name] = node
        if known is None or not _same_shape(known, node):
            self._reshape(node.name)

    def node_gone(self, name: NodeName) -> None:
        """A node was deleted; claims on it stay."""
        if self._objects.pop(name, None) is not None:
            self._reshape(name)

    def relist_nodes(self, nodes: Iterable[Node]) -> None:
        """These are all nodes there are."""
        listed = {node.name: node for node in nodes}
        for name in self._objects.keys() - listed.keys():
            self.node_gone(name)
        for node in listed.values():
            self.node_changed(node)

    def unhealthy_changed(self, node: NodeName, indexes: frozenset[GpuIndex]) -> None:
        """The legacy ConfigMap withdraws these cards of ``node``; an empty set withdraws none."""
        if self._unhealthy.get(node, frozenset()) == indexes:
            return
        self._unhealthy[node] = indexes
        if not indexes:
            del self._unhealthy[node]
        if node in self._objects:
            self._reshape(node)

    # Pods.

    def pod_changed(self, pod: Pod) -> None:
        """A pod was added or changed.

        Raises:
            WireError: an amount is no Kubernetes quantity (the API server accepts no such pod).
        """
        claim = claim_of(pod, self.names)
        if claim is not None:
            self._hold(claim)
        elif pod.node or pod.finished:
            self._release(pod.uid)

    def pod_gone(self, uid: PodUid) -> None:
        """A pod object was deleted: its containers are gone."""
        self._release(uid)

    def relist_pods(self, pods: Iterable[Pod]) -> None:
        """These are all pods there are; claims still ASSUMED stay, their bind is under way.

        Raises:
            WireError: as :meth:`pod_changed`.
        """
        held: set[PodUid] = set()
        for pod in pods:
            if pod.node or pod.finished:
                self.pod_changed(pod)
                held.add(pod.uid)
        for uid in self._claims.keys() - held - self._assumed.keys():
            self._release(uid)

    # Decisions of this process.

    def assume(self, pod: Pod, placement: Placement, *, now_ns: int) -> Claim:
        """Reserve ``placement`` for ``pod`` while it is being bound.

        One decision a UID: where a claim stands already it is returned as it is, whatever
        ``placement`` says, so compare its node.
        """
        standing = self._claims.get(pod.uid)
        if standing is not None:
            return standing
        account = self._accounts.get(placement.node)
        demand, gang = demand_of(pod, self.names), gang_of(pod)
        claim = Claim(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            state=ClaimState.ASSUMED,
            placement=placement,
            exclusive=demand is not None and demand.whole_device,
            unit=account.unit if account else None,
            assume_time=now_ns,
            gang=gang.name if gang else "",
        )
        self._hold(claim)
        return claim

    def reserve(self, claim: Claim) -> None:
        """Keep a place for a pod to come; the claim is RESERVED and its UID names no pod."""
        self._hold(claim)

    def forget(self, uid: PodUid) -> bool:
        """Give back what was assumed or reserved, as a bind failed; False where nothing was."""
        if uid not in self._assumed:
            return False
        self._release(uid)
        return True

    def expire(self, now_ns: int, ttl_ns: int) -> list[PodUid]:
        """Give back what was assumed or reserved ``ttl_ns`` ago or earlier and nothing confirmed.

        The time to live must be longer than a bind can take.
        """
        late = [uid for uid, since in self._assumed.items() if now_ns - since >= ttl_ns]
        for uid in late:
            self._release(uid)
        return late

    # The two moves everything above is made of.

    def _hold(self, claim: Claim) -> None:
        standing = self._claims.get(claim.uid)
        if standing == claim:
            return
        if standing is not None and _moves(standing, claim):
            self._release(claim.uid)
        self._claims[claim.uid] = claim
        if claim.gang:
            self._gangs.setdefault((claim.namespace, claim.gang), set()).add(claim.uid)
        if claim.state in _PASSING:
            self._assumed[claim.uid] = claim.assume_time
        else:
            self._assumed.pop(claim.uid, None)
        account = self._account(claim.placement.node)
        account.put(claim)
        self._note(account)

    def _release(self, uid: PodUid) -> None:
        claim = self._claims.pop(uid, None)
        self._assumed.pop(uid, None)
        if claim is None:
            return
        self._leave(claim)
        account = self._accounts[claim.placement.node]
        account.drop(uid)
        self._note(account)

    def _leave(self, claim: Claim) -> None:
        key = (claim.namespace, claim.gang)
        members = self._gangs.get(key, set())
        members.discard(claim.uid)
        if not members:
            self._gangs.pop(key, None)

    def _account(self, name: NodeName) -> NodeAccount:
        account = self._accounts.get(name)
        if account is None:
            account = self._accounts[name] = NodeAccount(name)
        return account

    def _reshape(self, name: NodeName) -> None:
        account, node = self._account(name), self._objects.get(name)
        unhealthy = self._unhealthy.get(name, frozenset())
        shape = ABSENT if node is None else shape_of(node, self.names, unhealthy)
        if shape != account.shape:
            account.reshape(shape)
        self._note(account)

    def _note(self, account: NodeAccount) -> None:
        """The books of an account changed; close it when neither node nor claim is left."""
        name = account.name
        if account.present or account.claims:
            self._unpublished[name] = None
            return
        del self._accounts[name]
        self._unpublished.pop(name, None)
        self._share_rooms.pop(name, None)
        self._whole_rooms.pop(name, None)

    def _publish(self) -> None:
        """Bring the rooms of the nodes that changed since up to date."""
        for name in self._unpublished:
            account = self._accounts[name]
            self._share_rooms[name] = account.share_room
            self._whole_rooms[name] = account.whole_room
        self._unpublished.clear()


def _moves(old: Claim, new: Claim) -> bool:
    return old.placement.node != new.placement.node or old.gang != new.gang


def _same_shape(old: Node, new: Node) -> bool:
    """Nothing that a shape is read from has changed; heartbeats end here."""
    return (
        old.capacity == new.capacity
        and old.labels == new.labels
        and old.annotations == new.annotations
    )


def rebuilt(names: Names, nodes: Iterable[Node], pods: Iterable[Pod]) -> Ledger:
    """The books that lists of all nodes and pods give: what a restart starts from."""
    ledger = Ledger(names)
    ledger.relist_nodes(nodes)
    ledger.relist_pods(pods)
    return ledger
