"""Messages for refusals and placements.

Sentences begin with the originals' own text where they had one: people's tools look for it.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

import msgspec

from gpucore.accounting.node_info import NodeInfo, unit_of
from gpucore.model import (
    Allocation,
    Code,
    DeviceFitError,
    FitError,
    GpuAmounts,
    Placement,
    PodRequest,
)
from gpucore.model.codes import COUNTING
from gpucore.model.constraints import CPU
from gpucore.units import GIB_BYTES, MemoryUnit, counted

_MIB: Final = 1 << 20
INSUFFICIENT: Final = "Insufficient GPU Memory in one device"
_SHARE_CODES: Final = frozenset(
    {
        Code.INSUFFICIENT_MEMORY,
        Code.INSUFFICIENT_CORE,
        Code.MAX_PODS,
        Code.SHARED_GPU,
        Code.TAKEN_WHOLE,
        Code.UNHEALTHY,
        Code.TOO_LARGE,
        Code.COMPUTE_TOO_LARGE,
        Code.ISOLATION_MODE_MISSING,
        Code.PENDING_UNITS,
        Code.PENDING_COMPUTE,
    }
)
_PENDING_CODES: Final = frozenset({Code.PENDING_UNITS, Code.PENDING_COMPUTE})
CONSTRAINT_CODES: Final = frozenset(
    {
        Code.NODE_UNSCHEDULABLE,
        Code.TAINT_NOT_TOLERATED,
        Code.NODE_AFFINITY,
        Code.INSUFFICIENT_RESOURCES,
        Code.SELECTOR,
        Code.DEVICE_CONSTRAINT,
    }
)
"""Codes of rules that are kube-scheduler's own, not about amounts of GPUs."""
_MEMORY_CODES: Final = frozenset({Code.INSUFFICIENT_MEMORY, Code.TOO_LARGE, Code.PENDING_UNITS})


def headline(refusal: FitError) -> str:
    """The reason without figures of GPUs: equal for equal reasons, so that they can be counted."""
    if refusal.code is Code.NOT_SHARED:
        return f"The node {refusal.node} is not for GPU share, need skip"
    if refusal.code in _MEMORY_CODES:
        return INSUFFICIENT
    if refusal.code is Code.INVALID_REQUEST:
        return f"The pod's request is invalid: {refusal.detail}"
    if refusal.code is Code.INSUFFICIENT_RESOURCES:
        return f"Insufficient {refusal.detail}"
    return refusal.code.sentence.rstrip(".")


def sentence(refusal: FitError) -> str:
    """The reason with every figure."""
    words = _words(refusal)
    return f"{headline(refusal)}{f': {words}' if words else ''}{reserved_hint(refusal)}"


def _words(refusal: FitError) -> str:
    unit = f" {unit_words(refusal.unit)}"
    if refusal.code in _SHARE_CODES and refusal.code not in _PENDING_CODES:
        return _share_words(refusal, unit)
    if refusal.code in _PENDING_CODES:
        counted = " percent" if refusal.code is Code.PENDING_COMPUTE else unit
        return (
            f"requested {refusal.requested}{counted}, {refusal.free} free on the node after "
            f"{refusal.total} "
            "are kept for pods on unknown GPUs"
        )
    if refusal.code in COUNTING:
        return (
            f"requested {refusal.requested}, {refusal.free} of {refusal.total} GPUs are free"
            + _and(_gpus(refusal))
        )
    if refusal.code is Code.UNEVEN_SPLIT:
        measure = f" {refusal.detail}" if refusal.detail else unit
        return f"{refusal.requested}{measure} over {refusal.total} GPUs"
    if refusal.code is Code.INSUFFICIENT_RESOURCES:
        return resource_words(refusal)
    return refusal.detail if refusal.code in CONSTRAINT_CODES else ""


def reserved_hint(refusal: FitError) -> str:
    """What follows the figures of a node that reserves its free GPUs; empty where it does not."""
    return f"; {reserved_words(refusal.reserved_for)}" if refusal.reserved_for else ""


def reserved_words(nominated: int) -> str:
    """For how many nominated pods a node reserves its free GPUs."""
    pods = "1 pod" if nominated == 1 else f"{nominated} pods"
    return f"capacity is reserved for {pods} nominated to this node"


def resource_words(refusal: FitError) -> str:
    """``requested 8, 1.5 of 4 free``, memory with its unit."""
    requested, free, total = (
        _quantity(refusal.detail, value)
        for value in (refusal.requested, refusal.free, refusal.total)
    )
    return f"requested {requested}, {free} of {total} free"


def _quantity(resource: str, value: int) -> str:
    if resource == CPU:
        return f"{value / 1000:g}"
    if resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-"):
        return f"{value / GIB_BYTES:.4g} GiB"
    return str(value)


def _share_words(refusal: FitError, unit: str) -> str:
    wanted = "no GPU" if refusal.total == 1 else f"{refusal.free} of {refusal.total} GPUs"
    amount = f"{refusal.requested}{unit}" if refusal.requested else "the request"
    words = f"{wanted} can take {amount}"
    if refusal.code is Code.INSUFFICIENT_MEMORY:
        words = f"{wanted} has {refusal.requested}{unit} free"
    return words + _and(_gpus(refusal)) + amount_hint(refusal)


def _and(gpus: str) -> str:
    return f": {gpus}" if gpus else ""


def _gpus(refusal: FitError) -> str:
    return ", ".join(map(_gpu, refusal.gpus))


