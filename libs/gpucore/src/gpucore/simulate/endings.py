"""The fewest pods whose end frees enough of one GPU, or enough GPUs of one node.

Every step is tried on a copy of the node before it is given, so that no other rule (isolation mode,
cpu, taints) still keeps the pod off.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from typing import Final, NamedTuple

from gpucore.accounting.device_info import DeviceInfo
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import PodRequest
from gpucore.scheduling.candidates import Candidates, PodRequirements
from gpucore.scheduling.device_fit import (
    CURABLE,
    device_fit_error,
    per_device,
    usable_devices,
)
from gpucore.scheduling.fit import fit
from gpucore.steps import Steps
from gpucore.units import GpuIndex, NodeName, PodUid

_DIGITS: Final = 6
"""Parts of pods are rounded, so that equal sums are equal in whatever order they were added."""
TRIED: Final = 200
"""Steps that are tried, the smallest first, before none is given."""


class Step(NamedTuple):
    """Pods of one GPU whose end frees enough; ordered by number, then by the memory they hold."""

    pods: int
    units: int
    node: NodeName
    gpu: GpuIndex
    uids: tuple[PodUid, ...]


def smallest(
    steps: Iterable[Iterable[Step]], pod: PodRequirements, cluster: Candidates
) -> Steps[Step | None]:
    """The smallest step after which the pod is admitted.

    Args:
        steps: those of each node.
    """
    kept: list[Step] = []
    for of_node in steps:
        kept.extend(of_node)
        if len(kept) > 2 * TRIED:
            kept = nsmallest(TRIED, kept)
        yield
    for step in nsmallest(TRIED, kept):
        if _suffices(step, pod, cluster):
            return step
        yield
    return None


def _suffices(step: Step, pod: PodRequirements, cluster: Candidates) -> bool:
    node_info = cluster.admits_without(step.node, pod, step.uids)
    if node_info is None:
        return False
    return (
        bool(pod.pod_request.gpus)
        or device_fit_error(node_info.devices[step.gpu], pod.pod_request) is None
    )


def for_share(node_info: NodeInfo, pod_request: PodRequest) -> Iterator[Step]:
    """The fewest pods to end on each GPU that is large enough; for a share of one GPU."""
    mem, _ = per_device(pod_request)
    if pod_request.gpu_count > 1 or pod_request.core or not node_info.shape.offers_shares:
        return
    by_node = fit(node_info, pod_request) is not None  # pods on unknown GPUs may leave too little
    for gpu in node_info.devices.values():
        refusal = device_fit_error(gpu, pod_request)
        if refusal is not None and refusal.code in CURABLE:
            yield from _freeing_gpu(node_info, gpu, mem, alone=pod_request.whole_device)
        elif refusal is None and by_node:
            for uid, hold in gpu.holders.items():
                yield Step(1, hold.mem, node_info.name, gpu.index, (uid,))


def _freeing_gpu(
    node_info: NodeInfo, device: DeviceInfo, mem: int, *, alone: bool
) -> Iterator[Step]:
    free, chosen, units = device.total - device.withheld - device.used, list[PodUid](), 0
    by_size = sorted(device.holders.items(), key=lambda pair: (-pair[1].mem, pair[0]))
    for uid, hold in by_size:
        if free >= mem and not device.taken and not alone:
            break
        chosen.append(uid)
        units += hold.mem
        free += hold.mem
    if chosen and free >= mem:
        yield Step(len(chosen), units, node_info.name, device.index, tuple(chosen))


def for_gpus(node_info: NodeInfo, pod_request: PodRequest) -> Iterator[Step]:
    """The pods of the GPUs that are cleared with the fewest, so that enough are free.

    Where a pod has several GPUs, its end may free more than those of several other pods.
    """
    wanted, gpus = pod_request.gpus, usable_devices(node_info.devices.values(), pod_request)
    numbers = Counter(uid for device in gpus for uid in device.holders)

    def pods(device: DeviceInfo) -> tuple[float, int, int]:
        return len(device.holders), device.used, device.index

    def parts_of_pods(device: DeviceInfo) -> tuple[float, int, int]:
        parts = round(sum(1 / numbers[uid] for uid in device.holders), _DIGITS)
        return parts, device.used, device.index

    several = max(numbers.values(), default=0) > 1
    for key in (pods, parts_of_pods) if several else (pods,):
        chosen = sorted(gpus, key=key)[:wanted]
        uids = tuple(dict.fromkeys(uid for device in chosen for uid in device.holders))
        if len(chosen) == wanted and uids:
            held = sum(device.used for device in chosen)
            yield Step(len(uids), held, node_info.name, chosen[0].index, uids)
