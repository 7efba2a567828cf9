"""The size that a share should have, from the memory that was measured.

Pure: the history is the only input that was measured, and no clock is read. The rules, in order:

1. Without a known request there is no recommendation.
2. A container that ran out of GPU memory gets at least 1.2 times its limit and is never shrunk,
   however short it was measured.
3. A container that was measured too short gets no recommendation.
4. A container that holds nearly all of its limit, and always the same amount, is left alone: it
   sizes its caches from the share, so its use does not show what it needs.
5. Otherwise the limit covers the highest peak with the margin. With a burst limit the request
   covers a percentile with the margin; without one the request covers the peak.
"""

from enum import StrEnum
from typing import Final

import msgspec

from gpucore.sizing.share_size import ContainerSize, units_for
from gpucore.sizing.usage_history import UsageHistory, WorkloadKey
from gpucore.units import MemoryUnit

ALL_CONTAINERS: Final = ""
"""Container of a history whose pods have GPU memory in several containers, measured together."""
DAY: Final = 86400.0
OUT_OF_MEMORY_PERCENT: Final = 20
"""Added to the limit of a container that ran out of memory."""
TAKEN_PERCENT: Final = 85
"""Part of the limit from which a container counts as one that takes all it is given."""
FLAT_PERCENT: Final = 10
"""Part of the limit by which the use of such a container may vary at most."""


class Confidence(StrEnum):
    """How much was measured."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class SizingReason(StrEnum):
    """The rule that decided."""

    NO_REQUEST = "no-request"
    OUT_OF_MEMORY = "out-of-memory"
    TOO_SHORT = "too-short"
    TAKES_ALL = "takes-all"
    MEASURED = "measured"


class SizingAdvice(StrEnum):
    """What to do with the size of a share."""

    NONE = "none"
    RIGHT = "right"
    RAISE = "raise"
    SHRINK = "shrink"


class SizingRules(msgspec.Struct, frozen=True):
    """What a person chooses; all other rules are fixed.

    Attributes:
        percentile: of the samples, that the request covers where there is a burst limit.
        margin: added to what was measured, in percent.
        least_days, least_starts: both are needed for a recommendation,
        enough_days: or these alone.
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


class Recommendation(msgspec.Struct, frozen=True):
    """What one container of a workload should request.

    Attributes:
        current: the size that it has.
        size: the size that it should have; ``None`` for no recommendation.
        reason: the rule that decided.
        confidence: how much was measured.
        median_bytes, p95_bytes, peak_bytes: memory in use.
        percentile_bytes: memory in use at the percentile of the rules.
        days, starts, pods: what was measured.
        out_of_memory: number of times that it ran out of memory.
        capped: more is needed than the largest GPU has.
    """

    key: WorkloadKey
    unit: MemoryUnit
    current: ContainerSize
    size: ContainerSize | None
    reason: SizingReason
    confidence: Confidence
    rules: SizingRules
    median_bytes: int = 0
    p95_bytes: int = 0
    peak_bytes: int = 0
    percentile_bytes: int = 0
    days: float = 0.0
    starts: int = 0
    pods: int = 0
    out_of_memory: int = 0
    capped: bool = False

    @property
    def advice(self) -> SizingAdvice:
        """Compares request first, then burst limit."""
        if self.size is None:
            return SizingAdvice.NONE
        if self.size == self.current:
            return SizingAdvice.RIGHT
        now = (self.current.request, self.current.limit)
        more = (self.size.request, self.size.limit) > now
        return SizingAdvice.RAISE if more else SizingAdvice.SHRINK

    @property
    def whole_gpu(self) -> bool:
        """It has all memory of a GPU: histories do not tell an exclusive GPU from such a share."""
        sizes = self.rules.gpu_sizes
        return self.current.request in sizes or self.current.request > max(sizes, default=1 << 62)

    @property
    def freed(self) -> int:
        """Units that one pod would request less; negative where it needs more."""
        return 0 if self.size is None else self.current.request - self.size.request


