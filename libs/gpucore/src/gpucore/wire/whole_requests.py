"""The request of a pod: its GPUs, and the CPU and host memory that it requests besides."""

import msgspec

from gpucore.model import PodRequest
from gpucore.model.constraints import CPU, Resources
from gpucore.wire.constraints import are_short, pod_requests
from gpucore.wire.errors import WireError
from gpucore.wire.kept import kept_where
from gpucore.wire.names import Names
from gpucore.wire.pod.requests import gpu_request_of
from gpucore.wire.pod.spec import Pod
from gpucore.wire.pod.texts import KEPT_CONTAINERS


def pod_request_of(pod: Pod, names: Names) -> PodRequest | None:
    """The GPU request of ``pod`` with its CPU and host memory, or ``None`` without one.

    Raises:
        WireError: an amount is no Kubernetes quantity (the API server accepts no such pod).
    """
    found = gpu_request_of(pod, names)
    return None if found is None else _on_host(found, host_requests(pod, names))


def host_requests(pod: Pod, names: Names) -> Resources:
    """What it requests besides GPUs; nothing where an amount is none that an API server accepts."""
    if pod.constraints is not None:
        return pod.constraints.requests
    try:
        return pod_requests(pod, names)
    except WireError:
        return ()


def _are_few(request: PodRequest, requests: Resources) -> bool:
    return len(request.containers) <= KEPT_CONTAINERS and are_short(requests)


@kept_where(_are_few)
def _on_host(request: PodRequest, requests: Resources) -> PodRequest:
    """The request with the CPU and host memory of its pod."""
    amounts = dict(requests)
    cpu, memory = amounts.get(CPU, 0), amounts.get("memory", 0)
    if not (cpu or memory):
        return request
    return msgspec.structs.replace(request, cpu_milli=cpu, memory_mib=-(-memory >> 20))
