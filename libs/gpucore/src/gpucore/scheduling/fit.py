"""Fit of a request on one node, or the reason. Nothing is reserved.

:func:`fit` is about the GPUs, :func:`admit` about the rules of kube-scheduler too.
"""

from collections.abc import Sequence
from typing import Final

from gpucore.accounting.device_info import DeviceInfo
from gpucore.accounting.node_info import NodeInfo
from gpucore.kubescheduler.node_fit import constraint_refusals
from gpucore.model import (
    Code,
    DeviceFitError,
    FitError,
    IsolationMode,
    PodRequest,
)
from gpucore.model.codes import COUNTING
from gpucore.model.constraints import CandidateNode, PodConstraints
from gpucore.scheduling.device_fit import (
    CURABLE,
    device_fit_error,
    exclusive_fit_error,
    fitting_devices,
    per_device,
    usable_devices,
)

_TELLING: Final = (
    Code.INSUFFICIENT_CORE,
    Code.INSUFFICIENT_MEMORY,
    Code.MAX_PODS,
    Code.SHARED_GPU,
    Code.TAKEN_WHOLE,
    Code.UNHEALTHY,
    Code.ISOLATION_MODE_MISSING,
    Code.MIG_INSTANCE,
    Code.COMPUTE_TOO_LARGE,
    Code.TOO_LARGE,
)
"""GPU codes by how near the GPU came to taking the request; the first present names the node's."""

_FOR_NO_POD: Final = frozenset(
    {Code.INVALID_REQUEST, Code.NODE_UNKNOWN, Code.NOT_SHARED, Code.NO_INVENTORY}
)
"""Precedes every other rule: the node has no GPUs for this pod."""


def fit(node_info: NodeInfo, pod_request: PodRequest) -> FitError | None:
    """Why the node cannot take the pod; ``None`` when it can."""
    return _unfit_node(node_info, pod_request) or (
        _unfit_gpus(node_info, pod_request)
        if pod_request.gpus
        else _unfit_shares(node_info, pod_request)
    )


def fits(node_info: NodeInfo, pod_request: PodRequest) -> bool:
    """Whether :func:`fit` has no reason, by the aggregates of the node where these decide."""
    return has_room(node_info, pod_request) and (
        is_plain(pod_request) or fit(node_info, pod_request) is None
    )


