"""Which pending pods one explanation holds for."""

from gpucore.model import PodRequest
from gpucore.model.constraints import PodConstraints
from gpucore.wire.pod.gangs import gang_of
from gpucore.wire.pod.spec import Pod


def likeness(pod: Pod, pod_request: PodRequest, constraints: PodConstraints) -> object:
    """What pods have in common that one explanation holds for."""
    nominated = pod.uid if pod.nominated else ""
    return pod_request, constraints, pod.scheduler_name, gang_of(pod), pod.priority, nominated
