"""Capacity of a node without usage: GPUs, resources, limits, policy.

Heartbeats change a node object every few seconds and its shape almost never; comparing shapes keeps
those events cheap. Labels with invalid values are faults to report, never an error.
"""

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Final

import msgspec

from gpucore.accounting.device_info import DeviceInfo
from gpucore.model import Gpu, Inventory
from gpucore.model.links import Matrix
from gpucore.units import GpuIndex, GpuUuid, MemoryUnit
from gpucore.wire import names as wire_names
from gpucore.wire.digits import number
from gpucore.wire.names import Names
from gpucore.wire.node.inventories import inventory_of
from gpucore.wire.node.matrices import joined
from gpucore.wire.node.spec import Node
from gpucore.wire.quantity import amount

MACHINES: Final = 1024
"""Kinds of machines whose links are kept read."""


class NodeCapacity(msgspec.Struct, frozen=True, dict=True):
    """The properties of a node that accounting and placement use.

    Attributes:
        present: the node exists.
        inventory: its GPUs; ``None`` where their number is unknown.
        offers_shares: kubelet reports the resource of memory units here.
        offers_gpus: kubelet reports the resource of exclusive GPUs here.
        policy: name in its label; empty for the default.
        max_pods: pods a GPU takes; 0 any number.
        oversell: how many times a GPU's memory may be allocated.
        unhealthy: GPUs that the legacy ConfigMap withdraws.
        node_type: which sets of GPUs are configured for it; empty for none.
        claims: its GPUs are offered as ResourceClaims, in a ResourceSlice.
        topology: links as the 2019 plugin wrote them, where the inventory has none.
        faults: labels with invalid values, as sentences.
    """

    present: bool = True
    inventory: Inventory | None = None
    offers_shares: bool = False
    offers_gpus: bool = False
    policy: str = ""
    max_pods: int = 0
    oversell: int = 1
    unhealthy: frozenset[GpuIndex] = frozenset()
    node_type: str = ""
    topology: str = ""
    faults: tuple[str, ...] = ()
    claims: bool = False

    @property
    def unit(self) -> MemoryUnit | None:
        """The size of a unit; ``None`` where it is unknown."""
        return self.inventory.unit if self.inventory else None

    @property
    def largest_gpu(self) -> int:
        """Units of the largest GPU, oversell included."""
        gpus = self.inventory.gpus if self.inventory else ()
        return max((gpu.units for gpu in gpus), default=0) * self.oversell

    @cached_property
    def matrix(self) -> Matrix:
        """The links of its GPUs; decoded at the first request for several GPUs."""
        if self.inventory is None:
            return Matrix(gpus=())
        gpus = tuple((gpu.index, gpu.numa) for gpu in self.inventory.gpus)
        return _matrix(gpus, tuple(self.inventory.links.items()), self.topology)

    def devices_without_allocations(self) -> dict[GpuIndex, DeviceInfo]:
        """The state of every GPU without allocations, in order of index."""
        gpus = self.inventory.gpus if self.inventory else ()
        return {
            gpu.index: DeviceInfo.of(
                gpu,
                oversell=self.oversell,
                healthy=gpu.healthy and gpu.index not in self.unhealthy,
                max_pods=self.max_pods,
            )
            for gpu in gpus
        }

    def counted(self, amount: int, unit: MemoryUnit | None) -> int:
        """``amount`` of ``unit`` in units of this node, rounded up where they do not divide."""
        mine = self.unit
        if unit is None or mine is None or unit == mine:
            return amount
        return mine.units_for(amount * unit.mib)


ABSENT = NodeCapacity(present=False)


@lru_cache(MACHINES)
def _matrix(
    numas: tuple[tuple[GpuIndex, int], ...],
    links: tuple[tuple[str, tuple[str, ...]], ...],
    text: str,
) -> Matrix:
    """The matrix of all nodes whose GPUs (index and NUMA node) are joined alike: one reading."""
    gpus = tuple(Gpu(index, GpuUuid(""), 0, numa=numa) for index, numa in numas)
    return joined(Inventory(gpus=gpus, links=dict(links)), text)


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
