"""State of one GPU: its allocations and its free memory and compute.

The state counts all allocations, also impossible ones (more than the GPU has, or on a GPU that the
node no longer has): hiding them would allocate the same memory twice. ``free`` never goes below
zero. Utilization, by which binpack and spread score nodes, is in plain figures, so that a caller
who keeps them by the thousand rates as the policies do.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from gpucore.model import CORE_PER_GPU, Gpu
from gpucore.units import MILLI, GpuIndex, PodUid

MPS_CLIENTS: Final = 48
"""Clients that one MPS daemon serves (Volta and newer)."""
_DIGITS: Final = 9


class DeviceAllocation(msgspec.Struct, frozen=True):
    """What one pod holds of one GPU.

    Attributes:
        mem: units of the node.
        core: percent.
        whole: the GPU was given away whole.
        alone: a share that has its GPU to itself.
        confirmed: kubelet has allocated this GPU to the pod, so that no correction moves it.
    """

    mem: int = 0
    core: int = 0
    whole: bool = False
    alone: bool = False
    confirmed: bool = False

    @property
    def exclusive(self) -> bool:
        """No other pod may have anything of the GPU."""
        return self.whole or self.alone


class DeviceInfo:
    """The state of one GPU.

    Attributes:
        index: position on the node.
        gpu: the GPU; ``None`` while the node has no such GPU but allocations on it remain.
        total: units that may be allocated (oversell included).
        healthy: it may be allocated at all.
        max_pods: how many pods it takes; 0 any number.
        withheld: units that kubelet cannot allocate, although no pod uses them.
        used: units allocated.
        core_used: percent allocated.
        holders: its allocations.
    """

    __slots__ = (
        "_alone",
        "_whole",
        "core_used",
        "gpu",
        "healthy",
        "holders",
        "index",
        "max_pods",
        "total",
        "used",
        "withheld",
    )

    def __init__(self, index: GpuIndex, gpu: Gpu | None) -> None:
        self.index = index
        self.gpu = gpu
        self.total = 0
        self.healthy = False
        self.max_pods = 0
        self.withheld = 0
        self.used = 0
        self.core_used = 0
        self.holders: dict[PodUid, DeviceAllocation] = {}
        self._whole = 0
        self._alone = 0

    @classmethod
    def of(cls, gpu: Gpu, *, oversell: int, healthy: bool, max_pods: int) -> "DeviceInfo":
        """The state of ``gpu`` without allocations, with the limits of its kind."""
        limits = [max_pods] if max_pods else []
        limits += [MPS_CLIENTS] if gpu.isolation.uses_mps else []
        limits += [1] if gpu.mig else []
        found = cls(gpu.index, gpu)
        found.total, found.healthy = gpu.units * oversell, healthy
        found.max_pods = min(limits, default=0)
        found.withheld = gpu.withheld
        return found

    @property
    def free(self) -> int:
        """Units that are left; 0 on a GPU that is used exclusively or over-full."""
        if self._whole or self._alone:
            return 0
        held = self.used + self.withheld
        return self.total - held if held < self.total else 0

    @property
    def core_free(self) -> int:
        """Percent that is left; 0 on a GPU that is used exclusively or over-full."""
        if self._whole or self._alone:
            return 0
        return CORE_PER_GPU - self.core_used if self.core_used < CORE_PER_GPU else 0

    @property
    def free_milli(self) -> int:
        """Thousandths that are left, of memory or compute, whichever is scarcer."""
        if not self.total:
            return MILLI if self.empty else 0
        return min(self.free * MILLI // self.total, self.core_free * MILLI // CORE_PER_GPU)

    @property
    def taken(self) -> bool:
        """Somebody has it whole, or to itself."""
        return bool(self._whole or self._alone)

    @property
    def empty(self) -> bool:
        """Whether it has no allocation."""
        return not self.holders

    @property
    def mig(self) -> bool:
        """It is a MIG instance."""
        return self.gpu is not None and self.gpu.mig

    @property
    def crowded(self) -> bool:
        """It takes no further pod, however small."""
        return bool(self.max_pods) and len(self.holders) >= self.max_pods

    @property
    def open(self) -> bool:
        """A further share may come, if it is small enough."""
        return self.healthy and not self._whole and not self._alone and not self.crowded

    @property
    def overfull(self) -> bool:
        """More is held than it has, or by more than may."""
        crowd = len(self.holders)
        return (
            self.used > self.total
            or self.core_used > CORE_PER_GPU
            or (self.taken and crowd > 1)
            or bool(self.max_pods and crowd > self.max_pods)
        )

    @property
    def excess(self) -> int:
        """Units beyond what the GPU has, of pods that are, or will be, on another GPU.

        A confirmed pod is on this one, however full it is.
        """
        held = self.used + self._whole * self.total
        if held <= self.total or self.gpu is None:
            return 0
        movable = sum(hold.mem + hold.whole * self.total for hold in self._movable())
        return min(held - self.total, movable)

    @property
    def crowd(self) -> int:
        """Pods beyond the one that has the GPU whole, or to itself, as in :attr:`excess`."""
        if self.gpu is None or not self.taken:
            return 0
        return min(len(self.holders) - 1, len(self._movable()))

    def _movable(self) -> list[DeviceAllocation]:
        """Allocations that a correction may still move to another GPU."""
        return [hold for hold in self.holders.values() if not hold.confirmed]

    def take(self, uid: PodUid, hold: DeviceAllocation) -> None:
        """Enter what ``uid`` holds; it holds nothing here yet."""
        self.holders[uid] = hold
        self.used += hold.mem
        self.core_used += hold.core
        self._whole += hold.whole
        self._alone += hold.alone

    def drop(self, uid: PodUid) -> None:
        """Strike out what ``uid`` holds, if anything."""
        hold = self.holders.pop(uid, None)
        if hold is None:
            return
        self.used -= hold.mem
        self.core_used -= hold.core
        self._whole -= hold.whole
        self._alone -= hold.alone


def utilization(total: int, used: int, core: float) -> float:
    """Part of a GPU that is in use, 0 to 1: of its memory or its compute, whichever is more.

    Args:
        total: units of memory; 0 where it has none to give.
        used: units held.
        core: part of its compute that is held; 1 where it is used exclusively.
    """
    return min(max(used / total if total else 0.0, core), 1.0)


def rating(in_use: float, gpus: int, *, spread: bool) -> float:
    """How good a node is, 0 to 1, by the parts in use of all its GPUs together.

    Rounded, so that nodes with the same parts in use are equal in whatever order these were added.

    Args:
        in_use: sum of the parts.
        gpus: number of GPUs; at least one.
        spread: the emptier the better; otherwise the fuller.
    """
    return ratings_of((in_use,), gpus, spread=spread)[0]


def ratings_of(in_uses: Iterable[float], gpus: int, *, spread: bool) -> list[float]:
    """:func:`rating` of several sums."""
    if spread:
        return [round(1.0 - in_use / gpus, _DIGITS) for in_use in in_uses]
    return [round(in_use / gpus, _DIGITS) for in_use in in_uses]


def burst_units(burst: int, share: int, gpus: int, total: int) -> int:
    """Units of one GPU that a pod may use; its share where it has no limit of its own.

    Args:
        burst: units of the pod's limit in all.
        share: units that it holds of the GPU.
        gpus: number of GPUs of the pod.
        total: units of the GPU.
    """
    return max(share, min(burst // max(gpus, 1), total))
