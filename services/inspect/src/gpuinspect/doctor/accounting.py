"""Checks of what pods hold: every unit on a GPU that exists, none twice, none unexplained."""

from collections.abc import Iterator

from gpucore.accounting.device_info import DeviceInfo
from gpucore.accounting.node_info import unit_of
from gpucore.model import CORE_PER_GPU, AllocationState
from gpucore.units import MemoryUnit
from gpuinspect.doctor.checks import Checklist, Level
from gpuinspect.doctor.evidence import Evidence, called

check = Checklist()


@check(
    "no-pending",
    Level.FAIL,
    "every bound pod is on a known GPU",
    do="its scheduler did not call the extender: check schedulerName, then create it again",
)
def _pending(evidence: Evidence) -> Iterator[str]:
    for name, node_info in evidence.node_infos.items():
        for allocation in node_info.allocations.values():
            if evidence.by_claim(allocation):
                continue
            if allocation.pending or allocation.pending_gpus or allocation.pending_core:
                yield f"{called(allocation)} is on {name}, but on no known GPU"


@check(
    "annotations-true",
    Level.FAIL,
    "annotations of pods agree with their requests",
    do="they were edited: create the pod again, and restrict write access to annotations",
)
def _faults(evidence: Evidence) -> Iterator[str]:
    for allocation in evidence.ledger.allocations().values():
        yield from (f"{called(allocation)}: {fault}" for fault in allocation.faults)


@check(
    "gpus-exist",
    Level.FAIL,
    "no pod has a GPU that is missing from its node",
    do="the GPU was lost or replaced: create the listed pods again",
)
def _lost(evidence: Evidence) -> Iterator[str]:
    for name, node_info in evidence.node_infos.items():
        for index in sorted(node_info.lost_gpus):
            holders = node_info.devices[index].holders
            pods = ", ".join(sorted(called(node_info.allocations[uid]) for uid in holders))
            yield f"{name} has no GPU {index}, but {pods} on it"


@check(
    "no-gpu-overfull",
    Level.FAIL,
    "no GPU is over-full",
    do="delete one of its pods, or restore devicePlugin.memoryUnit, the MIG layout or the node "
    "label that changed; if none did and gpushare's device plugin runs there, report a bug",
)
def _overfull(evidence: Evidence) -> Iterator[str]:
    for name, node_info in evidence.node_infos.items():
        for index in node_info.overfull:
            device = node_info.devices[index]
            if device.gpu is not None:
                figures = ", ".join(_excesses(device, unit_of(node_info)))
                yield f"{name} GPU {index}: {figures}"


def _excesses(device: DeviceInfo, unit: MemoryUnit) -> Iterator[str]:
    """What its pods hold, beginning with memory, and of what else that is too much."""
    pods = len(device.holders)
    yield f"{device.used} of {device.total} {unit}"
    if device.core_used > CORE_PER_GPU:
        yield f"{device.core_used} % of its compute"
    if device.max_pods and pods > device.max_pods:
        yield f"{pods} pods of at most {device.max_pods}"
    if device.taken and pods > 1:
        yield f"{pods} pods, of which one has it exclusively"


@check(
    "claims-confirmed",
    Level.WARN,
    "the device plugin has confirmed the GPU of every running pod",
    do="check that the node's device plugin runs and may patch pods",
)
def _confirmed(evidence: Evidence) -> Iterator[str]:
    # Kubelet lists no devices of init containers, and before 1.29 none of sidecars.
    running = {
        pod.uid
        for pod, pod_request in evidence.pod_requests
        if pod.phase == "Running" and any(pod_request.containers)
    }
    for uid, allocation in evidence.ledger.allocations().items():
        if uid not in running or evidence.by_claim(allocation):
            continue
        if allocation.state is not AllocationState.CONFIRMED:
            yield f"{called(allocation)} runs on {allocation.placement.node} unconfirmed"


@check(
    "nodes-exist",
    Level.WARN,
    "no pod has GPUs of a node that does not exist",
    do="delete the listed pods, with --force if the node will not return",
)
def _vanished(evidence: Evidence) -> Iterator[str]:
    for name, node_info in evidence.node_infos.items():
        if not node_info.present:
            pods = ", ".join(sorted(map(called, node_info.allocations.values())))
            yield f"{name} does not exist, but {pods} on it"


@check(
    "pods-end",
    Level.WARN,
    "no pod with GPUs is terminating on a node that is not ready",
    do="it ends when the node is ready again; if the machine is certainly off, delete its Node "
    "object: Kubernetes then deletes the pods, and their controllers create others",
)
def _unconfirmed_ends(evidence: Evidence) -> Iterator[str]:
    unready = {node.name for node in evidence.snapshot.nodes if not node.ready}
    for pod, _ in evidence.pod_requests:
        if pod.terminating and pod.node in unready:
            yield f"{called(pod)} is terminating on {pod.node}, which is not ready"
