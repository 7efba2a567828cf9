"""Device IDs: each contains its GPU, so kubelet's checkpoint accounts for every GPU.

``<uuid>-_-<n>`` is unit (or percent) ``n`` of a GPU, ``<uuid>`` the whole of it. The same GPU
gives the same ids after every restart. Order of GPUs is by index, order of ids by number.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from gpucore.model import CORE_PER_GPU, ContainerRequest, Gpu, GpuAmounts, Inventory
from gpucore.units import GpuIndex, MemoryUnit
from gpucore.wire.names import DEVICE_ID_SEPARATOR, Names

MESSAGE_LIMIT: Final = 4 * 1024 * 1024
"""Bytes kubelet takes in one message; a longer device list is never read and the resource stays
0."""

# The parts of one entry of the list: tag and length of the entry, of the id and of the health text.
_ENTRY_OVERHEAD: Final = 2 + 2 + 2 + len("Unhealthy")
_NUMA_BYTES: Final = 6


class Resource(StrEnum):
    """What kubelet counts for us; each is a plugin socket of its own."""

    MEM = "gpu-mem"
    CORE = "gpu-core.percentage"
    GPU = "gpu"

    def full_name(self, names: Names) -> str:
        """The extended resource, with its domain."""
        return f"{names.domain}/{self.value}"

    def requested(self, request: ContainerRequest) -> int:
        """The amount of this resource in a container's request."""
        return {Resource.MEM: request.mem, Resource.CORE: request.core, Resource.GPU: request.gpus}[
            self
        ]


SHARES: Final = (Resource.MEM, Resource.CORE)
"""Resources of which a GPU has many."""


class DeviceTable(msgspec.Struct, frozen=True):
    """The ids of one resource on one node.

    Attributes:
        ids: ids of each GPU, in order.
        owner: GPU of each id.
    """

    resource: Resource
    ids: Mapping[GpuIndex, tuple[str, ...]]
    owner: Mapping[str, GpuIndex]

    def per_device(self, ids: Iterable[str]) -> Counter[GpuIndex]:
        """How many of ``ids`` are on each GPU; unknown ids are left out."""
        owner = self.owner
        return Counter(owner[one] for one in ids if one in owner)

    def pick(
        self,
        gpus: GpuAmounts,
        *,
        among: frozenset[str],
        first: Sequence[str],
        last: Container[str] = (),
    ) -> tuple[str, ...]:
        """The ``first`` ids and then the lowest of ``among``, on each GPU as many as requested.

        Those of ``last`` only where the others are too few; shorter where a GPU has too few.
        """
        chosen = list(first)
        taken = self.per_device(first)
        for gpu, amount in sorted(gpus.items()):
            free = [one for one in self.ids.get(gpu, ()) if one in among and one not in first]
            free.sort(key=last.__contains__)
            chosen += [one for one, _ in zip(free, range(amount - taken[gpu]), strict=False)]
        return tuple(chosen)


def device_table(inventory: Inventory, resource: Resource, *, oversell: int = 1) -> DeviceTable:
    """The ids that a node with these GPUs offers, memory ``oversell`` times over."""
    ids = {gpu.index: _ids(gpu, resource, oversell) for gpu in inventory.gpus}
    owner = {one: index for index, several in ids.items() for one in several}
    return DeviceTable(resource, ids, owner)


def _ids(gpu: Gpu, resource: Resource, oversell: int) -> tuple[str, ...]:
    if resource is Resource.GPU:
        return (gpu.uuid,)
    count = gpu.units * oversell if resource is Resource.MEM else CORE_PER_GPU
    return tuple(f"{gpu.uuid}{DEVICE_ID_SEPARATOR}{number}" for number in range(count))


def list_bytes(gpus: Iterable[Gpu], unit: MemoryUnit, *, numa: bool = False) -> int:
    """Most bytes that the encoded list of memory devices can have, in units of ``unit``."""
    return sum(_gpu_bytes(gpu, unit, numa=numa) for gpu in gpus)


def _gpu_bytes(gpu: Gpu, unit: MemoryUnit, *, numa: bool) -> int:
    count = unit.units_in(gpu.allocatable_mib)
    entry = _ENTRY_OVERHEAD + len(gpu.uuid) + len(DEVICE_ID_SEPARATOR) + _NUMA_BYTES * numa
    return count * entry + _digits_below(count)


def _digits_below(count: int) -> int:
    """Digits needed to write all of 0 .. count-1."""
    digits, start = 0, 0
    for width in range(1, len(str(max(count, 1))) + 1):
        end = min(count, 10**width)
        digits += width * max(end - start, 0)
        start = end
    return digits


def smallest_unit(gpus: Sequence[Gpu], *, numa: bool = False) -> MemoryUnit:
    """The smallest unit with which the device list of these GPUs fits kubelet's message."""
    low, high = 1, 1024 * 1024
    while low < high:
        middle = (low + high) // 2
        size = list_bytes(gpus, MemoryUnit(middle), numa=numa)
        if size <= MESSAGE_LIMIT:
            high = middle
        else:
            low = middle + 1
    return MemoryUnit(low)
