"""Pods that use more GPU memory than their share, and when to report them again.

Measured, not enforced: figures are those of the driver at one moment, a CUDA context counts like
any other memory, and no process is ended for a finding.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from gpucore.units import GpuIndex, PodUid

AGAIN_SECONDS: Final = 600.0
"""Continued over-use is reported again after this many seconds."""


class MemoryOveruse(msgspec.Struct, frozen=True):
    """A pod that uses more of a GPU than it was given; bytes."""

    pod: PodUid
    gpu: GpuIndex
    used: int
    allocated: int


def over_use(
    gpu: GpuIndex,
    *,
    used: Mapping[PodUid, int],
    allocated: Mapping[PodUid, int],
    exempt: Collection[PodUid],
    slack: int,
) -> list[MemoryOveruse]:
    """The pods that use more than their shares.

    Args:
        used: bytes of each pod on it.
        allocated: bytes of each pod on it; a pod that holds only another GPU has 0.
        exempt: pods that have the GPU whole, or that hold no GPU at all.
        slack: bytes beyond the grant that are tolerated.
    """
    return [
        MemoryOveruse(pod, gpu, size, allocated.get(pod, 0))
        for pod, size in sorted(used.items())
        if pod not in exempt and size > allocated.get(pod, 0) + slack
    ]


class Reminders:
    """When each pod was last reported. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._reported: dict[tuple[PodUid, GpuIndex], float] = {}

    def due(self, gpu: GpuIndex, found: Iterable[MemoryOveruse], now: float) -> list[MemoryOveruse]:
        """Those of ``found``, all of one GPU, to report now; the others were reported recently."""
        over = {(each.pod, each.gpu): each for each in found}
        for key in [key for key in self._reported if key[1] == gpu and key not in over]:
            del self._reported[key]
        due = [
            key for key in over if now - self._reported.get(key, -AGAIN_SECONDS) >= AGAIN_SECONDS
        ]
        self._reported.update(dict.fromkeys(due, now))
        return [over[key] for key in due]
