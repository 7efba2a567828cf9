"""The ledger: the state machine of all allocations on all nodes.

::

                 assume                watch: bound             watch: ASSIGNED is true
    (no allocation) ---------> ASSUMED ------------------> BOUND -----------------------> CONFIRMED
        |                  |  |                        ^ |                              |
        |  watch: bound    |  | forget (bind failed)   | | watch: gone, Succeeded,      |
        +------------------|--|------------------------+ | Failed, or not in a list     |
                           |  | expire (no confirmation) v                              v
                           |  +--------------------> (no allocation) <-----------------------+
                           +-- watch: gone or finished --^

Invariants, which the tests execute:

* One allocation a pod UID, on one node. Assuming a pod again returns the existing allocation.
* A GPU's state is the sum over the allocations on it; ``free`` is never below zero.
* Watch events take precedence over assumed allocations. A list of all pods gives the same ledger as
  any history of events that ends there, except for allocations still ASSUMED, whose bind is in
  progress.
* A node that vanishes keeps its allocations; they count again when it returns.
* A place that is RESERVED for a pod to come (:mod:`gpucore.gang.placement`) counts like any
  allocation, and ends like an ASSUMED one: it is forgotten, or it expires.
* The place of a NOMINATED pod counts like any allocation. It ends when the pod is bound or assumed,
  when it is deleted or missing from a list, when the API server shows another ``nominatedNodeName``
  than the one that was written, when it is forgotten, or when it expires.

A pod event costs the same however many pods there are: it touches the GPUs of one pod.
Not thread safe, and no clock: the owner calls from one task and passes the time.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Final

from gpucore.accounting.node_infos import NodeInfos
from gpucore.model import Allocation, AllocationState, Placement
from gpucore.units import NodeName, PodUid
from gpucore.wire.names import Names
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.gangs import gang_of
from gpucore.wire.pod.spec import Pod
from gpucore.wire.whole_requests import pod_request_of

_PASSING: Final = frozenset(
    {AllocationState.ASSUMED, AllocationState.RESERVED, AllocationState.NOMINATED}
)
"""States that end by themselves when nothing confirms them."""


class Ledger(NodeInfos):
    """State of all nodes, computed from the API server's pods and nodes, under these names."""

    def __init__(self, names: Names) -> None:
        super().__init__(names)
        self._allocations: dict[PodUid, Allocation] = {}
        self._assumed: dict[PodUid, int] = {}
        self._nominations: dict[PodUid, str] = {}
        self._gangs: dict[tuple[str, str], set[PodUid]] = {}
        self._claims: set[PodUid] = set()

    # Reads.

    def allocation(self, uid: PodUid) -> Allocation | None:
        """What one pod holds."""
        return self._allocations.get(uid)

    def allocations(self) -> Mapping[PodUid, Allocation]:
        """What all pods hold, by UID."""
        return MappingProxyType(self._allocations)

    def gang(self, namespace: str, name: str) -> list[Allocation]:
        """What the members of a gang hold, and the places that are kept for others, by UID."""
        return [self._allocations[uid] for uid in sorted(self._gangs.get((namespace, name), ()))]

    def reserved(self, namespace: str) -> int:
        """Places that are kept for pods of gangs of a namespace."""
        gangs = [uids for key, uids in self._gangs.items() if key[0] == namespace]
        allocations = (self._allocations[uid] for uids in gangs for uid in uids)
        return sum(1 for allocation in allocations if allocation.state is AllocationState.RESERVED)

    def nomination(self, uid: PodUid) -> Allocation | None:
        """What is reserved for a nominated pod; ``None`` where it is not, or already assumed."""
        return self._allocations[uid] if uid in self._nominations else None

    def nominations(self) -> Mapping[PodUid, str]:
        """UIDs of the nominated pods, with the resource version of the write; empty unwritten."""
        return MappingProxyType(self._nominations)

    def nominated_nodes(self) -> Iterator[NodeName]:
        """The node of each nominated pod."""
        return (self._allocations[uid].placement.node for uid in self._nominations)

    # Claims; :mod:`gpucore.accounting.claims` reads them.

    def claims(self) -> AbstractSet[PodUid]:
        """UIDs of the ResourceClaims that hold GPUs."""
        return self._claims

    def hold_claim(self, allocation: Allocation) -> None:
        """Enter the allocation of a ResourceClaim, under the UID of the claim."""
        self._claims.add(allocation.uid)
        self._hold(allocation)

    def release_claim(self, uid: PodUid) -> None:
        """A ResourceClaim holds nothing any more."""
        if uid in self._claims:
            self._claims.discard(uid)
            self._release(uid)

    # Pods.

    def pod_changed(self, pod: Pod) -> None:
        """A pod was added or changed.

        Raises:
            WireError: an amount is no Kubernetes quantity (the API server accepts no such pod).
        """
        allocation = allocation_of(pod, self.names)
        if allocation is not None:
            self._hold(allocation)
        elif pod.node or pod.finished or self._withdrawn(pod):
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
            if pod.node or pod.finished or pod.uid in self._nominations:
                self.pod_changed(pod)
                held.add(pod.uid)
        under_way = self._assumed.keys() - self._nominations.keys()
        for uid in self._allocations.keys() - held - under_way - self._claims:
            self._release(uid)

    # Decisions of this process.

    def assume(self, pod: Pod, placement: Placement, *, now_ns: int) -> Allocation:
        """Reserve ``placement`` for ``pod`` while it is being bound.

        One decision a UID: an existing allocation is returned unchanged, whatever ``placement`` is,
            so compare its node.
        """
        standing = self._allocations.get(pod.uid)
        if standing is not None and standing.state is not AllocationState.NOMINATED:
            return standing
        return self._decided(pod, placement, AllocationState.ASSUMED, now_ns)

    def nominate(self, pod: Pod, placement: Placement, *, now_ns: int) -> Allocation:
        """Reserve ``placement`` for a pending pod whose ``nominatedNodeName`` is to be written.

        Where an allocation stands already it is returned as it is.
        """
        standing = self._allocations.get(pod.uid)
        if standing is not None:
            return standing
        allocation = self._decided(pod, placement, AllocationState.NOMINATED, now_ns)
        self._nominations[pod.uid] = ""
        return allocation

    def nomination_written(self, uid: PodUid, resource_version: str) -> None:
        """The API server has the nomination as of this version of the pod."""
        if uid in self._nominations:
            self._nominations[uid] = resource_version

    def reserve(self, allocation: Allocation) -> None:
        """Keep a place for a pod to come; the allocation is RESERVED and its UID names no pod."""
        self._hold(allocation)

    def forget(self, uid: PodUid) -> bool:
        """Give back what was assumed, reserved or nominated; False where nothing was."""
        if uid not in self._assumed:
            return False
        self._release(uid)
        return True

    def expire(self, now_ns: int, ttl_ns: int) -> list[PodUid]:
        """Give back what was assumed, reserved or nominated ``ttl_ns`` ago and not confirmed.

        The time to live must be longer than a bind can take.
        """
        late = [uid for uid, since in self._assumed.items() if now_ns - since >= ttl_ns]
        for uid in late:
            self._release(uid)
        return late

    def _decided(
        self, pod: Pod, placement: Placement, state: AllocationState, now_ns: int
    ) -> Allocation:
        """An allocation that this process makes for a pod that has no node."""
        node_info = self._node_infos.get(placement.node)
        pod_request, gang = pod_request_of(pod, self.names), gang_of(pod)
        allocation = Allocation(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            state=state,
            placement=placement,
            exclusive=pod_request is not None and pod_request.whole_device,
            unit=node_info.unit if node_info else None,
            assume_time=now_ns,
            gang=gang.name if gang else "",
        )
        self._hold(allocation)
        return allocation

    def _withdrawn(self, pod: Pod) -> bool:
        """The pod is nominated here, but will not come: deleted, or nominated elsewhere."""
        written = self._nominations.get(pod.uid)
        if written is None:
            return False
        elsewhere = pod.nominated != self._allocations[pod.uid].placement.node
        return pod.terminating or (elsewhere and reaches(pod.resource_version, written))

    # The two moves everything above is made of.

    def _hold(self, allocation: Allocation) -> None:
        standing = self._allocations.get(allocation.uid)
        if standing == allocation:
            return
        if standing is not None and _moves(standing, allocation):
            self._release(allocation.uid)
        if allocation.state is not AllocationState.NOMINATED:
            self._nominations.pop(allocation.uid, None)
        self._allocations[allocation.uid] = allocation
        if allocation.gang:
            self._gangs.setdefault((allocation.namespace, allocation.gang), set()).add(
                allocation.uid
            )
        if allocation.state in _PASSING:
            self._assumed[allocation.uid] = allocation.assume_time
        else:
            self._assumed.pop(allocation.uid, None)
        node_info = self._node_info(allocation.placement.node)
        node_info.put(allocation)
        self._note(node_info)

    def _release(self, uid: PodUid) -> None:
        allocation = self._allocations.pop(uid, None)
        self._assumed.pop(uid, None)
        self._nominations.pop(uid, None)
        if allocation is None:
            return
        self._leave(allocation)
        node_info = self._node_infos[allocation.placement.node]
        node_info.drop(uid)
        self._note(node_info)

    def _leave(self, allocation: Allocation) -> None:
        key = (allocation.namespace, allocation.gang)
        members = self._gangs.get(key, set())
        members.discard(allocation.uid)
        if not members:
            self._gangs.pop(key, None)


def _moves(old: Allocation, new: Allocation) -> bool:
    return old.placement.node != new.placement.node or old.gang != new.gang


def reaches(version: str, written: str) -> bool:
    """Whether a pod of this resource version is at least as new as the write."""
    if not (version.isdecimal() and written.isdecimal()):
        return version == written != ""
    return int(version) >= int(written)


def rebuilt(names: Names, nodes: Iterable[Node], pods: Iterable[Pod]) -> Ledger:
    """The ledger for lists of all nodes and pods: the start after a restart."""
    ledger = Ledger(names)
    ledger.relist_nodes(nodes)
    ledger.relist_pods(pods)
    return ledger
