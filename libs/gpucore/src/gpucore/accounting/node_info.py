"""State of one node: its GPUs, their allocations, and the aggregates that a filter reads.

An account outlives its node while pods still claim it, and stands ready when the node returns. It
changes only through :class:`gpucore.accounting.ledger.Ledger` (or on a copy, in
:mod:`gpucore.simulate.whatif`). Aggregates are reckoned up when they are read, so that many changes
in a row cost one reckoning.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from gpucore.accounting.device_info import DeviceAllocation, DeviceInfo
from gpucore.accounting.node_capacity import ABSENT, NodeCapacity
from gpucore.model import CORE_PER_GPU, Allocation, AllocationState, Inventory
from gpucore.units import GIB, MIB, GpuIndex, MemoryUnit, NodeName, PodUid
from gpucore.workload.pod_mix import HostRoom

GIB_GPUS_END: Final = 100
"""The original's guess: a GPU of more units is counted in MiB. Wrong for 101 GiB and more."""


class NodeInfo:
    """The state of one node.

    Attributes:
        name: of the node.
        shape: its capacity without allocations.
        host: what the node has left besides GPUs and the pods that usually come, for the
            fragmentation policy; ``None`` where these are not known.
        pending: units held on no known GPU; ``pending_core`` and ``pending_gpus`` likewise.
    """

    __slots__ = (
        "_allocations",
        "_crowd",
        "_devices",
        "_excess",
        "_free",
        "_free_parts",
        "_full_room",
        "_largest",
        "_reckoned",
        "_share_room",
        "_whole_room",
        "host",
        "name",
        "pending",
        "pending_core",
        "pending_gpus",
        "shape",
    )

    def __init__(self, name: NodeName, shape: NodeCapacity = ABSENT) -> None:
        self.name = name
        self.shape = shape
        self.host: HostRoom | None = None
        self._allocations: dict[PodUid, Allocation] = {}
        self._devices: dict[GpuIndex, DeviceInfo] = {}
        self._free_parts: Mapping[GpuIndex, int] | None = None
        self.reshape(shape)

    @property
    def present(self) -> bool:
        """The node exists; otherwise only claims on it do."""
        return self.shape.present

    @property
    def inventory(self) -> Inventory | None:
        """Its GPUs, where they are known."""
        return self.shape.inventory

    @property
    def unit(self) -> MemoryUnit | None:
        """The size of a unit; ``None`` where it is unknown."""
        return self.shape.unit

    @property
    def devices(self) -> Mapping[GpuIndex, DeviceInfo]:
        """Its GPUs by index, in order; then those that it lost and that are held, in order."""
        return MappingProxyType(self._devices)

    @property
    def allocations(self) -> Mapping[PodUid, Allocation]:
        """What pods hold here."""
        return MappingProxyType(self._allocations)

    @property
    def total_units(self) -> int:
        """Units of all GPUs."""
        return sum(gpu.total for gpu in self._devices.values())

    @property
    def used_units(self) -> int:
        """Units held, those on no known GPU included."""
        return sum(gpu.used for gpu in self._devices.values()) + self.pending

    @property
    def overfull(self) -> tuple[GpuIndex, ...]:
        """GPUs whose allocated memory exceeds their capacity."""
        return tuple(sorted(i for i, device in self._devices.items() if device.overfull))

    @property
    def lost_gpus(self) -> frozenset[GpuIndex]:
        """GPUs that pods have and that the node no longer publishes."""
        if self.inventory is None:
            return frozenset()
        return frozenset(i for i, device in self._devices.items() if device.gpu is None)

    @property
    def max_allocatable_memory(self) -> int:
        """The largest one-GPU share of memory that fits now; -1 where none is offered."""
        self._reckon()
        return self._share_room

    @property
    def free_gpus(self) -> int:
        """How many exclusive GPUs fit now; -1 where none are offered."""
        self._reckon()
        return self._whole_room

    @property
    def free_full_gpus(self) -> int:
        """As ``free_gpus``, of the GPUs that are no MIG instances."""
        self._reckon()
        return self._full_room

    def reserved_units(self) -> int:
        """Units to keep free: allocations on unknown GPUs, and amounts that exceed their GPU.

        Two equal pods that swapped GPUs are corrected one after the other: in between, one GPU
        looks over-full and the other looks free; the excess shows that it is in use. A GPU may stay
        over-full, such as after its node's oversell was lowered: its confirmed pods close no other.
        """
        self._reckon()
        return self.pending + self._excess + self.pending_gpus * self._largest

    def reserved_core(self) -> int:
        """Percent of compute to keep free for allocations on unknown GPUs."""
        return self.pending_core + self.pending_gpus * CORE_PER_GPU

    def by_claim(self, allocation: Allocation) -> bool:
        """The pod's extended resource is allocated by a claim, which counts in its place."""
        return self.shape.claims and allocation.users is None

    def free_units(self) -> int:
        """Units left on GPUs that may be given out, before anything is kept for pending pods."""
        self._reckon()
        return self._free

    def free_parts(self) -> Mapping[GpuIndex, int]:
        """Thousandths left on each healthy GPU."""
        if self._free_parts is None:
            gpus = self._devices.items()
            self._free_parts = {i: device.free_milli for i, device in gpus if device.healthy}
        return self._free_parts

    def reshape(self, shape: NodeCapacity) -> None:
        """Follow a change of the node; what pods hold is counted anew in its unit."""
        allocations = list(self._allocations.values())
        self.shape = shape
        self._largest = shape.largest_gpu
        self._allocations.clear()
        self._devices = shape.devices_without_allocations()
        self.pending = self.pending_core = self.pending_gpus = 0
        for allocation in allocations:
            self._enter(allocation)
        self._changed()

    def put(self, allocation: Allocation) -> None:
        """Enter an allocation, in the place of an earlier one of the same pod."""
        self._strike(allocation.uid)
        self._enter(allocation)
        self._changed()

    def drop(self, uid: PodUid) -> None:
        """Strike out the allocation of ``uid``, if there is one."""
        self._strike(uid)
        self._changed()

    def copy(self) -> "NodeInfo":
        """A copy that can be changed independently."""
        twin = NodeInfo(self.name, self.shape)
        twin.host = self.host
        for allocation in self._allocations.values():
            twin._enter(allocation)
        twin._changed()
        return twin

    def _enter(self, allocation: Allocation) -> None:
        self._allocations[allocation.uid] = allocation
        for index, hold in self._holds(allocation).items():
            gpu = self._devices.get(index) or self._lost(index)
            gpu.take(allocation.uid, hold)
        if self.by_claim(allocation):
            return
        self.pending += self.shape.counted(allocation.pending, allocation.unit)
        self.pending_core += allocation.pending_core
        self.pending_gpus += allocation.pending_gpus

    def _lost(self, index: GpuIndex) -> DeviceInfo:
        """A new entry for a GPU that the node does not have, in its place among those."""
        later = [i for i, device in self._devices.items() if device.gpu is None and i > index]
        device = self._devices[index] = DeviceInfo(index, None)
        for each in later:
            self._devices[each] = self._devices.pop(each)
        return device

    def _strike(self, uid: PodUid) -> None:
        allocation = self._allocations.pop(uid, None)
        if allocation is None:
            return
        for index in _indexes(allocation):
            device = self._devices[index]
            device.drop(uid)
            if device.gpu is None and device.empty:
                del self._devices[index]
        if self.by_claim(allocation):
            return
        self.pending -= self.shape.counted(allocation.pending, allocation.unit)
        self.pending_core -= allocation.pending_core
        self.pending_gpus -= allocation.pending_gpus

    def _holds(self, allocation: Allocation) -> dict[GpuIndex, DeviceAllocation]:
        placement = allocation.placement
        confirmed = allocation.state is AllocationState.CONFIRMED
        return {
            index: DeviceAllocation(
                mem=self.shape.counted(placement.mem.get(index, 0), allocation.unit),
                core=placement.core.get(index, 0),
                whole=index in placement.group,
                alone=allocation.exclusive,
                confirmed=confirmed,
            )
            for index in _indexes(allocation)
        }

    def _changed(self) -> None:
        self._reckoned = False
        self._free_parts = None

    def _reckon(self) -> None:
        """Bring the aggregates up to date; exact, so that a filter needs nothing else."""
        if self._reckoned:
            return
        self._reckoned = True
        widest = empties = instances = self._free = self._excess = self._crowd = 0
        for device in self._devices.values():
            left = device.free
            self._excess += device.excess
            self._crowd += device.crowd
            if device.healthy:
                self._free += left
                if device.open:
                    widest = max(widest, left)
                    empties += device.empty
                    instances += device.empty and device.mig
        self._share_room = self._whole_room = self._full_room = -1
        if self.inventory is not None and not self.inventory.serving:
            return
        if self.shape.offers_shares:
            self._share_room = max(min(widest, self._free - self.reserved_units()), 0)
        if self.shape.offers_gpus:
            self._whole_room = max(empties - self.reserved_gpus(), 0)
            self._full_room = max(empties - instances - self.reserved_gpus(), 0)

    def reserved_gpus(self) -> int:
        """Exclusive GPUs to keep free, for the same reasons as units."""
        self._reckon()
        by_memory = -(-self.pending // self._largest) if self._largest else 0
        strays = max(by_memory, -(-self.pending_core // CORE_PER_GPU))
        return self.pending_gpus + self._crowd + strays


def unit_of(node_info: NodeInfo) -> MemoryUnit:
    """The unit of the node: as its plugin publishes it, else as the original guesses it."""
    if node_info.unit is not None:
        return node_info.unit
    largest = max((gpu.total for gpu in node_info.devices.values()), default=0)
    return MIB if largest > GIB_GPUS_END else GIB


def common_unit(node_infos: Iterable[NodeInfo]) -> MemoryUnit | None:
    """The unit of all nodes with GPUs; ``None`` where they differ, and where there are none."""
    common: MemoryUnit | None = None
    for node_info in node_infos:
        if node_info.devices:
            unit = unit_of(node_info)
            if common not in {None, unit}:
                return None
            common = unit
    return common


def gpu_sizes(node_infos: Iterable[NodeInfo], unit: MemoryUnit) -> tuple[int, ...]:
    """Sizes of the GPUs, each once, in whole ``unit`` whatever the unit of their node is."""
    found = {
        gpu.total * unit_of(info).mib // unit.mib
        for info in node_infos
        for gpu in info.devices.values()
    }
    return tuple(sorted(found))


def _indexes(allocation: Allocation) -> frozenset[GpuIndex]:
    placement = allocation.placement
    return frozenset((*placement.mem, *placement.core, *placement.group))
