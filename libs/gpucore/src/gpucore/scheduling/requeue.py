"""Pending pods for which a node that refused them has capacity now.

A scheduler retries a refused pod only after an event. An extender that refused the pod on an older
state of the cluster must trigger a retry once its state changes, or the pod waits for minutes
beside a free GPU.

Each pod is stored with the nodes of the request and with the generation of the state that it was
evaluated at. A node that changed later may fit it.

A tenant may create any number of pods that fit nowhere. Where there are too many, one of the
namespace with the most is dropped, so that no namespace takes the share of another.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Allocation, AllocationState, FitError, PodRequest
from gpucore.scheduling.policy import place
from gpucore.units import NodeName, PodUid
from gpucore.wire.pod.spec import Pod

REMEMBERED: Final = 4096
"""Pods of all namespaces together."""


class RefusedPod(msgspec.Struct, frozen=True):
    """A pod that no node could take.

    Attributes:
        creation: RFC 3339 time.
    """

    uid: PodUid
    pod_request: PodRequest
    priority: int = 0
    creation: str = ""

    @property
    def rank(self) -> tuple[int, str, PodUid]:
        """The order in which pods are tried: highest priority first, then the oldest."""
        return -self.priority, self.creation, self.uid


def fitting(node_info: NodeInfo, pods: Iterable[RefusedPod]) -> list[PodUid]:
    """The pods that a node can take together, in the order given.

    Args:
        node_info: state of the node, which stays as it is.
    """
    filled, found = node_info, list[PodUid]()
    unresolvable: set[PodRequest] = set()
    for pod in pods:
        if pod.pod_request in unresolvable:
            continue
        placement = place(filled, pod.pod_request)
        if isinstance(placement, FitError):
            unresolvable.add(pod.pod_request)  # the node only fills up from here
            continue
        filled = node_info.copy() if filled is node_info else filled
        alone = pod.pod_request.whole_device
        filled.put(Allocation(pod.uid, "", "", AllocationState.ASSUMED, placement, exclusive=alone))
        found.append(pod.uid)
    return found


class RememberedPod(msgspec.Struct):
    """One refused pod.

    Attributes:
        offered: 1 at the number of each node that the scheduler offered.
        judged: the change up to which it was judged, or sent back to its scheduler.
        looked: the change up to which it was found since to fit on no changed node, or its gang
            nowhere.
        wakeups: times it was sent back since it last fitted anywhere.
        not_before: time of the loop before which it is not sent back again.
        incomplete: pods of its gang were missing, which its scheduler reported as the reason.
        paused: its gang got no plan, because of what its namespace owes.
        spared: it evicted no pod, because a node that was not offered had room.
        preempts: that node has no room any more, so that it is to evict pods.
    """

    pod: Pod
    refused: RefusedPod
    offered: bytes
    judged: int
    looked: int = 0
    wakeups: int = 0
    not_before: float = 0.0
    incomplete: bool = False
    paused: bool = False
    spared: bool = False
    preempts: bool = False

    @property
    def considered(self) -> int:
        """The change up to which it need not be looked at again."""
        return max(self.judged, self.looked)


class NodeNumbers:
    """A small number for each node, so that thousands of pods remember thousands of nodes each."""

    def __init__(self) -> None:
        self._numbers: dict[NodeName, int] = {}
        self._vacant: list[int] = []

    def add(self, node: NodeName) -> None:
        """The node exists."""
        if node not in self._numbers:
            vacant = self._vacant.pop() if self._vacant else len(self._numbers)
            self._numbers[node] = vacant

    def drop(self, node: NodeName) -> None:
        """The node is gone; its number may become that of another node."""
        number = self._numbers.pop(node, None)
        if number is not None:
            self._vacant.append(number)

    def set_of(self, nodes: Iterable[NodeName]) -> bytes:
        """A set of those nodes that exist."""
        numbers = [self._numbers[node] for node in nodes if node in self._numbers]
        found = bytearray(max(numbers, default=-1) + 1)
        for number in numbers:
            found[number] = 1
        return bytes(found)

    def contains(self, found: bytes, node: NodeName) -> bool:
        """Whether a set has the node."""
        number = self._numbers.get(node)
        return number is not None and number < len(found) and bool(found[number])


class RefusedPods:
    """The refused pods and the changes of nodes, both bounded.

    Attributes:
        change: counts changes of nodes and of gangs.
        members_changed: the last change that brought a pod.
    """

    def __init__(self) -> None:
        self._entries: dict[PodUid, RememberedPod] = {}
        self._namespaces: dict[str, OrderedDict[PodUid, None]] = {}
        self._changes: OrderedDict[NodeName, int] = OrderedDict()
        self._numbers = NodeNumbers()
        self._came = dict[NodeName, int]()
        self.change = 0
        self.members_changed = 0

    def __len__(self) -> int:
        """How many pods are remembered."""
        return len(self._entries)

    def __contains__(self, uid: PodUid) -> bool:
        """The pod is remembered."""
        return uid in self._entries

    def get(self, uid: PodUid) -> RememberedPod | None:
        """What is remembered of the pod."""
        return self._entries.get(uid)

    def remember(
        self, pod: Pod, refused: RefusedPod, nodes: Iterable[NodeName], *, judged: int
    ) -> RememberedPod:
        """No node of ``nodes`` can take the pod, as of the change ``judged``."""
        known = self._pop(refused.uid)
        entry = RememberedPod(pod, refused, self._numbers.set_of(nodes), judged)
        if known is not None:
            entry.wakeups, entry.not_before = known.wakeups, known.not_before
        self._entries[refused.uid] = entry
        self._namespaces.setdefault(pod.namespace, OrderedDict())[refused.uid] = None
        if len(self._entries) > REMEMBERED:
            most = max(self._namespaces.values(), key=len)
            self._pop(next(iter(most)))
        return entry

    def was_offered(self, entry: RememberedPod, node: NodeName) -> bool:
        """The scheduler offered this node, or it came since the pod was judged.

        The scheduler may have offered a new node before this process knew it.
        """
        if self._came.get(node, 0) > entry.judged:
            return True
        return self._numbers.contains(entry.offered, node)

    def offered(self, entry: RememberedPod) -> list[NodeName]:
        """The nodes that the scheduler offered, and those that came since."""
        return [node for node in self._came if self.was_offered(entry, node)]

    def forget(self, uid: PodUid) -> None:
        """The pod fits somewhere, or is gone."""
        self._pop(uid)

    def _pop(self, uid: PodUid) -> RememberedPod | None:
        entry = self._entries.pop(uid, None)
        if entry is not None:
            pods = self._namespaces[entry.pod.namespace]
            del pods[uid]
            if not pods:
                del self._namespaces[entry.pod.namespace]
        return entry

    def node_changed(self, node: NodeName, *, exists: bool) -> None:
        """The allocations of a node changed, or it is gone."""
        self.change += 1
        self._changes.pop(node, None)
        if exists:
            self._changes[node] = self.change
            self._numbers.add(node)
            self._came.setdefault(node, self.change)
        else:
            self._numbers.drop(node)
            self._came.pop(node, None)

    def member_came(self) -> None:
        """A pod came that may complete a gang."""
        self.change += 1
        self.members_changed = self.change

    def ranked(self) -> list[RememberedPod]:
        """All pods, those to be tried first in front."""
        return sorted(self._entries.values(), key=lambda entry: entry.refused.rank)

    def changed_nodes(self) -> Iterator[tuple[NodeName, int]]:
        """Nodes with changes that some pod was not considered for, newest first."""
        oldest = min((entry.considered for entry in self._entries.values()), default=self.change)
        for node, change in reversed(list(self._changes.items())):
            if change <= oldest:
                return
            yield node, change
