"""The jobs of a simulated week: pods of a trace with lifetimes, some of them as gangs.

Every job is a random pod of the trace with its lifetime. Jobs are drawn until they request a given
share of the cluster's GPUs for all of the time, and arrive at random moments of it.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from gpucore.simulate.traces import Pick, TraceError, TracePod
from gpucore.units import MILLI

DAY: Final = 86_400
MOST_JOBS: Final = 1_000_000
"""Of one week."""
GANG_SIZES: Final = (2, 4, 8)
_PARTS: Final = 10_000


class PodClass(StrEnum):
    """Classes by which waiting times are reported."""

    CPU = "cpu"
    SHARE = "share"
    ONE = "one-gpu"
    SEVERAL = "several-gpus"
    GANG = "gang"


class TimedPod(msgspec.Struct, frozen=True):
    """A pod of a trace and how long it ran."""

    pod: TracePod
    seconds: float


class Job(msgspec.Struct, frozen=True):
    """Equal pods that start together, usually one.

    Attributes:
        number: in the order of arrival.
        arrival: seconds since the start.
    """

    number: int
    pod: TracePod
    seconds: float
    arrival: float
    members: int = 1

    @property
    def milli(self) -> int:
        """Thousandths of GPUs that all members request."""
        return self.pod.milli * self.members

    @property
    def pod_class(self) -> PodClass:
        """The class of its pods; gangs are a class of their own."""
        return PodClass.GANG if self.members > 1 else class_of(self.pod)


class WeekPlan(msgspec.Struct, frozen=True):
    """How jobs come.

    Attributes:
        load: GPU time that jobs request, as a multiple of what the cluster has.
        days: in which jobs arrive.
        warm_days: days at the start that are not measured: the cluster is empty at first.
        longest_seconds: longer lifetimes are cut to this.
        gangs: part of the jobs with exclusive GPUs that are gangs.
    """

    load: float = 0.9
    days: int = 7
    warm_days: int = 1
    longest_seconds: float = DAY
    gangs: float = 0.05

    @property
    def seconds(self) -> float:
        """Length of the time in which jobs arrive."""
        return float(self.days * DAY)


Fits = Callable[[TracePod, int], bool]
"""Whether this number of equal pods fits the empty cluster."""


def class_of(pod: TracePod) -> PodClass:
    """The class of a pod that is no member of a gang."""
    if not pod.gpus:
        return PodClass.CPU
    if pod.gpu_milli < MILLI:
        return PodClass.SHARE
    return PodClass.ONE if pod.gpus == 1 else PodClass.SEVERAL


def jobs(
    pods: Iterable[TimedPod], gpus: int, plan: WeekPlan, *, pick: Pick, fits: Fits
) -> list[Job]:
    """The jobs of the week in the order of arrival.

    Args:
        fits: pods that do not fit the empty cluster are left out, and gangs are single pods.

    Raises:
        TraceError: no pod with GPUs fits the empty cluster, or more than :data:`MOST_JOBS` are
            needed.
    """
    fitting = [each for each in pods if fits(each.pod, 1)]
    if not any(each.pod.gpus for each in fitting):
        raise TraceError("no pod of the trace with GPUs fits the empty cluster")
    wanted = plan.load * gpus * MILLI * plan.seconds
    found: list[Job] = []
    while wanted > 0:
        if len(found) == MOST_JOBS:
            raise TraceError(f"the pods are too short: {MOST_JOBS} do not make a week of this load")
        job = _drawn(fitting, plan, pick, fits)
        wanted -= job.milli * job.seconds
        found.append(job)
    found.sort(key=lambda job: job.arrival)
    return [msgspec.structs.replace(job, number=number) for number, job in enumerate(found)]


def _drawn(pods: Sequence[TimedPod], plan: WeekPlan, pick: Pick, fits: Fits) -> Job:
    one = pods[pick(len(pods))]
    arrival = pick(round(plan.seconds * MILLI)) / MILLI
    chance, size = pick(_PARTS), GANG_SIZES[pick(len(GANG_SIZES))]
    exclusive = one.pod.gpus and one.pod.gpu_milli == MILLI
    gang = exclusive and chance < plan.gangs * _PARTS and fits(one.pod, size)
    seconds = min(max(one.seconds, 1.0), plan.longest_seconds)
    return Job(0, one.pod, seconds, arrival, size if gang else 1)


def with_lifetimes(
    pods: Iterable[TracePod], known: Sequence[TimedPod], pick: Pick
) -> list[TimedPod]:
    """Each pod with the lifetime of a random known pod of its class, or of any where none is."""
    by_class: dict[PodClass, list[TimedPod]] = {}
    for each in known:
        by_class.setdefault(class_of(each.pod), []).append(each)
    found: list[TimedPod] = []
    for pod in pods:
        alike = by_class.get(class_of(pod), known)
        found.append(TimedPod(pod, alike[pick(len(alike))].seconds))
    return found
