"""Choice of several GPUs of a node by their links, for placement.

Used for exclusive GPUs, and for shares over several GPUs. A fitting request is never refused for
its links: where a node publishes none, the lowest indexes are taken, and where ``static`` has no
free configured set, ``best-effort`` chooses. Not guaranteed: the best group over GPUs that are
allocated now; no pod is moved.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from gpucore.accounting.node_capacity import NodeCapacity
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import PodRequest
from gpucore.model.links import Matrix
from gpucore.topology import choice
from gpucore.topology.choice import MAX_IMMEDIATE
from gpucore.topology.gpusets import MAX_EXACT, Scores
from gpucore.topology.policies import MAX_RATING, GpuGroup, Impossible, plan, rating
from gpucore.topology.static import StaticSets
from gpucore.units import GpuIndex
from gpucore.wire.node.matrices import MAX_GPUS

BEST_EFFORT: Final = "best-effort"
BANDWIDTH: Final = "bandwidth"
STATIC: Final = "static"
SIMPLE: Final = "simple"


class Grouping(msgspec.Struct, frozen=True):
    """How GPUs that go together are chosen.

    Attributes:
        policy: a name of :data:`gpucore.topology.policies.POLICIES`; a pod's own overrules it.
        static: configured sets by node type, over those that are shipped.
        wait: compute missing tables of links, however long it takes; the extender does not wait
            and calls :func:`prepare` when a node's inventory arrives.
    """

    policy: str = BEST_EFFORT
    static: Mapping[str, StaticSets] = {}
    wait: bool = True

    def whole(
        self, node_info: NodeInfo, free: Sequence[GpuIndex], count: int, pod_request: PodRequest
    ) -> tuple[GpuIndex, ...]:
        """``count`` of the GPUs ``free`` (ascending, enough), in the order one container sees."""
        return self._group(node_info, free, count, pod_request).gpus

    def exclusive(
        self, node_info: NodeInfo, free: Sequence[GpuIndex], pod_request: PodRequest
    ) -> tuple[GpuIndex, ...]:
        """The pod's GPUs, those of its first container first, as the device plugin cuts them.

        The pod's group is chosen as for one container. Each container then gets GPUs of it that are
        well joined with each other, the largest container first; ``simple`` cuts it by index.
        """
        group = self.whole(node_info, free, pod_request.gpus, pod_request)
        sizes = [request.gpus for request in pod_request.containers]
        unjoined = self._name(pod_request) == SIMPLE or not _known(node_info.shape.matrix)
        if unjoined or max(sizes, default=0) in {0, 1, len(group)} or sum(sizes) > len(group):
            return group
        left, parts = sorted(group), dict[int, tuple[GpuIndex, ...]]()
        for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
            if sizes[place]:
                parts[place] = self.whole(node_info, left, sizes[place], pod_request)
                left = [gpu for gpu in left if gpu not in parts[place]]
        return tuple(gpu for place in sorted(parts) for gpu in parts[place]) + tuple(left)

    def shared(
        self, node_info: NodeInfo, ranked: Sequence[GpuIndex], pod_request: PodRequest
    ) -> tuple[GpuIndex, ...]:
        """GPUs for a share over several, from those that can take their part.

        The group that the topology policy would choose decides how well joined the GPUs must be,
        for ``bandwidth`` by the smallest pair first; of the groups that are, it takes the one with
        the GPU policy's first choices in it.

        Args:
            ranked: the GPUs that can take it, the GPU policy's first choice first; enough.
        """
        name, count = self._name(pod_request), pod_request.gpu_count
        if name == SIMPLE or not _searched(node_info.shape, ranked, count):
            return tuple(sorted(ranked[:count]))
        free, matrix = sorted(ranked), node_info.shape.matrix
        best = self._group(node_info, free, count, pod_request)
        if name == STATIC:
            return best.gpus

        def worth(group: GpuGroup) -> tuple[int, int]:
            return matrix.slowest_of(group.gpus) if name == BANDWIDTH else 0, group.score

        settled: list[GpuIndex] = []
        for gpu in ranked:
            if gpu not in best.gpus and len(settled) < count:
                other = self._group(node_info, free, count, pod_request, require=(*settled, gpu))
                best = other if worth(other) >= worth(best) else best
            if gpu in best.gpus:
                settled.append(gpu)
        return best.gpus

    def rate(
        self,
        node_info: NodeInfo,
        pod_request: PodRequest,
        gpus: Sequence[GpuIndex],
        packing: float,
    ) -> float:
        """How good ``gpus`` are for the pod, 0 to 1: by their links where those matter.

        A node with unknown links is rated by ``packing``, but never above a group that is linked
            across CPU sockets: it must not win over GPUs with known links.

        Args:
            packing: rating by the GPU policy, 0 to 1.
        """
        if len(gpus) < 2 or self._name(pod_request) == SIMPLE:
            return packing
        matrix = node_info.shape.matrix
        if not matrix.links or len(gpus) > MAX_GPUS:
            return packing / MAX_RATING
        return rating(GpuGroup(tuple(gpus), matrix.sum_of(gpus))) / MAX_RATING

    def _name(self, pod_request: PodRequest) -> str:
        return pod_request.topology or self.policy

    def _group(
        self,
        node_info: NodeInfo,
        free: Sequence[GpuIndex],
        count: int,
        pod_request: PodRequest,
        require: Sequence[GpuIndex] = (),
    ) -> GpuGroup:
        shape, name = node_info.shape, self._name(pod_request)
        for policy in (name, BEST_EFFORT):
            if policy != STATIC and not _searched(shape, free, count):
                return GpuGroup(tuple(free[:count]), 0)
            among = free if policy == STATIC else _different(shape.matrix, free, count, require)
            group = plan(
                shape.matrix,
                among,
                count,
                require,
                policy=policy,
                node_type=shape.node_type,
                static=self.static,
                wait=self.wait,
                partition=False,
            )
            if not isinstance(group, Impossible):
                return group
        raise ValueError(f"{count} of {len(free)} GPUs: the caller found that they fit")


def _searched(shape: NodeCapacity, free: Sequence[GpuIndex], count: int) -> bool:
    """Whether a group is searched: a node may state any number of GPUs, and no machine has these.

    The search would take minutes for a thousand GPUs. MIG instances are not linked.
    """
    return count > 1 and len(free) <= MAX_GPUS and _known(shape.matrix)


def _different(
    matrix: Matrix, free: Sequence[GpuIndex], count: int, require: Sequence[GpuIndex]
) -> Sequence[GpuIndex]:
    """The free GPUs among which a group is searched: of equal ones no more than it could take.

    GPUs without links, such as MIG instances, differ by nothing but their index; a node has up to
    56 of them and more.
    """
    if len(free) <= MAX_EXACT:
        return free
    unlinked = [gpu for gpu in free if gpu not in matrix.linked and gpu not in require]
    dropped = frozenset(unlinked[count:])
    return [gpu for gpu in free if gpu not in dropped]


BY_LINKS: Final = Grouping()
"""The default choice."""


class Rules(msgspec.Struct, frozen=True):
    """How GPUs are chosen: the policy's name, and the grouping of several GPUs."""

    policy: str = ""
    grouping: Grouping = BY_LINKS


LargeMachine = tuple[Scores, tuple[int, ...]]
"""Scores and NUMA nodes of 9 to 16 GPUs, by which their tables are kept."""


def large_machine(shape: NodeCapacity) -> LargeMachine | None:
    """The machine whose tables a node needs; ``None`` where these take no time or do not exist."""
    gpus = len(shape.inventory.gpus) if shape.inventory else 0
    if not MAX_IMMEDIATE < gpus <= MAX_EXACT or not _known(shape.matrix):
        return None
    return shape.matrix.scores, shape.matrix.numas


def prepared(shape: NodeCapacity) -> bool:
    """Whether groups on such a node are chosen without computing for long."""
    machine = large_machine(shape)
    return machine is None or choice.prepared(*machine)


def prepare(shape: NodeCapacity) -> Iterator[None]:
    """Compute what :func:`prepared` finds missing, with a pause after every small step."""
    machine = large_machine(shape)
    if machine is not None:
        yield from choice.prepare(*machine)


def _known(matrix: Matrix) -> bool:
    """Whether the links of the GPUs or their NUMA nodes are known."""
    return bool(matrix.links or matrix.numa)