def recommend(
    history: UsageHistory, unit: MemoryUnit, rules: SizingRules | None = None
) -> Recommendation:
    """The recommendation for one container of a workload.

    Args:
        history: of all nodes together.
        unit: of the cluster's accounting.
        rules: the default ones where there are none.
    """
    chosen = rules or SizingRules()
    current = ContainerSize.of_bytes(history.requested_bytes, history.limit_bytes, unit)
    reason = _reason(history, chosen)
    wanted = _size(history, unit, chosen, current, reason)
    size = None if wanted is None else _capped(wanted, current, chosen.largest_gpu)
    return Recommendation(
        key=history.key,
        unit=unit,
        current=current,
        size=size,
        reason=reason,
        confidence=_confidence(history),
        rules=chosen,
        median_bytes=history.percentile(50),
        p95_bytes=history.percentile(95),
        peak_bytes=highest_peak(history),
        percentile_bytes=history.percentile(chosen.percentile),
        days=_days(history),
        starts=history.starts,
        pods=history.pods,
        out_of_memory=history.out_of_memory,
        capped=size != wanted,
    )


def highest_peak(history: UsageHistory) -> int:
    """The most memory in use in bytes, the starts of pods included."""
    return max(history.peak_bytes, history.start_peak_bytes)


def _days(history: UsageHistory) -> float:
    return max(history.last_seen - history.first_seen, 0.0) / DAY


def _reason(history: UsageHistory, rules: SizingRules) -> SizingReason:
    if not history.requested_bytes:
        return SizingReason.NO_REQUEST
    if history.out_of_memory:
        return SizingReason.OUT_OF_MEMORY
    if _too_short(history, rules):
        return SizingReason.TOO_SHORT
    return SizingReason.TAKES_ALL if _takes_all(history) else SizingReason.MEASURED


def _too_short(history: UsageHistory, rules: SizingRules) -> bool:
    days = _days(history)
    several = days >= rules.least_days and history.starts >= rules.least_starts
    return not history.samples or not (several or days >= rules.enough_days)


def _takes_all(history: UsageHistory) -> bool:
    """Its use is near its limit and varies little; the first tenth may be starts."""
    limit = max(history.limit_bytes, history.requested_bytes)
    spread = history.percentile(95) - history.percentile(10)
    near = 100 * history.percentile(50) >= TAKEN_PERCENT * limit
    return near and 100 * spread <= FLAT_PERCENT * limit


def _size(
    history: UsageHistory,
    unit: MemoryUnit,
    rules: SizingRules,
    current: ContainerSize,
    reason: SizingReason,
) -> ContainerSize | None:
    if reason not in {SizingReason.OUT_OF_MEMORY, SizingReason.MEASURED}:
        return None
    limit = max(units_for(highest_peak(history), unit, margin=rules.margin), 1)
    usual = max(units_for(history.percentile(rules.percentile), unit, margin=rules.margin), 1)
    request = usual if current.burst else limit
    if reason is SizingReason.OUT_OF_MEMORY:
        limit = max(limit, -(-current.limit * (100 + OUT_OF_MEMORY_PERCENT) // 100))
        request = max(request, current.request) if current.burst else limit
    return ContainerSize.of(request, limit)


def _capped(size: ContainerSize, current: ContainerSize, largest: int) -> ContainerSize:
    """No share is larger than a GPU, unless it is already: it is spread over several."""
    if not largest:
        return size
    most = max(largest, current.limit)
    return ContainerSize.of(min(size.request, most), min(size.limit, most))


def _confidence(history: UsageHistory) -> Confidence:
    days = _days(history)
    if days >= 7 and history.starts >= 10 and history.pods >= 3:
        return Confidence.HIGH
    enough = (days >= 3 and history.starts >= 3) or (days >= 7 and history.pods >= 2)
    return Confidence.MEDIUM if enough else Confidence.LOW
