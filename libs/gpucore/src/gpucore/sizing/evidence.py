"""What a history shows, and whether that is enough for a recommendation."""

from enum import StrEnum
from typing import Final

import msgspec

from gpucore.sizing.usage_history import LimitEvent, UsageHistory

DAY: Final = 86400.0
LEAST_SAMPLES: Final = 20
"""Samples of a history that has few starts: the 95th percentile of fewer is their maximum."""
TAKEN_PERCENT: Final = 70
"""Part of the limit from which a container counts as one that takes all it is given."""
FLAT_PERCENT: Final = 10
"""Part of the limit by which the use of such a container may vary at most."""


class Confidence(StrEnum):
    """How much was measured."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class SizingRules(msgspec.Struct, frozen=True):
    """What a person chooses; all other rules are fixed.

    Attributes:
        percentile: of the samples, that the request covers where there is a burst limit.
        margin: added to what was measured, in percent.
        least_days, least_starts: both are needed for a recommendation,
        enough_days: or these, with :data:`LEAST_SAMPLES` samples.
        gpu_sizes: units of the GPUs of the cluster, each size once; empty unknown. No share exceeds
            the largest.
    """

    percentile: float = 95.0
    margin: int = 15
    least_days: float = 1.0
    least_starts: int = 3
    enough_days: float = 7.0
    gpu_sizes: tuple[int, ...] = ()

    @property
    def largest_gpu(self) -> int:
        """Units of the largest GPU; 0 unknown."""
        return max(self.gpu_sizes, default=0)


def highest_peak(history: UsageHistory) -> int:
    """The most memory in use in bytes, the starts of pods included."""
    return max(history.peak_bytes, history.start_peak_bytes)


def needed_bytes(history: UsageHistory) -> int:
    """The least that it needs: its highest peak, and more than a limit that was not enough."""
    failed = history.ran_out.limit_bytes
    return max(highest_peak(history), failed + 1 if failed else 0)


def days_of(history: UsageHistory) -> float:
    """Days from the first sample to the last; 0 where no sample is left, or none was ever taken."""
    if not history.samples:
        return 0.0
    return max(history.last_seen - history.first_seen, 0.0) / DAY


def is_recent(event: LimitEvent, history: UsageHistory) -> bool:
    """The container was measured for less than a day since the event."""
    return bool(event.at) and history.last_seen - event.at < DAY


def is_too_short(history: UsageHistory, rules: SizingRules) -> bool:
    """It was not measured long enough, or its pods did not start often enough."""
    days = days_of(history)
    several = days >= rules.least_days and history.starts >= rules.least_starts
    long = days >= rules.enough_days and history.samples >= LEAST_SAMPLES
    return not history.samples or not (several or long)


def takes_all(history: UsageHistory) -> bool:
    """Its use is near its limit and varies little; the first tenth may be starts."""
    limit = max(history.limit_bytes, history.requested_bytes)
    spread = history.percentile(95) - history.percentile(10)
    near = 100 * history.percentile(50) >= TAKEN_PERCENT * limit
    return near and 100 * spread <= FLAT_PERCENT * limit


def confidence_of(history: UsageHistory) -> Confidence:
    """How much was measured, in three steps."""
    days = days_of(history)
    if days >= 7 and history.starts >= 10 and history.pods >= 3:
        return Confidence.HIGH
    enough = (days >= 3 and history.starts >= 3) or (days >= 7 and history.pods >= 2)
    return Confidence.MEDIUM if enough else Confidence.LOW
