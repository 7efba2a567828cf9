"""What the tables and documents show of a cluster: plain figures, all in one unit of memory.

Made from the ledger by :mod:`gpuinspect.queries.shares`; nothing here decides or adds up
differently from what the scheduler extender sees.
"""

from collections.abc import Mapping

import msgspec

from gpucore.model.links import Matrix
from gpucore.units import GpuIndex, MemoryUnit, NodeName


class GpuSummary(msgspec.Struct, frozen=True):
    """One GPU of a node.

    Attributes:
        total, used: memory in units; ``used`` may exceed ``total`` and is then over-full.
        core: percent of compute in use.
        whole: a pod holds the GPU as a whole.
        mode: what enforces shares: ``none``, ``mps`` or ``mig``.
    """

    index: GpuIndex
    total: int
    used: int
    core: int = 0
    whole: bool = False
    healthy: bool = True
    mode: str = "none"
    model: str = ""
    uuid: str = ""
    memory_mib: int = 0


class PodSummary(msgspec.Struct, frozen=True):
    """What one pod holds on its node.

    Attributes:
        gpus: units on each GPU it has a share of.
        limits: units of each GPU that it may use where these are more than its share.
        core: percent of compute on each GPU.
        group: GPUs it holds as a whole.
        pending: units on the node but on no known GPU.
        state: ``bound`` until the node has handed the GPUs out, then ``confirmed``.
        faults: sentences about errors in its annotations.
        claim: name of the ResourceClaim that holds it; empty for a pod of the device plugin. Where
            no pod or several may use the claim, ``uid`` and ``name`` are those of the claim.
    """

    uid: str
    namespace: str
    name: str
    gpus: Mapping[GpuIndex, int] = msgspec.field(default_factory=dict)
    limits: Mapping[GpuIndex, int] = msgspec.field(default_factory=dict)
    core: Mapping[GpuIndex, int] = msgspec.field(default_factory=dict)
    group: tuple[GpuIndex, ...] = ()
    pending: int = 0
    state: str = "bound"
    faults: tuple[str, ...] = ()
    claim: str = ""


class NodeSummary(msgspec.Struct, frozen=True):
    """One node that shares its GPUs.

    Attributes:
        address: first InternalIP; empty unknown.
        total: units of the node; without an inventory not always the sum of the GPUs.
        used: units in use, those on no known GPU included.
        pending: units bound to the node, GPU unknown.
        lost: units on GPUs that the node no longer has.
        explicit: the node publishes its unit; otherwise the unit is derived from the figures.
    """

    name: NodeName
    address: str
    gpus: tuple[GpuSummary, ...]
    total: int
    used: int
    pending: int = 0
    lost: int = 0
    pods: tuple[PodSummary, ...] = ()
    ready: bool = True
    cordoned: bool = False
    explicit: bool = True
    unit: str = "GiB"
    driver: str = ""

    @property
    def healthy_part(self) -> "NodeSummary":
        """The node without its unhealthy GPUs."""
        ill = [gpu for gpu in self.gpus if not gpu.healthy]
        return msgspec.structs.replace(
            self,
            gpus=tuple(gpu for gpu in self.gpus if gpu.healthy),
            total=self.total - sum(gpu.total for gpu in ill),
            used=self.used - sum(gpu.used for gpu in ill),
        )

    @property
    def width(self) -> int:
        """Columns its GPUs need: one past the highest index."""
        return max((gpu.index + 1 for gpu in self.gpus), default=0)

    def gpu(self, index: int) -> GpuSummary | None:
        """The GPU with this index."""
        return next((gpu for gpu in self.gpus if gpu.index == index), None)


class ClusterView(msgspec.Struct, frozen=True):
    """The nodes that share their GPUs, by name, with every amount in ``unit``."""

    nodes: tuple[NodeSummary, ...]
    unit: MemoryUnit

    @property
    def width(self) -> int:
        """Columns the GPUs of all nodes need."""
        return max((node.width for node in self.nodes), default=0)

    @property
    def total(self) -> int:
        """Units of all nodes."""
        return sum(node.total for node in self.nodes)

    @property
    def used(self) -> int:
        """Units in use on all nodes."""
        return sum(node.used for node in self.nodes)

    @property
    def schedulable(self) -> "ClusterView":
        """The part of it that takes new pods: healthy GPUs of ready nodes without a cordon."""
        nodes = (node for node in self.nodes if node.ready and not node.cordoned)
        return ClusterView(tuple(node.healthy_part for node in nodes), self.unit)


class GpuWithPods(msgspec.Struct, frozen=True):
    """One GPU and who holds it, as ``namespace/name``."""

    index: int
    uuid: str
    model: str
    numa: int
    healthy: bool
    holders: tuple[str, ...]


class GpuNode(msgspec.Struct, frozen=True):
    """The GPUs of one node with their links; no matrix where the node publishes no links."""

    name: str
    node_type: str
    gpus: tuple[GpuWithPods, ...]
    matrix: Matrix | None

    @property
    def used(self) -> tuple[int, ...]:
        """Indexes of the GPUs that pods hold."""
        return tuple(device.index for device in self.gpus if device.holders)


def percent(part: int, whole: int) -> int:
    """Whole percent, rounded down; 0 of nothing."""
    return part * 100 // whole if whole > 0 else 0


def of_namespace(view: ClusterView, namespace: str) -> ClusterView:
    """The rows of one namespace, all where none is named; the sums stay those of the node."""
    if not namespace:
        return view
    nodes = (
        msgspec.structs.replace(
            node, pods=tuple(pod for pod in node.pods if pod.namespace == namespace)
        )
        for node in view.nodes
    )
    return msgspec.structs.replace(view, nodes=tuple(nodes))
