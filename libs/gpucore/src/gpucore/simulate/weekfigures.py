"""Figures of a simulated week: GPU time allocated and wasted, and waiting times by class of pod."""

from collections.abc import Mapping, Sequence
from math import ceil

import msgspec

from gpucore.simulate.jobs import PodClass
from gpucore.units import MILLI

HOUR = 3600.0


class WaitingTimes(msgspec.Struct, frozen=True):
    """Waiting times of one class in seconds, from arrival to start.

    Attributes:
        jobs: that arrived while it was measured; a gang is one.
    """

    jobs: int
    mean: float
    p50: float
    p95: float


class WeekFigures(msgspec.Struct, frozen=True):
    """What a week was like, in hours of GPUs.

    Attributes:
        measured: of all GPUs.
        allocated: to pods.
        stranded: free on GPUs that have a pod.
        wasted: free although waiting pods requested as much.
        moves: of pods by defragmentation.
    """

    measured: float
    allocated: float
    stranded: float
    wasted: float
    moves: int
    waiting: Mapping[PodClass, WaitingTimes]


class WeekMeter:
    """Adds up GPU time between two moments.

    Args:
        gpus: of the cluster.

    Attributes:
        allocated, waiting: thousandths of GPUs that pods hold, and that waiting pods request.
        opened: GPUs that have a pod.
    """

    def __init__(self, gpus: int, start: float, end: float) -> None:
        self._gpus, self._start, self._end = gpus, start, end
        self._now = 0.0
        self.allocated = self.waiting = self.opened = 0
        self._allocated = self._stranded = self._wasted = 0.0

    def advance(self, now: float) -> None:
        """The state stayed as it is until ``now``."""
        seconds = min(now, self._end) - max(self._now, self._start)
        self._now = now
        if seconds <= 0:
            return
        free = self._gpus * MILLI - self.allocated
        self._allocated += seconds * self.allocated
        self._stranded += seconds * (self.opened * MILLI - self.allocated)
        self._wasted += seconds * min(free, self.waiting)

    def figures(self, moves: int, waits: Mapping[PodClass, Sequence[float]]) -> WeekFigures:
        """The sums."""
        return WeekFigures(
            measured=self._gpus * (self._end - self._start) / HOUR,
            allocated=self._allocated / MILLI / HOUR,
            stranded=self._stranded / MILLI / HOUR,
            wasted=self._wasted / MILLI / HOUR,
            moves=moves,
            waiting={one: waiting(waits[one]) for one in PodClass if waits.get(one)},
        )


def waiting(seconds: Sequence[float]) -> WaitingTimes:
    """Mean and percentiles, each the smallest value that this part of the jobs does not exceed."""
    ordered = sorted(seconds)

    def at(part: float) -> float:
        return round(ordered[max(ceil(part * len(ordered)) - 1, 0)], 1)

    return WaitingTimes(len(ordered), round(sum(ordered) / len(ordered), 1), at(0.5), at(0.95))
