"""Nodes as the read API shows them: for ``/api/v1``, and for ``inspect`` of both extenders of 2019.

In ``/api/v1`` amounts of memory are in the unit of the node, which stands beside them; ``null`` is
an unknown unit (an original device plugin).

In ``inspect`` the names of fields are law. The share extender counts units of memory. Figures are
the ledger's: unlike the original's, ``usedGPU`` of a node and the pods of its GPUs agree, nodes
show before the first request for them, and an unknown node is a clean error.

The topology extender counts full GPUs, as ``kubectl inspect gpu`` reads them. With ``detail`` each
node has its links as numbers: 1 to 6 for the kinds of PCIe paths, 7 to 12 for one to six NVLinks,
and 0 for a GPU itself, an unknown link and, as the original wrote, every link of a GPU that is in
use. A node that states more GPUs than a machine has is shown without links.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from gpucore.accounting.claims import holder
from gpucore.accounting.device_info import DeviceInfo
from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.scheduling.grouping import STATIC, Grouping
from gpucore.units import GpuIndex, NodeName
from gpucore.wire.node.matrices import MAX_GPUS
from gpukube.server.time_slices import TimeSlices


class PodView(msgspec.Struct, rename="camel"):
    """A pod on a GPU: units of memory, percent of compute, or the exclusive GPU."""

    namespace: str
    name: str
    uid: str
    state: str
    units: int
    core: int
    exclusive: bool


class GpuView(msgspec.Struct, rename="camel"):
    """A GPU. ``total`` is what may be given out; ``free`` is never below zero."""

    index: int
    uuid: str
    model: str
    total: int
    used: int
    free: int
    core_used: int
    healthy: bool
    overfull: bool
    isolation: str
    pods: list[PodView]


class NodeView(msgspec.Struct, rename="camel"):
    """A node. ``pending`` units are held by pods on no known GPU."""

    name: str
    present: bool
    unit: str | None
    total: int
    used: int
    free: int
    pending: int
    policy: str
    faults: list[str]
    gpus: list[GpuView]


class NodesView(msgspec.Struct):
    """All nodes that have GPUs or are held to have some, by name."""

    nodes: list[NodeView]


async def nodes_view(ledger: Ledger, slices: TimeSlices) -> NodesView:
    """All nodes of interest."""
    views = []
    for node_info in sorted(ledger.nodes().values(), key=lambda node_info: node_info.name):
        if node_info.devices:
            views.append(node_view(node_info))
            await slices.yield_to_loop()
    return NodesView(views)


def node_view(node_info: NodeInfo) -> NodeView:
    """One node."""
    return NodeView(
        name=node_info.name,
        present=node_info.present,
        unit=None if node_info.unit is None else str(node_info.unit),
        total=node_info.total_units,
        used=node_info.used_units,
        free=max(node_info.free_units() - node_info.reserved_units(), 0),
        pending=node_info.pending,
        policy=node_info.shape.policy,
        faults=list(node_info.shape.faults),
        gpus=[_gpu_view(node_info, gpu) for gpu in node_info.devices.values()],
    )


def _gpu_view(node_info: NodeInfo, device: DeviceInfo) -> GpuView:
    gpu = device.gpu
    return GpuView(
        index=device.index,
        uuid=gpu.uuid if gpu else "",
        model=gpu.model if gpu else "",
        total=device.total,
        used=device.used,
        free=device.free,
        core_used=device.core_used,
        healthy=device.healthy,
        overfull=device.overfull,
        isolation=gpu.isolation if gpu else "",
        pods=list(_pod_views(node_info, device)),
    )


def _pod_views(node_info: NodeInfo, device: DeviceInfo) -> Iterable[PodView]:
    for uid, hold in device.holders.items():
        allocation = node_info.allocations[uid]
        user, name = holder(allocation)
        yield PodView(
            allocation.namespace,
            name,
            user,
            allocation.state,
            hold.mem,
            hold.core,
            hold.exclusive,
        )


class PodUse(msgspec.Struct, rename={"used_gpu": "usedGPU"}):
    """A pod on a GPU; units."""

    name: str
    namespace: str
    used_gpu: int


class GpuUseDoc(msgspec.Struct, rename={"total_gpu": "totalGPU", "used_gpu": "usedGPU"}):
    """A GPU; units."""

    id: int
    total_gpu: int
    used_gpu: int
    pods: list[PodUse]


class NodeUse(msgspec.Struct, rename={"total_gpu": "totalGPU", "used_gpu": "usedGPU"}):
    """A node; units."""

    name: str
    total_gpu: int
    used_gpu: int
    devs: list[GpuUseDoc]


class Inspection(msgspec.Struct, omit_defaults=True):
    """The whole answer; ``error`` is left out when there is none."""

    nodes: list[NodeUse] | None
    error: str = ""


async def inspect_all(ledger: Ledger, slices: TimeSlices) -> Inspection:
    """Every node that offers GPU memory or is held to give some."""
    nodes = []
    for node_info in sorted(ledger.nodes().values(), key=lambda node_info: node_info.name):
        if _shared(node_info):
            nodes.append(_node(node_info))
            await slices.yield_to_loop()
    return Inspection(nodes)


def inspect_node(ledger: Ledger, name: str) -> Inspection:
    """One node, whatever it offers."""
    node_info = ledger.node(NodeName(name))
    if node_info is None:
        return Inspection(None, f"node {name} is not known")
    return Inspection([_node(node_info)])


def _shared(node_info: NodeInfo) -> bool:
    shape = node_info.shape
    return shape.offers_shares or shape.claims or bool(node_info.allocations)


def _node(node_info: NodeInfo) -> NodeUse:
    return NodeUse(
        node_info.name,
        node_info.total_units,
        node_info.used_units,
        [_gpu(node_info, gpu) for gpu in node_info.devices.values()],
    )


def _gpu(node_info: NodeInfo, device: DeviceInfo) -> GpuUseDoc:
    pods: Iterable[PodUse] = (
        PodUse(holder(held := node_info.allocations[uid])[1], held.namespace, hold.mem)
        for uid, hold in device.holders.items()
    )
    return GpuUseDoc(device.index, device.total, device.used, list(pods))


_PATHS: Final = {"PSB": 1, "PIX": 2, "PXB": 3, "PHB": 4, "NODE": 5, "SYS": 6}
_NVLINK: Final = "NV"
_MOST_NVLINKS: Final = 6


class TopologyNode(
    msgspec.Struct,
    omit_defaults=True,
    rename={"total": "totalGPU", "used": "usedGPU", "static_config": "staticConfig"},
):
    """A node; exclusive GPUs."""

    name: str
    total: int
    used: int
    topology: list[list[int]] | None = None
    type: str = ""
    static_config: dict[str, list[list[int]]] | None = None


class TopologyInspection(msgspec.Struct, omit_defaults=True):
    """The whole answer."""

    nodes: list[TopologyNode] | None
    error: str = ""
    policy: str = ""


class TopologyInspector:
    """Answers for one ledger."""

    def __init__(self, ledger: Ledger, grouping: Grouping) -> None:
        self._ledger = ledger
        self._grouping = grouping
        self._policy = grouping.policy.replace("-", "_")  # the original's spelling

    async def everything(self, slices: TimeSlices, *, detail: bool) -> TopologyInspection:
        """Every node that offers exclusive GPUs, or on which pods hold some."""
        nodes = []
        for node_info in sorted(
            self._ledger.nodes().values(), key=lambda node_info: node_info.name
        ):
            if node_info.shape.offers_gpus or _gpus_in_use(node_info):
                nodes.append(self._node(node_info, detail=detail))
                await slices.yield_to_loop()
        return TopologyInspection(nodes, policy=self._policy)

    def one(self, name: str, *, detail: bool) -> TopologyInspection:
        """One node, whatever it offers."""
        node_info = self._ledger.node(NodeName(name))
        if node_info is None:
            return TopologyInspection(None, f"node {name} is not known")
        return TopologyInspection([self._node(node_info, detail=detail)], policy=self._policy)

    def _node(self, node_info: NodeInfo, *, detail: bool) -> TopologyNode:
        there = [index for index, device in node_info.devices.items() if device.gpu]
        node = TopologyNode(node_info.name, len(there), _gpus_in_use(node_info))
        if detail:
            node.topology = _links(node_info, there) if len(there) <= MAX_GPUS else None
            node.type = node_info.shape.node_type
            node.static_config = self._sets(node_info.shape.node_type)
        return node

    def _sets(self, node_type: str) -> dict[str, list[list[int]]] | None:
        found = self._grouping.static.get(node_type)
        if found is None or self._grouping.policy != STATIC:
            return None
        sets: Mapping[int, tuple[tuple[int, ...], ...]] = found.sets
        return {str(size): [list(group) for group in groups] for size, groups in sets.items()}


def _gpus_in_use(node_info: NodeInfo) -> int:
    """GPUs with allocations, and those that pods hold on unknown GPUs."""
    held = sum(1 for device in node_info.devices.values() if not device.empty)
    return held + node_info.pending_gpus


def _links(node_info: NodeInfo, indexes: Collection[GpuIndex]) -> list[list[int]]:
    free = {index for index in indexes if node_info.devices[index].empty}
    matrix = node_info.shape.matrix
    return [
        [_code(matrix.between(a, b)) if a != b and {a, b} <= free else 0 for b in indexes]
        for a in indexes
    ]


def _code(links: tuple[str, ...]) -> int:
    """NVLinks before the PCIe path."""
    for link in links:
        count = link.removeprefix(_NVLINK)
        if count != link and count.isdecimal():
            return _PATHS["SYS"] + min(int(count), _MOST_NVLINKS)
    return next((_PATHS[link] for link in links if link in _PATHS), 0)
