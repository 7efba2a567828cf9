"""Memory limits that the NVIDIA driver enforces on a pod's cgroup, and what a look at one means.

The request is what the scheduler accounts for and what the driver guarantees (soft limit). The
limit is the most that the pod can allocate (hard limit): it borrows what the GPU has idle, and may
lose it again when others use what they are guaranteed.
"""

from enum import Enum, auto
from typing import Final

import msgspec

from gpucore.model import Gpu
from gpucore.units import MIB_BYTES, MemoryUnit
from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpucore.wire.pod.requests import kai_limit
from gpucore.wire.pod.spec import Pod
from gpucore.wire.whole_requests import pod_request_of


class MemoryLimit(msgspec.Struct, frozen=True):
    """Bytes of one GPU: guaranteed (soft), and the most that can be allocated (hard)."""

    soft: int
    hard: int


NO_LIMIT: Final = MemoryLimit(0, (1 << 64) - 1)
"""As NVML returns it."""


class Finding(Enum):
    """The limit of one pod on one GPU.

    Attributes:
        HOLDS: it is in force.
        PENDING: the pod has no cgroup yet, or no longer; nothing of it runs.
        BROKEN: it is not in force, or somebody has changed it since the last look.
    """

    HOLDS = auto()
    PENDING = auto()
    BROKEN = auto()


def limit_of(share: int) -> MemoryLimit:
    """The limit of a share in bytes: all of it is guaranteed and no more can be allocated."""
    return MemoryLimit(share, share)


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


def is_earlier(read: MemoryLimit, wanted: MemoryLimit, *, gpu_bytes: int) -> bool:
    """The limit that was read is of the same share, with another maximum that a pod could have."""
    return read.soft == wanted.soft and read.hard != wanted.hard and read.hard <= gpu_bytes


def attainable(wanted: MemoryLimit, read: MemoryLimit, *, used: int) -> MemoryLimit:
    """The limit to set: the wanted one, or the earlier one while the pod uses more than is wanted.

    Args:
        wanted: by the share and the annotation.
        read: in force, see :func:`is_earlier`.
        used: bytes in use.
    """
    return read if wanted.hard < used <= read.hard else wanted


def judge(
    wanted: MemoryLimit, read: MemoryLimit, *, after: MemoryLimit, confirmed: bool
) -> Finding:
    """What a look means that read a limit, set the wanted one where it differed and read again.

    Args:
        wanted: what should be in force.
        read: what was in force.
        after: what is in force now.
        confirmed: an earlier look found the wanted limit in force. Then a difference is somebody's
            work, and counts until a later look finds the limit in force again.
    """
    if after != wanted or (confirmed and read != wanted):
        return Finding.BROKEN
    return Finding.HOLDS
