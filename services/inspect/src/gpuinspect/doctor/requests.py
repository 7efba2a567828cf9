"""Checks of pods' requests: mistakes that keep pods pending, and ways around their share."""

from collections.abc import Iterator
from typing import Final

from gpucore.accounting.node_info import common_unit
from gpucore.explain.sentences import memory_words
from gpucore.scheduling.device_fit import per_device
from gpucore.wire.names import ENV_VISIBLE_DEVICES
from gpucore.wire.whole_requests import pod_request_of
from gpuinspect.doctor.checks import Checklist, Level
from gpuinspect.doctor.evidence import Evidence, called

check = Checklist()
_REFUSED: Final = "UnexpectedAdmissionError"
"""Kubelet's reason where a device plugin refuses the pod."""
_LACKING: Final = "OutOf"
"""How kubelet's reason begins where the node has not enough of the resource that follows."""


@check(
    "requests-possible",
    Level.FAIL,
    "no pod has an invalid request",
    do="correct the pod as described",
)
def _faulty(evidence: Evidence) -> Iterator[str]:
    yield from (
        f"{called(pod)}: {pod_request.fault}"
        for pod, pod_request in evidence.pod_requests
        if pod_request.fault
    )


@check(
    "requests-fit-a-gpu",
    Level.WARN,
    "no pending pod requests more than the largest GPU",
    do="check the unit (GiB or MiB), or spread the pod over GPUs with the label "
    "aliyun.com/gpu-count (the prefix is that of the resources)",
)
def _too_large(evidence: Evidence) -> Iterator[str]:
    if not evidence.sharing:
        return  # another check names nodes whose plugin has not registered
    largest = max(node_info.shape.largest_gpu for _, node_info in evidence.sharing)
    unit = common_unit(node_info for _, node_info in evidence.sharing)
    for pod, pod_request in evidence.waiting:
        requested = per_device(pod_request)[0]
        if requested > largest:
            words = memory_words(requested, unit)
            yield f"{called(pod)} requests {words}, the largest GPU has {largest}"


@check(
    "no-gpu-count-request",
    Level.WARN,
    "no pod requests gpu-count, which allocates nothing",
    do="request gpu-mem or gpu instead",
)
def _count(evidence: Evidence) -> Iterator[str]:
    for pod in evidence.snapshot.pods:
        if any(evidence.names.gpu_count in box.limits for box in pod.containers):
            yield f"{called(pod)} has a limit {evidence.names.gpu_count}"


@check(
    "no-visible-devices",
    Level.FAIL,
    "no pod sets its GPUs in its environment",
    do=f"remove {ENV_VISIBLE_DEVICES} from the pod's env: it gives the pod GPUs that it did not "
    "request",
)
def _visible(evidence: Evidence) -> Iterator[str]:
    for pod in evidence.choosers:
        boxes = evidence.facts(pod).choosing_gpus
        if boxes:
            yield f"{called(pod)} sets it in container {', '.join(boxes)}"


@check(
    "no-privileged-share",
    Level.WARN,
    "no pod with a share is privileged",
    do="remove securityContext.privileged: a privileged container can use every GPU",
)
def _privileged(evidence: Evidence) -> Iterator[str]:
    for pod, _ in evidence.pod_requests:
        if evidence.facts(pod).privileged:
            yield called(pod)


@check(
    "admitted",
    Level.FAIL,
    "kubelet admits all bound pods",
    do="read the pod's message and the plugin's log; delete the pod after correcting the cause",
)
def _admitted(evidence: Evidence) -> Iterator[str]:
    names = evidence.names
    reasons = {_REFUSED, *(_LACKING + name for name in (names.gpu_mem, names.gpu_core, names.gpu))}
    for pod in evidence.snapshot.pods:
        refused = pod.phase == "Failed" and pod.reason in reasons
        if refused and pod_request_of(pod, names) is not None:
            yield f"{called(pod)} on {pod.node}: {pod.reason} {pod.message}".rstrip()


@check(
    "scheduler-looks",
    Level.WARN,
    "a scheduler handles every pending pod",
    do="check that the scheduler in the pod's schedulerName runs",
)
def _looked(evidence: Evidence) -> Iterator[str]:
    for pod, _ in evidence.waiting:
        if not evidence.facts(pod).looked_at:
            yield f"{called(pod)}, which names {pod.scheduler_name or 'no scheduler'}"
