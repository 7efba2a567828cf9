"""The size that a share should have, from the memory that was measured.

Pure: the history is the only input that was measured, and no clock is read. The rules, in order:

1. Without a known request there is no recommendation.
2. A container that ran out of GPU memory gets at least 1.2 times the limit that was not enough,
   however short it was measured, and is not shrunk until it was measured for a day more.
3. The same applies to a container whose use reached its limit, unless rule 5 explains that.
4. A container that was measured too short gets no recommendation.
5. A container that holds nearly all of its limit, and always the same amount, is left alone: it
   sizes its caches from the share, so its use does not show what it needs.
6. Otherwise the limit covers the highest peak, and more than any limit that was not enough, with
   the margin. With a burst limit the request covers a percentile with the margin; without one it
   covers what the limit covers.

Sizes of pods with several GPUs are multiples of their number.
"""

from enum import StrEnum
from typing import Final

import msgspec

from gpucore.sizing.evidence import (
    Confidence,
    SizingRules,
    confidence_of,
    days_of,
    highest_peak,
    is_recent,
    is_too_short,
    needed_bytes,
    takes_all,
)
from gpucore.sizing.share_size import ContainerSize, units_for
from gpucore.sizing.usage_history import NEVER, LimitEvent, UsageHistory, WorkloadKey
from gpucore.units import MemoryUnit

OUT_OF_MEMORY_PERCENT: Final = 20
"""Added to a limit that was not enough, or was reached."""


class SizingReason(StrEnum):
    """The rule that decided."""

    NO_REQUEST = "no-request"
    OUT_OF_MEMORY = "out-of-memory"
    LIMIT_REACHED = "limit-reached"
    TOO_SHORT = "too-short"
    TAKES_ALL = "takes-all"
    MEASURED = "measured"


class SizingAdvice(StrEnum):
    """What to do with the size of a share."""

    NONE = "none"
    RIGHT = "right"
    RAISE = "raise"
    SHRINK = "shrink"


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
        raised_from: the limit that was not enough or was reached, where that is the reason.
        capped: more is needed than the largest GPU has.
        claims: the memory is that of ResourceClaims of the pods.
        gpus: number of GPUs of a pod.
        sm_p95_percent: SM utilization of a GPU that 95 % of the samples did not exceed; ``None``
            unknown.
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
    raised_from: int = 0
    capped: bool = False
    claims: bool = False
    gpus: int = 1
    sm_p95_percent: int | None = None

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
        """It may have all memory of its GPUs.

        Histories do not tell exclusive GPUs from such shares. A request of the size of one GPU, or
        above the largest, counts as well: the GPUs of a pod may have different sizes.
        """
        sizes, request = self.rules.gpu_sizes, self.current.request
        of_each, rest = divmod(request, self.gpus)
        return (
            request in sizes
            or request > max(sizes, default=1 << 62)
            or (not rest and of_each in sizes)
        )

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
        rules: the default ones where there are none.
    """
    chosen = rules or SizingRules()
    current = ContainerSize.of_bytes(history.requested_bytes, history.limit_bytes, unit)
    measured = _measured(history, unit, chosen, burst=bool(current.burst))
    reason = _reason(history, chosen, applied=measured == current)
    raised_from = units_for(_event(history, reason).limit_bytes, unit)
    wanted = _wanted(measured, current, reason, raised_from, max(history.gpus, 1))
    most = chosen.largest_gpu * max(history.gpus, 1)
    size = None if wanted is None else _capped(wanted, current, most)
    return Recommendation(
        key=history.key,
        unit=unit,
        current=current,
        size=size,
        reason=reason,
        confidence=confidence_of(history),
        rules=chosen,
        median_bytes=history.percentile(50),
        p95_bytes=history.percentile(95),
        peak_bytes=highest_peak(history),
        percentile_bytes=history.percentile(chosen.percentile),
        days=days_of(history),
        starts=history.starts,
        pods=history.pods,
        out_of_memory=history.out_of_memory,
        raised_from=raised_from,
        capped=size != wanted,
        claims=history.claims,
        gpus=max(history.gpus, 1),
        sm_p95_percent=history.sm_percentile(95),
    )


def _reason(history: UsageHistory, rules: SizingRules, *, applied: bool) -> SizingReason:
    """The rule that decides.

    Args:
        applied: the size is the one that its use calls for, as after a recommendation.
    """
    if not history.requested_bytes:
        return SizingReason.NO_REQUEST
    if is_recent(history.ran_out, history):
        return SizingReason.OUT_OF_MEMORY
    explained = takes_all(history) and not applied
    if is_recent(history.reached, history) and not takes_all(history):
        return SizingReason.LIMIT_REACHED
    if is_too_short(history, rules):
        return SizingReason.TOO_SHORT
    return SizingReason.TAKES_ALL if explained else SizingReason.MEASURED


def _event(history: UsageHistory, reason: SizingReason) -> LimitEvent:
    if reason is SizingReason.OUT_OF_MEMORY:
        return history.ran_out
    return history.reached if reason is SizingReason.LIMIT_REACHED else NEVER


def _measured(
    history: UsageHistory, unit: MemoryUnit, rules: SizingRules, *, burst: bool
) -> ContainerSize:
    """The size that covers what was measured, with the margin."""
    gpus = max(history.gpus, 1)
    limit = max(units_for(needed_bytes(history), unit, margin=rules.margin), 1)
    usual = max(units_for(history.percentile(rules.percentile), unit, margin=rules.margin), 1)
    return _multiple(ContainerSize.of(usual if burst else limit, limit), gpus)


def _wanted(
    measured: ContainerSize,
    current: ContainerSize,
    reason: SizingReason,
    raised_from: int,
    gpus: int,
) -> ContainerSize | None:
    """The size by the rule that decides, before it is cut to a GPU."""
    if reason is SizingReason.MEASURED:
        return measured
    if reason not in {SizingReason.OUT_OF_MEMORY, SizingReason.LIMIT_REACHED}:
        return None
    raised = -(-raised_from * (100 + OUT_OF_MEMORY_PERCENT) // 100)
    limit = max(measured.limit, raised, current.limit)
    request = max(measured.request, current.request) if current.burst else limit
    return _multiple(ContainerSize.of(request, limit), gpus)


def _multiple(size: ContainerSize, gpus: int) -> ContainerSize:
    """The size, rounded up to a multiple of the number of GPUs."""
    return ContainerSize.of(-(-size.request // gpus) * gpus, -(-size.limit // gpus) * gpus)


def _capped(size: ContainerSize, current: ContainerSize, largest: int) -> ContainerSize:
    """No share is larger than its GPUs, unless it is already."""
    if not largest:
        return size
    request = min(size.request, max(largest, current.request))
    return ContainerSize.of(request, min(size.limit, max(largest, current.limit)))
