"""The original's format for unhealthy GPUs: a ConfigMap per node.

The original marked GPU 0 for every element it could not read. Here such an element marks nothing:
a typing mistake must not take a good GPU away, and the named ones are still withdrawn.
"""

from collections.abc import Mapping

from gpucore.units import GpuIndex, NodeName
from gpucore.wire.digits import number
from gpucore.wire.names import MANAGED_BY, PLUGIN, UNHEALTHY_PREFIX
from gpucore.wire.pod.allocation_map import MAX_INDEX


def unhealthy_node(config_map: str) -> NodeName | None:
    """The node that a ConfigMap of this name speaks of, or ``None``."""
    node = config_map.removeprefix(UNHEALTHY_PREFIX)
    return NodeName(node) if node and node != config_map else None


def kept_by_plugin(labels: Mapping[str, str] | None) -> bool:
    """The ConfigMap with this label is written by this project's plugin, for original extenders.

    It repeats the node's inventory but arrives at another time: a pod that a scheduler retries when
    the inventory arrives must not be refused because of the previous list.
    """
    return (labels or {}).get(MANAGED_BY) == PLUGIN


def unhealthy_indexes(text: str) -> frozenset[GpuIndex]:
    """Indexes in a comma list such as ``0, 2``; elements that are none are passed over."""
    found = (number(part.strip(), below=MAX_INDEX) for part in text.split(","))
    return frozenset(GpuIndex(index) for index in found if index is not None)
