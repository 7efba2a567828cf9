"""GPU memory and SMs that a workload had in use, as histograms of bounded size.

A history belongs to one container of one workload on one node; :mod:`gpucore.sizing.merging` adds
up those of several nodes. Old samples count less: :meth:`UsageHistory.faded` halves all buckets
once a week.

The clock of a node may be wrong for some time. Once it is right again:

- The next sample has the right time. What was measured before keeps its length, and no event is
  later than the sample.
- A wrong time in the past counts as at most :data:`GAP_SECONDS` of measuring.
- While the clock was ahead, samples faded as if that time had passed. A history that lost all of
  them begins anew, so that it is too short for a recommendation.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from gpucore.sizing.buckets import (
    bucket_of,
    percentile_edge,
    percentile_index,
    sm_bucket_of,
    sm_upper_edge,
    upper_edge,
)

START_SECONDS: Final = 120.0
"""For this time after its start a pod counts as starting."""
FADE_SECONDS: Final = 7 * 24 * 3600.0
"""After this time the samples of a history count half."""
GAP_SECONDS: Final = 24 * 3600.0
"""A longer time without a sample counts as this time, since nothing was measured in it."""

Name = Annotated[str, msgspec.Meta(max_length=253)]
Time = Annotated[float, msgspec.Meta(ge=0, le=2**40)]
Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
ALL_CONTAINERS: Final = ""
"""Container of a history where several containers of a pod hold GPUs: the sum of all of them."""


REACHED_PERCENT: Final = 98
"""Part of the limit from which memory in use counts as having reached it."""
KEPT_SECONDS: Final = 28 * 24 * 3600.0
"""After this time an event is forgotten."""


class LimitEvent(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """The last time that a limit was not enough, or was reached; of two, the later is greater.

    Attributes:
        at: Unix seconds; 0 for never.
        limit_bytes: the limit at that time.
    """

    at: Time = 0.0
    limit_bytes: Number = 0

    def kept(self, now: float) -> "LimitEvent":
        """The event, or none where it is older than :data:`KEPT_SECONDS`."""
        return self if now - self.at < KEPT_SECONDS else NEVER

    def until(self, now: float) -> "LimitEvent":
        """The event, at this time where it is later."""
        return LimitEvent(min(self.at, now), self.limit_bytes)


NEVER: Final = LimitEvent()


def reaches(used_bytes: int, limit_bytes: int) -> bool:
    """The memory in use is nearly all that the limit allows; false without a limit."""
    return 0 < REACHED_PERCENT * limit_bytes <= 100 * used_bytes


class WorkloadKey(msgspec.Struct, frozen=True, order=True):
    """One container of a workload.

    Attributes:
        kind: Deployment, StatefulSet, Job, CronJob, DaemonSet, another kind of controller, or Pod
            for a pod without one.
        name: of the workload.
        container: name of the container, or :data:`ALL_CONTAINERS`.
    """

    namespace: Name
    kind: Name
    name: Name
    container: Name


class UsageHistory(msgspec.Struct, rename="camel"):
    """What was measured of one container of a workload.

    Attributes:
        first_seen: Unix seconds of the first sample; later where nothing was measured for more than
            :data:`GAP_SECONDS`.
        last_seen: Unix seconds of the last sample, or of a later time that it ran out of memory.
        pods: number of pods that were measured.
        starts: number of starts that were measured from their beginning, of pods and of
            containers in them.
        samples: number of samples in all buckets; those of earlier weeks count less.
        buckets: number of samples by the index of :mod:`gpucore.sizing.buckets`.
        peak_bytes: the most memory in use.
        week_peak_bytes: the most memory in use since the samples were halved last.
        start_peak_bytes: the most memory in use within :data:`START_SECONDS` of a start.
        out_of_memory: number of times a pod ran out of GPU memory, as far as this is known.
        ran_out: the last of these times.
        reached: the last time that the memory in use was nearly all of the limit.
        gpus: number of GPUs of a pod, as of the last sample; 0 unknown.
        requested_bytes, limit_bytes: of the container, as of the last sample; 0: unknown or none.
        claims: the memory is that of ResourceClaims of the pod, as of the last sample.
        sm_buckets: number of samples of the SM utilization of a GPU, which the driver reports for
            some GPUs, by the index of :mod:`gpucore.sizing.buckets`.
        faded_at: Unix seconds up to which the buckets were halved; 0 before the first sample.
    """

    key: WorkloadKey
    first_seen: float = 0.0
    last_seen: float = 0.0
    pods: int = 0
    starts: int = 0
    samples: int = 0
    buckets: dict[int, int] = msgspec.field(default_factory=dict)
    peak_bytes: int = 0
    start_peak_bytes: int = 0
    out_of_memory: int = 0
    requested_bytes: int = 0
    limit_bytes: int = 0
    faded_at: float = 0.0
    ran_out: LimitEvent = NEVER
    reached: LimitEvent = NEVER
    gpus: int = 0
    week_peak_bytes: int = 0
    claims: bool = False
    sm_buckets: dict[int, int] = msgspec.field(default_factory=dict)

    def record(
        self,
        now: float,
        used_bytes: int,
        *,
        requested_bytes: int = 0,
        limit_bytes: int = 0,
        allowed_bytes: int = 0,
        gpus: int = 0,
        claims: bool = False,
        starting: bool = False,
        sm_percent: int | None = None,
    ) -> None:
        """Add one sample.

        Args:
            now: Unix seconds.
            requested_bytes, limit_bytes: of the container, as its owner wrote them.
            allowed_bytes: limit in force where it is another one, as after a change at creation.
            claims: the memory is that of ResourceClaims of the pod.
            starting: whether the pod started less than :data:`START_SECONDS` ago.
            sm_percent: SM utilization of a GPU by it; ``None`` unknown.
        """
        used = max(used_bytes, 0)
        self._measured_at(now)
        index = bucket_of(used)
        self.buckets[index] = self.buckets.get(index, 0) + 1
        self.samples += 1
        self.peak_bytes = max(self.peak_bytes, used)
        self.week_peak_bytes = max(self.week_peak_bytes, used)
        if starting:
            self.start_peak_bytes = max(self.start_peak_bytes, used)
        self.requested_bytes, self.limit_bytes, self.gpus = requested_bytes, limit_bytes, gpus
        self.claims = claims
        if sm_percent is not None:
            sm_index = sm_bucket_of(sm_percent)
            self.sm_buckets[sm_index] = self.sm_buckets.get(sm_index, 0) + 1
        limit = allowed_bytes or max(limit_bytes, requested_bytes)
        if reaches(used, limit):
            self.reached = max(self.reached, LimitEvent(now, limit))

    def _measured_at(self, now: float) -> None:
        """Take the time of a sample, which is earlier than the last one if the clock was set back.

        Args:
            now: Unix seconds.
        """
        passed = now - self.last_seen
        if not self.samples:
            self.first_seen = self.faded_at = now
        elif passed < 0:
            self.first_seen = max(self.first_seen + passed, 0.0)
            self.faded_at = min(self.faded_at, now)
        elif passed > GAP_SECONDS:
            self.first_seen += passed - GAP_SECONDS
        if passed < 0:
            self.ran_out, self.reached = self.ran_out.until(now), self.reached.until(now)
        self.last_seen = now

    def fail(self, now: float, limit_bytes: int) -> None:
        """A pod ran out of GPU memory.

        Args:
            now: Unix seconds.
            limit_bytes: what it was allowed to use.
        """
        self.out_of_memory += 1
        self.last_seen = max(self.last_seen, now)
        self.ran_out = max(self.ran_out, LimitEvent(now, limit_bytes))

    def percentile(self, percent: float) -> int:
        """Memory in bytes that this percentage of the samples did not exceed.

        The upper edge of a bucket, and never above the peak; 0 without samples.

        Args:
            percent: 0 to 100.
        """
        return min(percentile_edge(self.buckets, percent), self.peak_bytes)

    def sm_percentile(self, percent: float) -> int | None:
        """SM utilization in percent that this percentage of the samples did not exceed.

        The upper edge of a bucket; ``None`` without samples.

        Args:
            percent: 0 to 100.
        """
        index = percentile_index(self.sm_buckets, percent)
        return None if index is None else sm_upper_edge(index)

    @property
    def is_forgotten(self) -> bool:
        """It had samples, and none of them is left, nor a peak or an event."""
        left = self.samples or self.peak_bytes or self.ran_out.at or self.reached.at
        return bool(self.first_seen and not left)

    def faded(self, now: float) -> "UsageHistory":
        """The history with its samples halved for each full week that passed.

        Events of more than four weeks ago are forgotten. A peak of an earlier week of which no
        sample is left falls to the highest bucket that has one. The peak of starts stays as long as
        the history has samples: a pod that runs for weeks must be able to start again. With the
        last sample the numbers of pods and starts are forgotten.
        """
        since = self.faded_at or self.first_seen
        weeks = int(max(now - since, 0.0) // FADE_SECONDS)
        if not weeks:
            return self
        buckets = _halved(self.buckets, weeks)
        left = upper_edge(max(buckets)) if buckets else 0
        start_peak = self.start_peak_bytes if buckets else 0
        week_peak = self.week_peak_bytes if weeks == 1 else 0
        ran_out = self.ran_out.kept(now)
        anew = bool(self.samples) and not buckets
        return msgspec.structs.replace(
            self,
            pods=0 if anew else self.pods,
            starts=0 if anew else self.starts,
            buckets=buckets,
            sm_buckets=_halved(self.sm_buckets, weeks),
            samples=sum(buckets.values()),
            peak_bytes=min(self.peak_bytes, max(left, week_peak, start_peak)),
            start_peak_bytes=start_peak,
            week_peak_bytes=0,
            faded_at=since + weeks * FADE_SECONDS,
            out_of_memory=self.out_of_memory if ran_out.at else 0,
            ran_out=ran_out,
            reached=self.reached.kept(now),
        )


def _halved(buckets: Mapping[int, int], weeks: int) -> dict[int, int]:
    halved = {index: count >> weeks for index, count in buckets.items()}
    return {index: count for index, count in halved.items() if count}
