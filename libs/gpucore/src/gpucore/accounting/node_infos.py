"""The nodes of the ledger: what each has, what is allocated there, and their aggregates.

A node that vanishes stays while something is allocated on it. The capacity of a node and the links
of its GPUs are in its object; labels with invalid values are faults to report, never an error.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import msgspec

from gpucore.accounting.node_capacity import ABSENT, NodeCapacity
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Inventory
from gpucore.model.links import Matrix
from gpucore.units import GpuIndex, NodeName
from gpucore.wire import names as wire_names
from gpucore.wire.names import Names
from gpucore.wire.node.inventories import inventory_of
from gpucore.wire.node.matrices import joined
from gpucore.wire.node.spec import Node, oversell_fault, oversell_of
from gpucore.wire.quantity import amount, number


class NodeInfos:
    """State of all nodes, by name.

    Attributes:
        names: resource domain and annotation prefix.
        reshaped: called with the name of a node whose capacity has changed.
    """

    def __init__(self, names: Names) -> None:
        self.names = names
        self.reshaped: Callable[[NodeName], object] = lambda _: None
        self._largest_shares: dict[NodeName, int] = {}
        self._free_gpu_counts: dict[NodeName, int] = {}
        self._free_full_gpu_counts: dict[NodeName, int] = {}
        self._free_units: dict[NodeName, int] = {}
        self._unpublished: dict[NodeName, None] = {}
        self._node_infos: dict[NodeName, NodeInfo] = {}
        self._objects: dict[NodeName, Node] = {}
        self._unhealthy: dict[NodeName, frozenset[GpuIndex]] = {}
        self._offered: dict[NodeName, Inventory] = {}

    def node(self, name: NodeName) -> NodeInfo | None:
        """State of one node, also of a removed one that still has allocations."""
        return self._node_infos.get(name)

    def nodes(self) -> Mapping[NodeName, NodeInfo]:
        """State of all nodes, by name."""
        return MappingProxyType(self._node_infos)

    def node_objects(self) -> Mapping[NodeName, Node]:
        """The nodes that exist, as they were last listed or watched."""
        return MappingProxyType(self._objects)

    @property
    def largest_shares(self) -> Mapping[NodeName, int]:
        """By node, the largest one-GPU share of memory that fits now; -1 where none is offered."""
        self._publish()
        return self._largest_shares

    @property
    def free_gpu_counts(self) -> Mapping[NodeName, int]:
        """By node, how many exclusive GPUs fit now; -1 where none are offered."""
        self._publish()
        return self._free_gpu_counts

    @property
    def free_full_gpu_counts(self) -> Mapping[NodeName, int]:
        """As ``free_gpu_counts``, of the GPUs that are no MIG instances."""
        self._publish()
        return self._free_full_gpu_counts

    @property
    def free_units(self) -> Mapping[NodeName, int]:
        """By node, the units left on GPUs that may be given out."""
        self._publish()
        return self._free_units

    def node_changed(self, node: Node) -> None:
        """A node was added or changed.

        Raises:
            WireError: a capacity is no Kubernetes quantity (the API server accepts no such node).
        """
        known = self._objects.get(node.name)
        self._objects[node.name] = node
        if known is None or not _same_shape(known, node):
            self._reshape(node.name)

    def node_gone(self, name: NodeName) -> None:
        """A node was deleted; claims on it stay."""
        if self._objects.pop(name, None) is not None:
            self._reshape(name)

    def relist_nodes(self, nodes: Iterable[Node]) -> None:
        """These are all nodes there are."""
        listed = {node.name: node for node in nodes}
        for name in self._objects.keys() - listed.keys():
            self.node_gone(name)
        for node in listed.values():
            self.node_changed(node)

    def unhealthy_changed(self, node: NodeName, indexes: frozenset[GpuIndex]) -> None:
        """The legacy ConfigMap withdraws these GPUs of ``node``; an empty set withdraws none."""
        if self._unhealthy.get(node, frozenset()) == indexes:
            return
        self._unhealthy[node] = indexes
        if not indexes:
            del self._unhealthy[node]
        if node in self._objects:
            self._reshape(node)

    def offered_changed(self, node: NodeName, offered: Inventory | None) -> None:
        """The GPUs that a node offers as claims; ``None`` where it has no ResourceSlice."""
        if self._offered.get(node) == offered:
            return
        if offered is None:
            del self._offered[node]
        else:
            self._offered[node] = offered
        if node in self._objects:
            self._reshape(node)

    def _node_info(self, name: NodeName) -> NodeInfo:
        node_info = self._node_infos.get(name)
        if node_info is None:
            node_info = self._node_infos[name] = NodeInfo(name)
        return node_info

    def _reshape(self, name: NodeName) -> None:
        node_info, node = self._node_info(name), self._objects.get(name)
        unhealthy = self._unhealthy.get(name, frozenset())
        shape = ABSENT
        if node is not None:
            shape = capacity_of(node, self.names, unhealthy, self._offered.get(name))
        if shape != node_info.shape:
            node_info.reshape(shape)
            self.reshaped(name)
        self._note(node_info)

    def _note(self, node_info: NodeInfo) -> None:
        """A node's state changed; remove it when neither node nor allocation is left."""
        name = node_info.name
        if node_info.present or node_info.allocations:
            self._unpublished[name] = None
            return
        del self._node_infos[name]
        self._unpublished.pop(name, None)
        self._largest_shares.pop(name, None)
        self._free_gpu_counts.pop(name, None)
        self._free_full_gpu_counts.pop(name, None)
        self._free_units.pop(name, None)

    def _publish(self) -> None:
        """Update the aggregates of the nodes that changed since."""
        for name in self._unpublished:
            node_info = self._node_infos[name]
            self._largest_shares[name] = node_info.max_allocatable_memory
            self._free_gpu_counts[name] = node_info.free_gpus
            self._free_full_gpu_counts[name] = node_info.free_full_gpus
            self._free_units[name] = node_info.free_units()
        self._unpublished.clear()


def _same_shape(old: Node, new: Node) -> bool:
    """Nothing that a shape is read from has changed; heartbeats end here."""
    return (
        old.capacity == new.capacity
        and old.labels == new.labels
        and old.annotations == new.annotations
    )


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
        max_pods=_max_pods(node.labels, faults),
        oversell=_oversell(node.labels, faults),
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


def _max_pods(labels: Mapping[str, str], faults: list[str]) -> int:
    text = labels.get(wire_names.LABEL_MAX_POD)
    if text is None:
        return 0
    value = number(text, below=1 << 10)
    if value:
        return value
    faults.append(f"label {wire_names.LABEL_MAX_POD} is not a number from 1 to 1023")
    return 0


def _oversell(labels: Mapping[str, str], faults: list[str]) -> int:
    fault = oversell_fault(labels)
    if fault:
        faults.append(fault)
    return oversell_of(labels)