def has_room(node_info: NodeInfo, pod_request: PodRequest) -> bool:
    """Whether the aggregates of the node leave room for the pod; exact for a plain request."""
    if pod_request.gpus:
        return free_gpus(node_info, pod_request) >= pod_request.gpus
    return node_info.max_allocatable_memory >= -(-pod_request.mem // pod_request.gpu_count)


def free_gpus(node_info: NodeInfo, pod_request: PodRequest) -> int:
    """How many GPUs the pod could have exclusively now; -1 where none are offered."""
    return node_info.free_full_gpus if pod_request.combines_gpus else node_info.free_gpus


def _unfit_node(node_info: NodeInfo, pod_request: PodRequest) -> FitError | None:
    if pod_request.fault:
        return _final(node_info, Code.INVALID_REQUEST, detail=pod_request.fault)
    if not node_info.present:
        return _final(node_info, Code.NODE_UNKNOWN)
    offered = node_info.shape.offers_gpus if pod_request.gpus else node_info.shape.offers_shares
    if not offered:
        return _final(node_info, Code.NOT_SHARED)
    inventory = node_info.inventory
    if inventory is None or not (inventory.gpus and inventory.serving):
        empty = inventory is None or not inventory.gpus
        return _final(node_info, Code.NO_INVENTORY if empty else Code.PLUGIN_AWAY)
    if pod_request.mem % pod_request.gpu_count or pod_request.core % pod_request.gpu_count:
        return _uneven(node_info, pod_request)
    return None


def _uneven(node_info: NodeInfo, pod_request: PodRequest) -> FitError:
    """The memory does not divide, or only the compute, which ``detail`` states."""
    by_memory = bool(pod_request.mem % pod_request.gpu_count)
    return _final(
        node_info,
        Code.UNEVEN_SPLIT,
        requested=pod_request.mem if by_memory else pod_request.core,
        total=pod_request.gpu_count,
        detail="" if by_memory else "percent of compute",
    )


def _final(
    node_info: NodeInfo, code: Code, *, requested: int = 0, total: int = 0, detail: str = ""
) -> FitError:
    return FitError(
        node_info.name,
        code,
        unit=node_info.unit,
        requested=requested,
        total=total,
        detail=detail,
        unresolvable=True,
    )


def _unfit_shares(node_info: NodeInfo, pod_request: PodRequest) -> FitError | None:
    devices = node_info.devices.values()
    if len(fitting_devices(devices, pod_request)) < pod_request.gpu_count:
        present = _present_devices(node_info)
        refusals = [r for c in present if (r := device_fit_error(c, pod_request))]
        return _refused(node_info, pod_request, refusals, per_device(pod_request)[0])
    reserved = node_info.reserved_units()
    free = max(node_info.free_units() - reserved, 0)
    return (
        _too_little(node_info, Code.PENDING_UNITS, pod_request.mem, free, reserved)
        or _pending_gpus(node_info, pod_request)
        or _pending_compute(node_info, pod_request)
    )


def _present_devices(node_info: NodeInfo) -> list[DeviceInfo]:
    """The GPUs of the node, without those that it lost while pods still have them."""
    return [device for device in node_info.devices.values() if device.gpu is not None]


def _too_little(
    node_info: NodeInfo, code: Code, requested: int, free: int, total: int
) -> FitError | None:
    """What is held on no known GPU leaves less than is requested; ``None`` where it does not."""
    if requested <= free:
        return None
    return FitError(
        node_info.name, code, unit=node_info.unit, requested=requested, free=free, total=total
    )


def _pending_gpus(node_info: NodeInfo, pod_request: PodRequest) -> FitError | None:
    """What is held on no known GPU may be on those that look empty, as for exclusive GPUs."""
    if not (pod_request.whole_device and node_info.reserved_gpus()):
        return None
    usable = usable_devices(node_info.devices.values(), pod_request)
    empty = sum(device.open and device.empty for device in usable)
    free = max(empty - node_info.reserved_gpus(), 0)
    total = len(node_info.devices)
    return _too_little(node_info, Code.INSUFFICIENT_GPUS, pod_request.gpu_count, free, total)


def _pending_compute(node_info: NodeInfo, pod_request: PodRequest) -> FitError | None:
    """Compute held on no known GPU leaves too little of the node's for this request."""
    pending = node_info.reserved_core()
    if not (pod_request.core and pending):
        return None
    free = sum(device.core_free for device in node_info.devices.values() if device.healthy)
    left = max(free - pending, 0)
    return _too_little(node_info, Code.PENDING_COMPUTE, pod_request.core, left, pending)


def _refused(
    node_info: NodeInfo, pod_request: PodRequest, refusals: Sequence[DeviceFitError], requested: int
) -> FitError:
    codes = {refusal.code for refusal in refusals}
    code = next((code for code in _TELLING if code in codes), Code.INSUFFICIENT_GPUS)
    curable = sum(refusal.code in CURABLE for refusal in refusals)
    present = len(_present_devices(node_info))
    fitting = present - len(refusals)
    in_gpus = code in COUNTING
    return FitError(
        node_info.name,
        code,
        gpus=tuple(refusals),
        unit=node_info.unit,
        requested=pod_request.gpu_count if in_gpus else requested,
        free=fitting,
        total=present if in_gpus else pod_request.gpu_count,
        unresolvable=fitting + curable < pod_request.gpu_count,
    )


def _unfit_gpus(node_info: NodeInfo, pod_request: PodRequest) -> FitError | None:
    free = free_gpus(node_info, pod_request)
    if free >= pod_request.gpus:
        return None
    devices = _present_devices(node_info)
    refusals = [r for c in devices if (r := exclusive_fit_error(c, pod_request))]
    healthy = sum(gpu.healthy for gpu in devices)
    usable = len(usable_devices(devices, pod_request))
    by_mig = usable < pod_request.gpus <= healthy
    return FitError(
        node_info.name,
        Code.MIG_INSTANCE if by_mig else Code.INSUFFICIENT_GPUS,
        gpus=tuple(refusals),
        unit=node_info.unit,
        requested=pod_request.gpus,
        free=free,
        total=len(node_info.shape.inventory.gpus) if node_info.shape.inventory else 0,
        unresolvable=usable < pod_request.gpus,
    )


def is_plain(pod_request: PodRequest) -> bool:
    """Whether the aggregates of a node are sufficient to decide it."""
    return not (
        pod_request.fault
        or pod_request.core
        or pod_request.whole_device
        or pod_request.gpu_count > 1
        or pod_request.isolation is not IsolationMode.NONE
    )


def admit(
    node_info: NodeInfo, pod_request: PodRequest, node: CandidateNode, pod: PodConstraints
) -> FitError | None:
    """Why this node does not admit the pod, the first reason only; ``None`` when it does."""
    by_gpus = fit(node_info, pod_request)
    if by_gpus is not None and by_gpus.code in _FOR_NO_POD:
        return by_gpus
    return next(constraint_refusals(node, pod), None) or by_gpus
