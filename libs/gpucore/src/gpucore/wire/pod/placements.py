"""A placement as annotations: V1 and V2 always, V3 for compute.

The values are those the originals wrote, so their tools keep reading. What they could not express
(the unit of the amounts, and whether the GPU is exclusive) is in additional annotations.

The allocation map of generations V2 and V3 is JSON text, container to GPU to amount:
``{"0": {"1": 8}}`` means that container 0 holds 8 on GPU 1. The map is read whole or not at all:
half a map would count half a pod.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gpucore.model import GpuAmounts, Inventory, Placement, PodRequest
from gpucore.units import GpuIndex
from gpucore.wire import names as wire_names
from gpucore.wire.names import Names
from gpucore.wire.quantity import number

AllocationMap = Mapping[int, GpuAmounts]
"""Container position to GPU to amount."""

MAX_INDEX: Final = 1 << 10
EMPTY_ALLOCATION: Final = "{}"
"""The map of containers that request nothing, where only init containers do."""
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


def annotations_of(
    placement: Placement,
    pod_request: PodRequest,
    names: Names,
    *,
    inventory: Inventory,
    assume_time: int,
    assigned: bool = False,
    exclusive: bool | None = None,
) -> dict[str, str]:
    """The annotations for ``placement``, to be merged into the pod.

    Args:
        placement: node and GPUs of the pod.
        pod_request: its request.
        names: domain and prefix.
        inventory: the GPUs of its node, which give DEV and the unit.
        assume_time: Unix nanoseconds of the decision.
        assigned: the node has handed the GPUs out.
        exclusive: the share has its GPU alone; by default as the pod's label requests.
    """
    texts: dict[str, str] = {}
    if placement.mem or placement.core:
        texts |= _share(placement, pod_request, names, inventory)
        alone = pod_request.whole_device if exclusive is None else exclusive
        texts[wire_names.EXCLUSIVE] = str(alone).lower()
        texts |= _flags((names.mem_assigned, wire_names.V2_ASSIGNED), assigned=assigned)
        texts |= dict.fromkeys((names.mem_assume_time, wire_names.V2_ASSUME_TIME), str(assume_time))
    if placement.group:
        keys = (names.group, wire_names.GPU_GROUP, wire_names.GPU_VISIBLE)
        texts |= dict.fromkeys(keys, ",".join(map(str, placement.group)))
        texts |= _flags((names.group_assigned,), assigned=assigned)
        texts[names.group_assume_time] = str(assume_time)
    return texts


def _flags(keys: Sequence[str], *, assigned: bool) -> dict[str, str]:
    return dict.fromkeys(keys, "true" if assigned else "false")


def _share(
    placement: Placement, pod_request: PodRequest, names: Names, inventory: Inventory
) -> dict[str, str]:
    gpus = sorted(placement.mem or placement.core)
    texts = {
        names.mem_idx: str(gpus[0]),
        names.mem_dev: str(_gpu_units(inventory, gpus[0])),
        names.mem_pod: str(pod_request.mem),
    }
    if placement.mem:
        texts[wire_names.V2_ALLOCATION] = encode_allocation(placement.containers)
    if placement.core:
        cores = split_evenly(
            [request.core for request in pod_request.containers], sorted(placement.core)
        )
        texts[wire_names.V3_CORE_PERCENTAGE] = encode_allocation(cores)
    if inventory.unit is not None:
        texts[wire_names.UNIT] = str(inventory.unit)
    return texts


def _gpu_units(inventory: Inventory, index: GpuIndex) -> int:
    return next((gpu.units for gpu in inventory.gpus if gpu.index == index), 0)


def split_evenly(amounts: Sequence[int], gpus: Sequence[GpuIndex]) -> dict[int, GpuAmounts]:
    """Spread each container's amount over ``gpus`` so that the GPUs' totals stay equal.

    What does not divide goes round the GPUs from container to container, so that totals differ by
    at most one, and not at all where the sum divides. Containers without a request are left out.
    """
    split: dict[int, GpuAmounts] = {}
    turn = 0
    for position, amount in enumerate(amounts):
        base, rest = divmod(amount, len(gpus))
        row = dict.fromkeys(gpus, base)
        for step in range(rest):
            row[gpus[(turn + step) % len(gpus)]] += 1
        turn = (turn + rest) % len(gpus)
        if amount:
            split[position] = {index: units for index, units in row.items() if units}
    return split
