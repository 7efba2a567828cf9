"""Fit of one container's request on one GPU, or the reason with the figures of the GPU."""

from typing import Final

from gpucore.accounting.device_info import DeviceInfo
from gpucore.model import CORE_PER_CARD, Code, DeviceFitError, IsolationMode, PodRequest

CURABLE: Final = frozenset(
    {
        Code.INSUFFICIENT_MEMORY,
        Code.INSUFFICIENT_CORE,
        Code.MAX_PODS,
        Code.SHARED_CARD,
        Code.TAKEN_WHOLE,
    }
)
"""GPU codes that evicting pods could cure."""


def per_device(pod_request: PodRequest) -> tuple[int, int]:
    """Units and percent that a share requests on each of its GPUs."""
    return -(-pod_request.mem // pod_request.gpu_count), -(
        -pod_request.core // pod_request.gpu_count
    )


def device_fit_error(card: DeviceInfo, pod_request: PodRequest) -> DeviceFitError | None:
    """Why one GPU cannot take its part of a share; ``None`` when it can."""
    mem, core = per_device(pod_request)
    code = (
        _unable(card, pod_request, mem, core)
        or _occupied(card, pod_request)
        or _short(card, mem, core)
    )
    if code is None:
        return None
    if code is Code.MAX_PODS:
        return DeviceFitError(card.index, code, 0, card.max_pods, 1)
    if code in {Code.COMPUTE_TOO_LARGE, Code.INSUFFICIENT_CORE}:
        return DeviceFitError(card.index, code, card.core_free, CORE_PER_CARD, core)
    return DeviceFitError(card.index, code, card.free, card.total, mem)


def _unable(card: DeviceInfo, pod_request: PodRequest, mem: int, core: int) -> Code | None:
    """Reasons that hold even without allocations on the GPU."""
    if not card.healthy:
        return Code.UNHEALTHY
    isolation = card.gpu.isolation if card.gpu else IsolationMode.NONE
    if not isolation.gives(pod_request.isolation) or (
        pod_request.gpu_count > 1 and isolation.uses_mps
    ):
        return Code.ISOLATION_MODE_MISSING  # a daemon serves one GPU, and a process has one daemon
    if core > CORE_PER_CARD:
        return Code.COMPUTE_TOO_LARGE
    return Code.TOO_LARGE if mem > card.total else None


def _occupied(card: DeviceInfo, pod_request: PodRequest) -> Code | None:
    """What holds however small the share is."""
    if card.taken:
        return Code.TAKEN_WHOLE
    if pod_request.whole_device and not card.empty:
        return Code.SHARED_CARD
    return Code.MAX_PODS if card.crowded else None


def _short(card: DeviceInfo, mem: int, core: int) -> Code | None:
    if mem > card.free:
        return Code.INSUFFICIENT_MEMORY
    return Code.INSUFFICIENT_CORE if core > card.core_free else None


def exclusive_fit_error(card: DeviceInfo) -> DeviceFitError | None:
    """Why a GPU cannot be given away whole; ``None`` when it can."""
    if not card.healthy:
        return DeviceFitError(card.index, Code.UNHEALTHY)
    if card.taken:
        return DeviceFitError(card.index, Code.TAKEN_WHOLE)
    if not card.empty:
        return DeviceFitError(card.index, Code.SHARED_CARD, card.free, card.total, card.total)
    return None
