"""Unit and GPU sizes of the nodes of a cluster."""

from collections.abc import Collection

from gpucore.accounting.node_info import NodeInfo
from gpucore.units import MemoryUnit


def common_unit(node_infos: Collection[NodeInfo]) -> MemoryUnit | None:
    """The unit of all nodes; ``None`` where they differ or none has one."""
    units = {each.unit for each in node_infos if each.unit is not None}
    return units.pop() if len(units) == 1 else None


def gpu_sizes(node_infos: Collection[NodeInfo]) -> set[int]:
    """Units of the GPUs that nodes have."""
    shapes = (each.shape for each in node_infos if each.shape.inventory is not None)
    return {
        gpu.units * shape.oversell
        for shape in shapes
        for gpu in (shape.inventory.gpus if shape.inventory else ())
    }