_GPU_WORDS: Final = {
    Code.INSUFFICIENT_MEMORY: "has {free} of {total} free",
    Code.INSUFFICIENT_CORE: "has {free} of {total} percent of compute free, requested {requested}",
    Code.TOO_LARGE: "has {total} in total",
    Code.COMPUTE_TOO_LARGE: "has {total} percent of compute in total, requested {requested}",
    Code.MAX_PODS: "has its maximum of {total} pods",
    Code.SHARED_GPU: "is shared",
    Code.TAKEN_WHOLE: "is used exclusively",
    Code.UNHEALTHY: "is unhealthy",
    Code.SELECTOR: "does not match",
    Code.ISOLATION_MODE_MISSING: "does not have the demanded isolation mode",
    Code.MIG_INSTANCE: "is a MIG instance",
}


def _gpu(gpu: DeviceFitError) -> str:
    words = _GPU_WORDS[gpu.code].format(free=gpu.free, total=gpu.total, requested=gpu.requested)
    return f"GPU {gpu.index} {words}"


def amount_hint(refusal: FitError) -> str:
    """The probably intended amount for one in MiB or bytes (``8Gi``); a hint, never applied."""
    largest = max((gpu.total for gpu in refusal.gpus), default=0)
    if refusal.code is not Code.TOO_LARGE or refusal.unit is None:
        return ""
    size = refusal.unit.mib
    if refusal.requested % (size * _MIB) == 0 and refusal.requested // (size * _MIB) <= largest:
        count = refusal.requested // (size * _MIB)
        return f"; amounts are whole numbers of {refusal.unit}: write {count}"
    if refusal.requested >= size // 4 > 0 and refusal.unit.units_for(refusal.requested) <= largest:
        return f"; if you meant MiB, request {refusal.unit.units_for(refusal.requested)}"
    return ""


def unit_words(unit: MemoryUnit | None) -> str:
    """What follows an amount: ``GiB``, ``units of 256MiB``, or ``units`` where it is unknown."""
    if unit is None:
        return "units"
    text = str(unit)
    return text if not text[0].isdigit() else f"units of {text}"


def memory_words(amount: int, unit: MemoryUnit | None) -> str:
    """``8 GiB``, or ``8Gi`` where the pod gives bytes in place of a number of units."""
    for size, suffix in ((30, "Gi"), (20, "Mi")):
        if amount >> size and not amount % (1 << size):
            return f"{amount >> size}{suffix}"
    return f"{amount} {unit_words(unit)}"


def placement_sentence(placement: Placement, unit: MemoryUnit | None) -> str:
    """Where a pod sits, e.g. ``8 GiB on GPU 1 of node n1``."""
    if placement.group:
        return f"{gpus_named(placement.group)} of node {placement.node}, exclusive"
    parts = [_amounts(placement.mem, f" {unit_words(unit)}")] if placement.mem else []
    parts += [_amounts(placement.core, " percent of compute")] if placement.core else []
    return (
        f"{' and '.join(parts)} of node {placement.node}"
        if parts
        else (f"an unknown GPU of node {placement.node}")
    )


def neighbours(
    held: Allocation, node_info: NodeInfo, name_of: Callable[[Allocation], str]
) -> Iterator[str]:
    """Each GPU of an allocation: who is beside it, and what is free."""
    unit = unit_words(unit_of(node_info))
    for index, device in sorted(node_info.devices.items()):
        if held.uid not in device.holders:
            continue
        if index in node_info.lost_gpus:
            yield f"GPU {index}: the node no longer has it"
            continue
        others = sorted(
            f"{name_of(node_info.allocations[uid])} ({hold.mem})"
            for uid, hold in device.holders.items()
            if uid != held.uid
        )
        beside = f"beside {', '.join(others)}" if others else "alone"
        yield f"GPU {index}: {beside}; {device.free} of {device.total} {unit} free"


def _amounts(gpus: GpuAmounts, unit: str) -> str:
    return ", ".join(f"{amount}{unit} on GPU {index}" for index, amount in sorted(gpus.items()))


def gpus_named(gpus: Collection[int]) -> str:
    """``GPU 3`` or ``GPUs 3, 0``, in the order given."""
    noun = "GPU" if len(gpus) == 1 else "GPUs"
    return f"{noun} {', '.join(map(str, gpus))}"


def with_unit(refusal: FitError, node_info: NodeInfo) -> FitError:
    """The refusal with the unit of its node, also where the node does not publish it."""
    if refusal.unit is not None:
        return refusal
    return msgspec.structs.replace(refusal, unit=unit_of(node_info))


def request_words(pod_request: PodRequest, unit: MemoryUnit | None) -> str:
    """What a pod requests, in words; memory in ``unit``."""
    if pod_request.gpus:
        return counted(pod_request.gpus, "GPU")
    parts = [f"{memory_words(pod_request.mem, unit)} of GPU memory"] if pod_request.mem else []
    parts += [f"{pod_request.core} % of compute"] if pod_request.core else []
    return " and ".join(parts)


def gated(gates: Sequence[str]) -> str:
    """What scheduling gates do, and who can remove them."""
    names, one = ", ".join(gates), len(gates) == 1
    return (
        f"its scheduling gate{'' if one else 's'} {names} keep{'s' if one else ''} every scheduler "
        f"away from it: the controller that set the gate{'' if one else 's'} must remove "
        f"{'it' if one else 'them'}"
    )
