"""Fit of one container's request on one GPU, or the reason with the figures of the GPU."""

from collections.abc import Iterable
from typing import Final

from gpucore.accounting.device_info import DeviceInfo
from gpucore.model import CORE_PER_GPU, Code, DeviceFitError, IsolationMode, PodRequest
from gpucore.units import GpuIndex

CURABLE: Final = frozenset(
    {
        Code.INSUFFICIENT_MEMORY,
        Code.INSUFFICIENT_CORE,
        Code.MAX_PODS,
        Code.SHARED_GPU,
        Code.TAKEN_WHOLE,
    }
)
"""GPU codes that evicting pods could cure."""


def per_device(pod_request: PodRequest) -> tuple[int, int]:
    """Units and percent that a share requests on each of its GPUs."""
    return -(-pod_request.mem // pod_request.gpu_count), -(
        -pod_request.core // pod_request.gpu_count
    )


def fitting_devices(devices: Iterable[DeviceInfo], pod_request: PodRequest) -> list[DeviceInfo]:
    """The GPUs that can take their part of a share: those without a :func:`device_fit_error`."""
    mem, core = per_device(pod_request)
    found = [one for one in devices if one.open and mem <= one.free]
    if core:
        found = [one for one in found if core <= one.core_free]
    if pod_request.whole_device:
        found = [one for one in found if one.empty]
    if pod_request.combines_gpus:
        found = [one for one in found if not one.mig]
    if pod_request.gpu_count > 1 or pod_request.isolation is not IsolationMode.NONE:
        found = [one for one in found if _isolates(one, pod_request)]
    return found


def device_fit_error(device: DeviceInfo, pod_request: PodRequest) -> DeviceFitError | None:
    """Why one GPU cannot take its part of a share; ``None`` when it can."""
    mem, core = per_device(pod_request)
    code = (
        _unable(device, pod_request, mem, core)
        or _occupied(device, pod_request)
        or _short(device, mem, core)
    )
    if code is None:
        return None
    if code is Code.MAX_PODS:
        return DeviceFitError(device.index, code, 0, device.max_pods, 1)
    if code in {Code.COMPUTE_TOO_LARGE, Code.INSUFFICIENT_CORE}:
        return DeviceFitError(device.index, code, device.core_free, CORE_PER_GPU, core)
    return DeviceFitError(device.index, code, device.free, device.total, mem)


def _unable(device: DeviceInfo, pod_request: PodRequest, mem: int, core: int) -> Code | None:
    """Reasons that hold even without allocations on the GPU."""
    if not device.healthy:
        return Code.UNHEALTHY
    if not _isolates(device, pod_request):
        return Code.ISOLATION_MODE_MISSING
    if pod_request.combines_gpus and device.mig:
        return Code.MIG_INSTANCE
    if core > CORE_PER_GPU:
        return Code.COMPUTE_TOO_LARGE
    return Code.TOO_LARGE if mem > device.total else None


def _isolates(device: DeviceInfo, pod_request: PodRequest) -> bool:
    return isolates(device.gpu.isolation if device.gpu else IsolationMode.NONE, pod_request)


def isolates(mode: IsolationMode, pod_request: PodRequest) -> bool:
    """The mode of a GPU is enough; an MPS daemon serves one GPU, and a process has one daemon."""
    several = pod_request.gpu_count > 1
    return mode.gives(pod_request.isolation) and not (several and mode.uses_mps)


def _occupied(device: DeviceInfo, pod_request: PodRequest) -> Code | None:
    """What holds however small the share is."""
    if device.taken:
        return Code.TAKEN_WHOLE
    if pod_request.whole_device and not device.empty:
        return Code.SHARED_GPU
    return Code.MAX_PODS if device.crowded else None


def _short(device: DeviceInfo, mem: int, core: int) -> Code | None:
    if mem > device.free:
        return Code.INSUFFICIENT_MEMORY
    return Code.INSUFFICIENT_CORE if core > device.core_free else None


def usable_devices(devices: Iterable[DeviceInfo], pod_request: PodRequest) -> list[DeviceInfo]:
    """The GPUs that a pod could have, alone or with others, without the allocations of others."""
    found = [one for one in devices if one.healthy]
    return [one for one in found if not one.mig] if pod_request.combines_gpus else found


def exclusive_devices(devices: Iterable[DeviceInfo], pod_request: PodRequest) -> list[GpuIndex]:
    """The GPUs that can be given away whole: those without an :func:`exclusive_fit_error`."""
    usable = usable_devices(devices, pod_request)
    return [one.index for one in usable if one.open and one.empty]


def exclusive_fit_error(device: DeviceInfo, pod_request: PodRequest) -> DeviceFitError | None:
    """Why a GPU cannot be given away whole; ``None`` when it can."""
    if not device.healthy:
        return DeviceFitError(device.index, Code.UNHEALTHY)
    if pod_request.combines_gpus and device.mig:
        return DeviceFitError(device.index, Code.MIG_INSTANCE)
    if device.taken:
        return DeviceFitError(device.index, Code.TAKEN_WHOLE)
    if not device.empty:
        return DeviceFitError(
            device.index, Code.SHARED_GPU, device.free, device.total, device.total
        )
    return None
