"""Pods that wait for a node: what they request, and those nominated to each node."""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import Final

import msgspec

from gpucore.model import PodRequest
from gpucore.units import NodeName, PodUid
from gpucore.wire.names import Names
from gpucore.wire.pod.gangs import Gang, gang_of, reservation_uid
from gpucore.wire.pod.spec import Pod
from gpucore.wire.whole_requests import pod_request_of

SEEN_LIMIT: Final = 4096
"""Maximum number of pods that are kept of scheduler requests alone."""


class UnscheduledPod(msgspec.Struct, frozen=True):
    """A pod that is not bound, with its request; ``None``: it requests no gpushare resource."""

    pod: Pod
    pod_request: PodRequest | None


def awaits_first_try(pod: Pod) -> bool:
    """Whether a pending pod waits for its turn, and for nothing else.

    kube-scheduler does not try pods with scheduling gates, pods with a claim that does not exist,
    and pods of a PodGroup with too few pods; it sets no condition on the last two.
    """
    held_back = pod.gated or pod.named_claims or pod.claim_templates or pod.pod_group
    return not (held_back or pod.unschedulable)


class PendingPods:
    """Pods without a node: by name as the watch has them, by UID as a scheduler's request had them.

    A request may come before the watch event of its pod.

    Attributes:
        shown: number of pods that the watch has shown so far.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], UnscheduledPod] = {}
        self._seen: OrderedDict[PodUid, UnscheduledPod] = OrderedDict()
        self._queued = Counter[str]()
        self.shown = 0

    def __len__(self) -> int:
        """Number of pods that the watch has."""
        return len(self._waiting)

    def queued(self, schedulers: Iterable[str]) -> int:
        """Number of pods that wait for their first try by one of these schedulers."""
        return sum(self._queued[name] for name in schedulers)

    def get(self, namespace: str, name: str, uid: PodUid) -> UnscheduledPod | None:
        """The pod with this very UID: as the watch has it, else as a request last had it."""
        waiting = self._waiting.get((namespace, name))
        if waiting is not None and waiting.pod.uid == uid:
            return waiting
        return self._seen.get(uid)

    def find(self, namespace: str, name: str) -> UnscheduledPod | None:
        """The pod of this name that the watch has."""
        return self._waiting.get((namespace, name))

    def waiting(self) -> Iterable[UnscheduledPod]:
        """All pods that the watch has."""
        return self._waiting.values()

    def seen_of(self, gang: Gang) -> list[PodUid]:
        """The pods of a gang that requests brought, and the watch not yet."""
        return [uid for uid, one in self._seen.items() if _is_of(one.pod, gang)]

    def saw(self, pending: UnscheduledPod) -> None:
        """A request brought this pod, which the watch may not have yet.

        Of too many, the one that was seen least recently is dropped.
        """
        if self._watched(pending.pod):
            return
        self._seen[pending.pod.uid] = pending
        self._seen.move_to_end(pending.pod.uid)
        if len(self._seen) > SEEN_LIMIT:
            self._seen.popitem(last=False)

    def put(self, pending: UnscheduledPod) -> None:
        """The watch brought this pod."""
        key = pending.pod.namespace, pending.pod.name
        self._seen.pop(pending.pod.uid, None)
        self.shown += not self._watched(pending.pod)
        self._count(self._waiting.get(key), -1)
        self._waiting[key] = pending
        self._count(pending, 1)

    def placed(self, pod: Pod) -> None:
        """The pod of this name waits no more."""
        self._seen.pop(pod.uid, None)
        self._count(self._waiting.pop((pod.namespace, pod.name), None), -1)

    def gone(self, pod: Pod) -> None:
        """The pod was deleted; another of its name may wait."""
        self._seen.pop(pod.uid, None)
        if self._watched(pod):
            self._count(self._waiting.pop((pod.namespace, pod.name)), -1)

    def _watched(self, pod: Pod) -> bool:
        known = self._waiting.get((pod.namespace, pod.name))
        return known is not None and known.pod.uid == pod.uid

    def clear(self) -> None:
        """The watch begins anew; what requests alone brought stays."""
        self._waiting.clear()
        self._queued.clear()

    def _count(self, pending: UnscheduledPod | None, change: int) -> None:
        if pending is not None and awaits_first_try(pending.pod):
            name = pending.pod.scheduler_name
            self._queued[name] += change
            if not self._queued[name]:
                del self._queued[name]


class NominatedPod(msgspec.Struct, frozen=True):
    """A pod without a place for which others are evicted from a node."""

    uid: PodUid
    name: str
    pod_request: PodRequest
    priority: int = 0
    namespace: str = ""
    gang: str = ""

    @property
    def place(self) -> PodUid:
        """The UID of the place that is reserved for it while its PodGroup has a plan."""
        return reservation_uid(Gang(self.namespace, self.gang, 0), self.uid)


def before(pods: Iterable[NominatedPod], uid: PodUid, priority: int) -> list[NominatedPod]:
    """The pods nominated to a node whose requests take precedence over another pod.

    Args:
        uid: of the other pod.
        priority: of the other pod.
    """
    return [one for one in pods if one.uid != uid and one.priority >= priority]


def _is_of(pod: Pod, gang: Gang) -> bool:
    found = gang_of(pod)
    return found is not None and found.key == gang.key


class Nominations:
    """Nominated pods by node; few at any time, and usually none."""

    def __init__(self) -> None:
        self._pods: dict[NodeName, dict[PodUid, NominatedPod]] = {}
        self._nodes: dict[PodUid, NodeName] = {}

    def __bool__(self) -> bool:
        """There is a nominated pod."""
        return bool(self._pods)

    def note(self, pod: Pod, pod_request: PodRequest) -> NodeName | None:
        """A pod waits, nominated or not; the node that is no longer kept for it."""
        left = self.drop(pod.uid)
        if pod.nominated and not pod_request.fault:
            one = NominatedPod(
                pod.uid,
                pod.name,
                pod_request,
                pod.priority,
                pod.namespace,
                gang.name if (gang := gang_of(pod)) else "",
            )
            self._pods.setdefault(pod.nominated, {})[pod.uid] = one
            self._nodes[pod.uid] = pod.nominated
        return left if left != pod.nominated else None

    def drop(self, uid: PodUid) -> NodeName | None:
        """The pod waits no more; the node that was kept for it."""
        node = self._nodes.pop(uid, None)
        if node is not None:
            del self._pods[node][uid]
            if not self._pods[node]:
                del self._pods[node]
        return node

    def clear(self) -> None:
        """Nothing is known."""
        self._pods.clear()
        self._nodes.clear()

    def before(self, node: NodeName, pod: Pod) -> list[NominatedPod]:
        """Pods nominated to the node whose requests take precedence over ``pod``."""
        return before(self._pods.get(node, {}).values(), pod.uid, pod.priority)

    def beside(self, pod: Pod) -> dict[NodeName, list[NominatedPod]]:
        """The same of every node, for the gang of ``pod``: without the pods of that gang."""
        gang = gang_of(pod)
        own = (gang.namespace, gang.name) if gang else None
        found = {
            node: [one for one in self.before(node, pod) if (one.namespace, one.gang) != own]
            for node in self._pods
        }
        return {node: held for node, held in found.items() if held}

    def pods(self) -> list[NominatedPod]:
        """The nominated pods."""
        return [one for pods in self._pods.values() for one in pods.values()]

    def nodes(self) -> frozenset[NodeName]:
        """Nodes for which a pod is nominated."""
        return frozenset(self._pods)


def nominations_of(pods: Iterable[Pod], names: Names) -> Nominations:
    """The nominations of a cluster whose pods are these, for questions about it."""
    found = Nominations()
    for pod in pods:
        waits = pod.nominated and not (pod.node or pod.finished or pod.terminating)
        if waits and (pod_request := pod_request_of(pod, names)) is not None:
            found.note(pod, pod_request)
    return found
