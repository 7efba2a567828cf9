"""Why a share should have another size, in one sentence."""

from gpucore.sizing.evidence import LEAST_SAMPLES
from gpucore.sizing.recommendation import (
    OUT_OF_MEMORY_PERCENT,
    Recommendation,
    SizingAdvice,
    SizingReason,
)
from gpucore.units import GIB_BYTES, counted


def sizing_sentence(found: Recommendation) -> str:
    """The reason of a recommendation, or of having none."""
    if found.reason is SizingReason.NO_REQUEST:
        return "its request of GPU memory is not known"
    if found.reason is SizingReason.TOO_SHORT:
        return _too_short(found)
    if found.reason is SizingReason.TAKES_ALL:
        return (
            f"it holds {gib(found.median_bytes)} of {found.current.limit} {found.unit} all the"
            " time: a program that sizes its cache from its share needs its weights plus the cache"
            " for its load, which its use does not show"
        )
    reason = _use(found) if found.reason is SizingReason.MEASURED else _raised(found)
    return f"{reason}{_cap(found)}{_whole(found)}"


def sizing_event(found: Recommendation) -> str:
    """What to request instead, and why, for an event; only where there is another size."""
    size, current, key = found.size or found.current, found.current, found.key
    where = f"container {key.container}" if key.container else "all containers"
    numbers = f"request {size.request} instead of {current.request}"
    if size.burst or current.burst:
        numbers += f" and limit {size.limit} instead of {current.limit}"
    amount = f"{numbers} units of GPU memory ({found.unit} each)"
    return f"{key.kind} {key.name}, {where}: {amount}: {sizing_sentence(found)}"


def gib(amount: float) -> str:
    """An amount of bytes in GiB."""
    return f"{amount / GIB_BYTES:.1f} GiB"


def _too_short(found: Recommendation) -> str:
    rules = found.rules
    return (
        f"measured for {_days(found.days)} and {counted(found.starts, 'start')}: a recommendation"
        f" needs {_days(rules.least_days)} and {counted(rules.least_starts, 'start')}, or"
        f" {_days(rules.enough_days)} and {LEAST_SAMPLES} samples"
    )


def _raised(found: Recommendation) -> str:
    limit = f"{found.raised_from} {found.unit}"
    if found.reason is SizingReason.OUT_OF_MEMORY:
        event = f"it ran out of GPU memory {counted(found.out_of_memory, 'time')}, last at {limit}"
    else:
        event = f"its use reached its limit of {limit}"
    return f"{event}: its limit is at least {OUT_OF_MEMORY_PERCENT} % above that for a day"


def _use(found: Recommendation) -> str:
    margin = f"with a margin of {found.rules.margin} %"
    peak = f"it used at most {gib(found.peak_bytes)}"
    if found.size is None or not found.size.burst:
        text = f"{peak}, {margin}"
    else:
        often = f"{found.rules.percentile:g} % of the samples"
        text = f"{peak}, and {gib(found.percentile_bytes)} or less in {often}, {margin}"
    return f"the size is right: {text}" if found.advice is SizingAdvice.RIGHT else text


def _cap(found: Recommendation) -> str:
    if not found.capped:
        return ""
    return f"; no more than the largest GPU has, {found.rules.largest_gpu} {found.unit}"


def _whole(found: Recommendation) -> str:
    """An exclusive GPU is chosen for more than its memory."""
    if not found.whole_gpu or found.advice is not SizingAdvice.SHRINK:
        return ""
    return "; it has all memory of a GPU: keep it if no other pod may use that GPU"


def _days(days: float) -> str:
    return counted(round(days), "day") if days >= 1 else counted(round(days * 24), "hour")
