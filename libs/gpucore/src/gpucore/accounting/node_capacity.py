"""Capacity of a node without usage: GPUs, resources, limits, policy.

Heartbeats change a node object every few seconds and its shape almost never; comparing shapes keeps
those events cheap. Labels with invalid values are faults to report, never an error.
"""

from functools import cached_property, lru_cache
from typing import Final

import msgspec

from gpucore.accounting.device_info import DeviceInfo
from gpucore.model import Gpu, Inventory
from gpucore.model.links import Matrix
from gpucore.units import GpuIndex, GpuUuid, MemoryUnit
from gpucore.wire.node.matrices import joined

MACHINES: Final = 1024
"""Kinds of machines whose links are kept read."""
KEPT_GPUS: Final = 128
"""GPUs and MIG instances of a machine whose links are kept."""
KEPT_LENGTH: Final = 8192
"""Characters of the links of a machine that are kept; those of 16 GPUs have fewer than 5,000."""


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
        links = tuple(self.inventory.links.items())
        lengths = (len(pair) + sum(map(len, names)) for pair, names in links)
        small = len(gpus) <= KEPT_GPUS and len(self.topology) + sum(lengths) <= KEPT_LENGTH
        return (_matrix if small else _read_matrix)(gpus, links, self.topology)

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

    def without_pods(self) -> "NodeCapacity":
        """The capacity of an equal node without pods, of which kubelet can allocate all units."""
        if self.inventory is None:
            return self
        gpus = tuple(msgspec.structs.replace(gpu, withheld=0) for gpu in self.inventory.gpus)
        inventory = msgspec.structs.replace(self.inventory, gpus=gpus)
        return msgspec.structs.replace(self, inventory=inventory)

    def counted(self, amount: int, unit: MemoryUnit | None) -> int:
        """``amount`` of ``unit`` in units of this node, rounded up where they do not divide."""
        mine = self.unit
        if unit is None or mine is None or unit == mine:
            return amount
        return mine.units_for(amount * unit.mib)


ABSENT = NodeCapacity(present=False)


def _read_matrix(
    numas: tuple[tuple[GpuIndex, int], ...],
    links: tuple[tuple[str, tuple[str, ...]], ...],
    text: str,
) -> Matrix:
    """The matrix of all nodes whose GPUs (index and NUMA node) are joined alike."""
    gpus = tuple(Gpu(index, GpuUuid(""), 0, numa=numa) for index, numa in numas)
    return joined(Inventory(gpus=gpus, links=dict(links)), text)


_matrix: Final = lru_cache(MACHINES)(_read_matrix)
"""One reading for all equal machines. Nodes may write any links, so large ones are not kept."""
