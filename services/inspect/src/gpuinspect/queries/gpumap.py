"""Every GPU of the cluster as a cell of a map: figures in GiB, pods, and where a share fits."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo, unit_of
from gpucore.model import PodRequest
from gpucore.scheduling.device_fit import device_fit_error
from gpucore.scheduling.fit import fit
from gpucore.units import GpuIndex, MemoryUnit, NodeName
from gpucore.wire.node.spec import Node
from gpuinspect.queries.views import ClusterView, GpuSummary, NodeSummary, in_natural_order, natural

LABEL: Final = "label:"
POOL_LABELS: Final = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "karpenter.sh/nodepool",
)
RACK_LABELS: Final = ("topology.kubernetes.io/rack", "rack")
_LABELS: Final = {"pool": POOL_LABELS, "rack": RACK_LABELS}
GROUPS: Final = ("model", *_LABELS)
"""What GPUs are grouped by, beside any label of their node."""
NO_MODEL: Final = "unknown model"
_MIB_PER_GIB: Final = 1024
InUse = Callable[[str], float | None]


class PodOnGpu(msgspec.Struct, frozen=True):
    """One pod and its memory on the GPU, in GiB."""

    namespace: str
    name: str
    gib: float


class GpuCell(msgspec.Struct, frozen=True, rename="camel"):
    """One GPU; memory is in GiB.

    ``inUse`` is ``null`` where it is unknown. ``health`` is ``healthy``, ``unhealthy``,
    ``cordoned`` or ``not ready``; the last two are states of the node. ``fits`` is ``null`` where
    no size was given.

    Attributes:
        state: of the GPU, or of its node.
        fits: a share of the given size fits now.
    """

    node: NodeName
    index: GpuIndex
    uuid: str
    model: str
    allocated: float
    total: float
    in_use: float | None
    state: str = msgspec.field(name="health")
    exclusive: bool
    pods: tuple[PodOnGpu, ...]
    fits: bool | None = None

    @property
    def waste(self) -> float | None:
        """Memory that is allocated and not in use; ``None`` where use is unknown."""
        return None if self.in_use is None else max(self.allocated - self.in_use, 0.0)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Those of its pods, each once."""
        return tuple(dict.fromkeys(pod.namespace for pod in self.pods))


class CellGroup(msgspec.Struct, frozen=True):
    """GPUs with one model or one value of a label; ``name`` is empty without the label."""

    name: str
    gpus: tuple[GpuCell, ...]


def in_gib(units: float, unit: MemoryUnit) -> float:
    """An amount in GiB, exact to the MiB."""
    return round(units * unit.mib / _MIB_PER_GIB, 4)


def gpu_cells(view: ClusterView, in_use: InUse) -> tuple[GpuCell, ...]:
    """A cell for each GPU, in the natural order of nodes and pods.

    Args:
        in_use: GiB of the GPU with this UUID in use; ``None`` where it is unknown.
    """
    found = in_natural_order(view)
    return tuple(cell for node in found.nodes for cell in _of_node(node, view.unit, in_use))


def _of_node(node: NodeSummary, unit: MemoryUnit, in_use: InUse) -> Iterator[GpuCell]:
    pods: dict[GpuIndex, list[PodOnGpu]] = {}
    for pod in node.pods:
        for index, units in pod.gpus.items():
            found = PodOnGpu(pod.namespace, pod.name, in_gib(units, unit))
            pods.setdefault(index, []).append(found)
    for gpu in node.gpus:
        used = in_use(gpu.uuid)
        yield GpuCell(
            node=node.name,
            index=gpu.index,
            uuid=gpu.uuid,
            model=gpu.model,
            allocated=in_gib(gpu.used, unit),
            total=in_gib(gpu.total, unit),
            in_use=None if used is None else round(used, 4),
            state=_state(node, gpu),
            exclusive=gpu.exclusive,
            pods=tuple(pods.get(gpu.index, ())),
        )


def _state(node: NodeSummary, gpu: GpuSummary) -> str:
    if not gpu.healthy:
        return "unhealthy"
    if not node.ready:
        return "not ready"
    return "cordoned" if node.cordoned else "healthy"


def with_fits(cells: Iterable[GpuCell], ledger: Ledger, gib: int) -> tuple[GpuCell, ...]:
    """The cells, each with whether a share of ``gib`` GiB fits on its GPU now.

    The GPU must be healthy, and its node ready and without a cordon. Taints of the node, and what
    a pod requires of it, are not considered.
    """
    infos = ledger.nodes()
    fitting = {name: frozenset(_fitting(info, gib)) for name, info in infos.items()}
    return tuple(
        msgspec.structs.replace(
            cell, fits=cell.state == "healthy" and cell.index in fitting.get(cell.node, ())
        )
        for cell in cells
    )


def _fitting(info: NodeInfo, gib: int) -> Iterator[GpuIndex]:
    pod_request = PodRequest((), mem=unit_of(info).units_for(gib * _MIB_PER_GIB))
    if fit(info, pod_request) is None:
        for index, device in info.devices.items():
            if device_fit_error(device, pod_request) is None:
                yield index


def grouped_cells(
    cells: Iterable[GpuCell], nodes: Mapping[NodeName, Node], by: str
) -> tuple[CellGroup, ...]:
    """The cells by model or by a label of their nodes, in natural order; without one, last.

    Args:
        by: one of :data:`GROUPS`, or ``label:KEY``.
    """
    found: dict[str, list[GpuCell]] = {}
    for cell in cells:
        found.setdefault(_group(cell, nodes, by), []).append(cell)
    names = sorted(found, key=lambda name: (not name, natural(name)))
    return tuple(CellGroup(name, tuple(found[name])) for name in names)


def _group(cell: GpuCell, nodes: Mapping[NodeName, Node], by: str) -> str:
    if by == "model":
        return cell.model or NO_MODEL
    keys = _LABELS.get(by, (by.removeprefix(LABEL),))
    labels = nodes[cell.node].labels
    return next((labels[key] for key in keys if labels.get(key)), "")
