"""The nodes as kube-scheduler's filters see them, kept up to date event by event.

A pod counts on its node from the decision of this process on (reserved), then from its binding on,
until it has finished or is gone. Of a pod that was read without constraints the requests besides
GPUs count: the ledger counts GPUs.
"""

from collections.abc import Callable, ItemsView, Iterable, Mapping, Sequence

import msgspec

from gpucore.kubescheduler.node_fit import least_avoided
from gpucore.model.constraints import (
    PODS,
    PREFER_NO_SCHEDULE,
    CandidateNode,
    PodConstraints,
    Resources,
)
from gpucore.units import NodeName, PodUid
from gpucore.wire.constraints import candidate_node, pod_requests
from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod


class CountedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod that counts on its node, bound or about to be."""

    node: NodeName
    requests: Resources
    bound: bool


class _Sum(msgspec.Struct):
    requested: dict[str, int] = {}
    pods: int = 0


class CandidateNodes:
    """Candidate nodes by name.

    Attributes:
        on_change: called with the name of a node whose answer to a pod may have changed.
        avoided: nodes with PreferNoSchedule taints.
    """

    def __init__(self, names: Names, nodes: Iterable[Node] = (), pods: Iterable[Pod] = ()) -> None:
        self._names = names
        self.on_change: Callable[[NodeName], object] = lambda _: None
        self.avoided: set[NodeName] = set()
        self._objects: dict[NodeName, Node] = {}
        self._nodes: dict[NodeName, CandidateNode] = {}
        self._sums: dict[NodeName, _Sum] = {}
        self._pods: dict[PodUid, CountedPod] = {}
        for node in nodes:
            self.node_changed(node)
        self.relist_pods(pods)

    def node(self, name: NodeName) -> CandidateNode | None:
        """The node with what its pods request now; ``None`` where there is none."""
        node, found = self._nodes.get(name), self._sums.get(name)
        if node is None or found is None:
            return node
        return msgspec.structs.replace(node, requested=found.requested, pods=found.pods)

    def counted(self) -> ItemsView[PodUid, CountedPod]:
        """The pods that count, by UID."""
        return self._pods.items()

    def requests(self, name: NodeName, uids: Iterable[PodUid]) -> dict[PodUid, Resources]:
        """What these pods request, of those that count on the node."""
        found = {uid: self._pods[uid] for uid in uids if uid in self._pods}
        return {uid: one.requests for uid, one in found.items() if one.node == name}

    def version(self, name: NodeName) -> CandidateNode | None:
        """The node without its pods: another value each time the node itself changes."""
        return self._nodes.get(name)

    def least_avoided(self, names: Sequence[NodeName], pod: PodConstraints) -> Sequence[NodeName]:
        """Those with the fewest PreferNoSchedule taints that the pod does not tolerate.

        Where none has such a taint, ``names`` itself is returned.
        """
        tainted = self.avoided.intersection(names) if self.avoided else ()
        if not tainted:
            return names
        return least_avoided(names, filter(None, map(self.version, tainted)), pod)

    def oversubscribed(self, name: NodeName) -> bool:
        """Pods and reservations on the node request more than it offers, or it is gone."""
        node, found = self._nodes.get(name), self._sums.get(name, _Sum())
        if node is None:
            return True
        if found.pods > node.allocatable.get(PODS, found.pods):
            return True
        offered: Mapping[str, int] = node.allocatable
        return any(wanted > offered.get(key, wanted) for key, wanted in found.requested.items())

    # Nodes.

    def node_changed(self, node: Node) -> None:
        known = self._objects.get(node.name)
        self._objects[node.name] = node
        if known is None or not _alike(known, node):
            self._nodes[node.name] = candidate_node(node, ())
            soft = any(taint.effect == PREFER_NO_SCHEDULE for taint in node.taints)
            (self.avoided.add if soft else self.avoided.discard)(node.name)
            self.on_change(node.name)

    def node_gone(self, name: NodeName) -> None:
        self._objects.pop(name, None)
        self.avoided.discard(name)
        if self._nodes.pop(name, None) is not None:
            self.on_change(name)

    # Pods.

    def pod_changed(self, pod: Pod) -> None:
        """Enter a pod; a reservation for it stays until it is bound or released."""
        if pod.finished:
            self._drop(pod.uid)
        elif pod.node:
            self._put(pod.uid, pod.node, self._of(pod), bound=True)

    def pod_gone(self, uid: PodUid) -> None:
        self._drop(uid)

    def relist_pods(self, pods: Iterable[Pod]) -> None:
        """These are all pods; reservations stay."""
        listed: set[PodUid] = set()
        for pod in pods:
            self.pod_changed(pod)
            if pod.node:  # after a restore of etcd a pod may wait again
                listed.add(pod.uid)
        for uid in [uid for uid, one in self._pods.items() if one.bound and uid not in listed]:
            self._drop(uid)

    def reserve(self, uid: PodUid, node: NodeName, requests: Resources) -> None:
        """A pod is going to be bound to this node."""
        known = self._pods.get(uid)
        if known is None or not known.bound:
            self._put(uid, node, requests, bound=False)

    def release(self, uid: PodUid) -> None:
        """A pod is not going to be bound after all; nothing changes where it is."""
        known = self._pods.get(uid)
        if known is not None and not known.bound:
            self._drop(uid)

    def _put(self, uid: PodUid, node: NodeName, requests: Resources, *, bound: bool) -> None:
        known = self._pods.get(uid)
        entry = CountedPod(node, requests, bound)
        if known == entry:
            return
        self._pods[uid] = entry
        if known is not None and (known.node, known.requests) == (node, requests):
            return
        if known is not None:
            self._add(known, -1)
        self._add(entry, 1)

    def _of(self, pod: Pod) -> Resources:
        """A pod with an amount that no API server accepts counts as a pod that requests nothing."""
        if pod.constraints is not None:
            return pod.constraints.requests
        try:
            return pod_requests(pod, self._names)
        except WireError:
            return ()

    def _drop(self, uid: PodUid) -> None:
        known = self._pods.pop(uid, None)
        if known is not None:
            self._add(known, -1)

    def _add(self, entry: CountedPod, times: int) -> None:
        """Count a pod, or count it no more; nothing is left of names that no pod requests."""
        found = self._sums.setdefault(entry.node, _Sum())
        for name, amount in entry.requests:
            found.requested[name] = found.requested.get(name, 0) + times * amount
            if not found.requested[name]:
                del found.requested[name]
        found.pods += times
        if not found.pods:
            del self._sums[entry.node]
        self.on_change(entry.node)


def _alike(old: Node, new: Node) -> bool:
    """Nothing that a filter reads has changed; heartbeats end here."""
    return (
        old.allocatable == new.allocatable
        and old.labels == new.labels
        and old.taints == new.taints
        and old.unschedulable == new.unschedulable
        and old.ready == new.ready
    )
