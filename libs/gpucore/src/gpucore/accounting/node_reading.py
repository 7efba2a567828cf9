"""The capacity of a node, and the links of its GPUs, in its object.

Labels with invalid values are faults to report, never an error.
"""

from collections.abc import Mapping

import msgspec

from gpucore.accounting.node_capacity import NodeCapacity
from gpucore.model import Inventory
from gpucore.model.links import Matrix
from gpucore.units import GpuIndex
from gpucore.wire import names as wire_names
from gpucore.wire.names import Names
from gpucore.wire.node.inventories import inventory_of
from gpucore.wire.node.matrices import joined
from gpucore.wire.node.spec import Node
from gpucore.wire.quantity import amount, number


def capacity_of(
    node: Node,
    names: Names,
    unhealthy: frozenset[GpuIndex],
    offered: Inventory | None = None,
) -> NodeCapacity:
    """The shape in a node object.

    Args:
        unhealthy: GPUs that the legacy ConfigMap withdraws.
        offered: the GPUs of its ResourceSlice; ``None`` where it has none.

    Raises:
        WireError: a capacity is no Kubernetes quantity (the API server accepts no such node).
    """
    faults: list[str] = []
    inventory = _inventory(node, names, offered)
    silent = inventory is not None and not inventory.links
    return NodeCapacity(
        inventory=inventory,
        offers_shares=amount(node.capacity.get(names.gpu_mem, "0")) > 0,
        offers_gpus=amount(node.capacity.get(names.gpu, "0")) > 0,
        policy=_policy(node.labels, faults),
        max_pods=_positive(node.labels, wire_names.LABEL_MAX_POD, 0, faults),
        oversell=_positive(node.labels, wire_names.LABEL_OVERSELL, 1, faults),
        unhealthy=unhealthy,
        node_type=node.annotations.get(wire_names.NODE_TYPE, ""),
        topology=node.annotations.get(wire_names.NODE_TOPOLOGY, "") if silent else "",
        faults=tuple(faults),
        claims=offered is not None or _api(inventory) == wire_names.API_CLAIMS,
    )


def node_matrix(node: Node, names: Names) -> Matrix | None:
    """The links of a node's GPUs; ``None`` where it is not known to have GPUs.

    Our inventory comes first; a node without links there may still have the 2019 annotation.

    Raises:
        WireError: a capacity is no Kubernetes quantity.
    """
    inventory = inventory_of(node, names)
    if inventory is None:
        return None
    return joined(inventory, node.annotations.get(wire_names.NODE_TOPOLOGY))


def _api(inventory: Inventory | None) -> str:
    return inventory.api if inventory else ""


def _inventory(node: Node, names: Names, offered: Inventory | None) -> Inventory | None:
    """The GPUs of the ResourceSlice, with the links that only the annotation has."""
    published = inventory_of(node, names)
    if offered is None or published is None:
        return offered or published
    if [gpu.uuid for gpu in offered.gpus] != [gpu.uuid for gpu in published.gpus]:
        return offered
    return msgspec.structs.replace(offered, links=published.links, driver=published.driver)


def _policy(labels: Mapping[str, str], faults: list[str]) -> str:
    name = labels.get(wire_names.LABEL_PLACEMENT, "")
    if not name or name in wire_names.POLICY_NAMES:
        return name
    faults.append(f"label {wire_names.LABEL_PLACEMENT} is not a known policy")
    return ""


def _positive(labels: Mapping[str, str], key: str, default: int, faults: list[str]) -> int:
    text = labels.get(key)
    if text is None:
        return default
    value = number(text, below=1 << 10)
    if value:
        return value
    faults.append(f"label {key} is not a number from 1 to 1023")
    return default
