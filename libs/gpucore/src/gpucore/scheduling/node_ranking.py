"""Which node is best for a pending pod, of all nodes that admit it, for many pods in a row.

What a node answers to one kind of pod (the same request, the same constraints) is kept until the
node changes, and the nodes that admit it lie in a heap: a pod costs a rating of the node that took
the last one, not a look at every node. Ties go to the node that was known first.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

from gpucore.accounting.node_info import NodeInfo
from gpucore.kubescheduler.node_fit import avoided
from gpucore.model.constraints import CandidateNode
from gpucore.scheduling.best_nodes import node_rating
from gpucore.scheduling.candidates import PodRequirements
from gpucore.scheduling.fit import admit, has_room
from gpucore.scheduling.grouping import Grouping
from gpucore.units import NodeName

KINDS: Final = 64
Rating = tuple[float, ...]
Kind = TypeVar("Kind", bound=Hashable)


class NodeRanking(Generic[Kind]):
    """Nodes by kind of pod; the kind least recently used is dropped first.

    Args:
        rate_node: how good a node is for a kind of pod, more is better; ``None`` where the node
            does not admit it.
        limit: maximum number of kinds kept.
    """

    def __init__(
        self, rate_node: Callable[[NodeName, Kind], Rating | None], limit: int = KINDS
    ) -> None:
        self._rate_node = rate_node
        self._limit = limit
        self._kinds: OrderedDict[Kind, _Ranked] = OrderedDict()

    def __len__(self) -> int:
        """How many kinds are kept."""
        return len(self._kinds)

    def node_changed(self, name: NodeName) -> None:
        """What the node answers may have changed."""
        for ranked in self._kinds.values():
            ranked.stale[name] = None

    def clear(self) -> None:
        """Keep nothing."""
        self._kinds.clear()

    def refresh(self, kind: Kind, names: Callable[[], Iterable[NodeName]]) -> Iterator[None]:
        """Rate the nodes that changed; the caller may do other work after each.

        Args:
            names: of all nodes; called for a new kind.
        """
        ranked = self._kinds.get(kind)
        if ranked is None:
            ranked = self._kinds[kind] = _Ranked(names())
            if len(self._kinds) > self._limit:
                self._kinds.popitem(last=False)
        self._kinds.move_to_end(kind)
        while ranked.stale:
            name = next(iter(ranked.stale))
            del ranked.stale[name]
            ranked.enter(name, self._rate_node(name, kind))
            yield

    def admitting(self, kind: Kind) -> list[NodeName]:
        """The nodes that admit a kind that was refreshed."""
        ranked = self._kinds.get(kind)
        return ranked.admitting() if ranked else []

    def best(
        self, kind: Kind, skipped: Callable[[NodeName], bool] = lambda _: False
    ) -> NodeName | None:
        """The best node of a kind that was refreshed; ``None`` where no node admits it.

        Args:
            skipped: nodes that are passed over although they admit the pod.
        """
        ranked = self._kinds.get(kind)
        return ranked.best(skipped) if ranked else None


class _Ranked:
    """The nodes that admit one kind of pod.

    Attributes:
        stale: nodes to be rated, in order.
    """

    def __init__(self, names: Iterable[NodeName]) -> None:
        self.stale: dict[NodeName, None] = dict.fromkeys(names)
        self._numbers = {name: number for number, name in enumerate(self.stale)}
        self._ratings: dict[NodeName, Rating] = {}
        self._heap: list[tuple[Rating, int, NodeName]] = []

    def enter(self, name: NodeName, rating: Rating | None) -> None:
        """A node is this good; ``None`` does not admit the pod."""
        if rating is None:
            self._ratings.pop(name, None)
            return
        key = tuple(-part for part in rating)
        if self._ratings.get(name) == key:
            return
        self._ratings[name] = key
        number = self._numbers.setdefault(name, len(self._numbers))
        heappush(self._heap, (key, number, name))
        if len(self._heap) > 2 * len(self._ratings) + 64:
            self._heap = [(key, self._numbers[name], name) for name, key in self._ratings.items()]
            heapify(self._heap)

    def admitting(self) -> list[NodeName]:
        """The nodes that are rated."""
        return list(self._ratings)

    def best(self, skipped: Callable[[NodeName], bool]) -> NodeName | None:
        """The node with the highest rating that is not skipped."""
        kept, found = list[tuple[Rating, int, NodeName]](), None
        while self._heap and found is None:
            key, _, name = self._heap[0]
            if self._ratings.get(name) != key:
                heappop(self._heap)
            elif skipped(name):
                kept.append(heappop(self._heap))
            else:
                found = name
        for entry in kept:
            heappush(self._heap, entry)
        return found


def rate_node(
    node_info: NodeInfo, node: CandidateNode, pod: PodRequirements, policy: str, grouping: Grouping
) -> Rating | None:
    """How good a node is for a pod; ``None`` where it does not admit the pod."""
    request = pod.pod_request
    if not has_room(node_info, request):
        return None
    if admit(node_info, request, node, pod.constraints) is not None:
        return None
    rated = node_rating(node_info, request, policy, grouping)
    return (-avoided(node, pod.constraints), *rated) if rated else None
