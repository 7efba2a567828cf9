"""The legacy way to say that cards are unhealthy: a ConfigMap per node.

The original marked card 0 for every element it could not read. Here such an element marks nothing:
a typing mistake must not take a good card away, and the named ones are still withdrawn.
"""

from collections.abc import Mapping

from gpucore.units import GpuIndex, NodeName
from gpucore.wire.allocations import MAX_INDEX
from gpucore.wire.digits import number
from gpucore.wire.names import MANAGED_BY, PLUGIN, UNHEALTHY_PREFIX


def unhealthy_node(config_map: str) -> NodeName | None:
    """The node that a ConfigMap of this name speaks of, or ``None``."""
    node = config_map.removeprefix(UNHEALTHY_PREFIX)
    return NodeName(node) if node and node != config_map else None


def kept_by_plugin(labels: Mapping[str, str] | None) -> bool:
    """The ConfigMap so labelled is our plugin's, for original extenders.

    It says nothing that the node's inventory does not say, but says it at another time: a pod
    that a scheduler tries when the inventory comes must not be refused for the list of before.
    """
    return (labels or {}).get(MANAGED_BY) == PLUGIN


def unhealthy_indexes(text: str) -> frozenset[GpuIndex]:
    """Indexes in a comma list such as ``0, 2``; elements that are none are passed over."""
    found = (number(part.strip(), below=MAX_INDEX) for part in text.split(","))
    return frozenset(GpuIndex(index) for index in found if index is not None)
