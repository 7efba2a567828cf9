"""The allocation map of generations V2 and V3: container to GPU to amount, as JSON text.

``{"0": {"1": 8}}`` means that container 0 holds 8 on GPU 1. The map is read whole or not at all:
half a map would count half a pod.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from gpucore.model import GpuAmounts
from gpucore.units import GpuIndex
from gpucore.wire.digits import number

AllocationMap = Mapping[int, GpuAmounts]
"""Container position to GPU to amount."""

MAX_INDEX: Final = 1 << 10
_MAX_AMOUNT: Final = 1 << 40
_DECODER: Final = msgspec.json.Decoder(dict[str, dict[str, int]])


def decode_allocation(text: str) -> AllocationMap | None:
    """The map that ``text`` spells, without its zeros; ``None`` for text that is no such map.

    A map without an amount has no location and is ``None`` too.
    """
    try:
        rows = _DECODER.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    allocation: dict[int, GpuAmounts] = {}
    for container, row in rows.items():
        position, gpus = number(container, below=MAX_INDEX), _gpus(row)
        if position is None or gpus is None:
            return None
        allocation[position] = gpus
    return allocation if any(allocation.values()) else None


def _gpus(row: Mapping[str, int]) -> GpuAmounts | None:
    gpus: dict[GpuIndex, int] = {}
    for key, amount in row.items():
        index = number(key, below=MAX_INDEX)
        if index is None or not 0 <= amount < _MAX_AMOUNT:
            return None
        if amount:
            gpus[GpuIndex(index)] = amount
    return gpus


def encode_allocation(allocation: AllocationMap) -> str:
    """The JSON text of a map, containers and GPUs in order."""
    rows = {
        str(container): {str(index): gpus[index] for index in sorted(gpus)}
        for container, gpus in sorted(allocation.items())
        if gpus
    }
    return msgspec.json.encode(rows).decode()


def per_device(allocation: AllocationMap) -> dict[GpuIndex, int]:
    """Sum over containers of what is held on each GPU, by index."""
    sums: dict[GpuIndex, int] = {}
    for gpus in allocation.values():
        for index, amount in gpus.items():
            sums[index] = sums.get(index, 0) + amount
    return dict(sorted(sums.items()))
