"""How much memory a pod may use beyond its share, where the driver limits memory.

The request is what the scheduler accounts for and what the driver guarantees (soft limit). The
limit is the most that the pod can allocate (hard limit): it borrows what the GPU has idle, and may
lose it again when others use what they are guaranteed.
"""

from gpucore.model import Gpu
from gpucore.node.isolation.driver_limits import MemoryLimit
from gpucore.units import MIB_BYTES, MemoryUnit
from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpucore.wire.pod.requests import kai_limit
from gpucore.wire.pod.spec import Pod
from gpucore.wire.whole_requests import pod_request_of


def memory_limit(pod: Pod, gpu: Gpu, units: int, unit: MemoryUnit, names: Names) -> MemoryLimit:
    """The driver's limit of a pod with so many units of a GPU; never more than the GPU has."""
    share = units * unit.mib
    try:
        pod_request = pod_request_of(pod, names)
    except WireError:
        pod_request = None
    burst = pod_request.burst if pod_request else 0
    most = burst * unit.mib if burst else kai_limit(pod, unit, names)
    each = most // (pod_request.gpu_count if pod_request else 1)
    hard = max(share, min(each, gpu.units * unit.mib))
    return MemoryLimit(share * MIB_BYTES, hard * MIB_BYTES)


def burst_units(burst: int, share: int, gpus: int, total: int) -> int:
    """Units of one GPU that a pod may use; its share where it has no limit of its own.

    Args:
        burst: units of the pod's limit in all.
        share: units that it holds of the GPU.
        gpus: number of GPUs of the pod.
        total: units of the GPU.
    """
    return max(share, min(burst // max(gpus, 1), total))
