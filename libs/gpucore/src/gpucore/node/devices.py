"""Device ids: the card is in the id, so kubelet's own checkpoint is the ledger of every card.

``<uuid>-_-<n>`` is unit (or percent) ``n`` of a card, ``<uuid>`` the whole of it. The same card
gives the same ids after every restart. Order of cards is by index, order of ids by number.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from gpucore.model import CORE_PER_CARD, Ask, Cards, Gpu, Inventory
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

    def asked(self, ask: Ask) -> int:
        """How much of this resource a container asks for."""
        return {Resource.MEM: ask.mem, Resource.CORE: ask.core, Resource.GPU: ask.gpus}[self]


SHARES: Final = (Resource.MEM, Resource.CORE)
"""Resources of which a card has many."""


class DeviceTable(msgspec.Struct, frozen=True):
    """The ids of one resource on one node.

    Attributes:
        ids: ids of each card, in order.
        owner: card of each id.
    """

    resource: Resource
    ids: Mapping[GpuIndex, tuple[str, ...]]
    owner: Mapping[str, GpuIndex]

    def per_card(self, ids: Iterable[str]) -> Counter[GpuIndex]:
        """How many of ``ids`` are on each card; unknown ids are left out."""
        owner = self.owner
        return Counter(owner[one] for one in ids if one in owner)

    def pick(self, cards: Cards, *, among: frozenset[str], first: Sequence[str]) -> tuple[str, ...]:
        """The ``first`` ids and then the lowest of ``among``, on each card as many as asked.

        Shorter than asked where a card has too few.
        """
        chosen = list(first)
        taken = self.per_card(first)
        for card, amount in sorted(cards.items()):
            free = (one for one in self.ids.get(card, ()) if one in among and one not in first)
            chosen += [one for one, _ in zip(free, range(amount - taken[card]), strict=False)]
        return tuple(chosen)


def device_table(inventory: Inventory, resource: Resource, *, oversell: int = 1) -> DeviceTable:
    """The ids that a node with these cards offers, memory ``oversell`` times over."""
    ids = {gpu.index: _ids(gpu, resource, oversell) for gpu in inventory.gpus}
    owner = {one: card for card, several in ids.items() for one in several}
    return DeviceTable(resource, ids, owner)


def _ids(gpu: Gpu, resource: Resource, oversell: int) -> tuple[str, ...]:
    if resource is Resource.GPU:
        return (gpu.uuid,)
    count = gpu.units * oversell if resource is Resource.MEM else CORE_PER_CARD
    return tuple(f"{gpu.uuid}{DEVICE_ID_SEPARATOR}{number}" for number in range(count))


def list_bytes(
    gpus: Iterable[Gpu], unit: MemoryUnit, *, oversell: int = 1, numa: bool = False
) -> int:
    """Most bytes that the encoded list of memory devices can have, in units of ``unit``."""
    return sum(_card_bytes(gpu, unit, oversell, numa=numa) for gpu in gpus)


def _card_bytes(gpu: Gpu, unit: MemoryUnit, oversell: int, *, numa: bool) -> int:
    count = unit.units_in(gpu.allocatable_mib) * oversell
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


def smallest_unit(gpus: Sequence[Gpu], *, oversell: int = 1, numa: bool = False) -> MemoryUnit:
    """The smallest unit with which the device list of these cards fits kubelet's message."""
    low, high = 1, 1024 * 1024
    while low < high:
        middle = (low + high) // 2
        size = list_bytes(gpus, MemoryUnit(middle), oversell=oversell, numa=numa)
        if size <= MESSAGE_LIMIT:
            high = middle
        else:
            low = middle + 1
    return MemoryUnit(low)
