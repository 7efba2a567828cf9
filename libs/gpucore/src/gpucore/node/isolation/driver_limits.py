"""Memory limits that the NVIDIA driver enforces on a pod's cgroup, and what a look at one means."""

from enum import Enum, auto
from typing import Final

import msgspec


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
