"""Machines whose links are known, as nodes of the API server."""

from collections.abc import Mapping

from corebuilders import NAMES, share_node

from gpucore.model import Gpu, Inventory
from gpucore.model.links import Matrix
from gpucore.testing.machines import DGX1_VOLTA, RTX8000
from gpucore.units import GpuIndex, GpuUuid
from gpucore.wire.node.spec import Node

VOLTA = DGX1_VOLTA.matrix
BRIDGED = RTX8000.matrix


def joined_gpus(matrix: Matrix, units: int = 16) -> Inventory:
    """An inventory of equal GPUs that are joined as a known machine's are."""
    gpus = tuple(Gpu(gpu, GpuUuid(f"GPU-{gpu}"), units) for gpu in matrix.gpus)
    links = {f"{a}-{b}": names for (a, b), names in matrix.links.items()}
    return Inventory(gpus=gpus, links=links)


def linked_node(
    name: str,
    matrix: Matrix = VOLTA,
    *,
    labels: Mapping[str, str] | None = None,
    node_type: str = "",
) -> Node:
    """A node that offers shares and exclusive GPUs of such a machine."""
    node = share_node(name, joined_gpus(matrix), whole=True, labels=labels)
    if node_type:
        node.annotations["NODE_TYPE"] = node_type
    return node


def bare_node(name: str, gpus: int, **annotations: str) -> Node:
    """A node of the 2019 topology plugin: a number of exclusive GPUs and its annotations."""
    capacity = {NAMES.gpu: str(gpus)}
    return Node(name=name, annotations=annotations, capacity=capacity, allocatable=capacity)


def indexes(*gpus: int) -> tuple[GpuIndex, ...]:
    """GPUs by their numbers."""
    return tuple(map(GpuIndex, gpus))
