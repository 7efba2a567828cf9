"""The tables of ``gpushare recommend``, also with ``--whatif``, and where measurements are from."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpucore.explain.sizing import sizing_sentence
from gpucore.sizing.recommendation import Recommendation, SizingAdvice
from gpucore.sizing.share_size import ContainerSize
from gpucore.units import GIB_BYTES, counted, listed
from gpuinspect.cluster.usage_histories import HistorySource, ReadHistories
from gpuinspect.queries.repacked import HOURS_A_MONTH, SizesEffect
from gpuinspect.terminal.output import one_line, table

NONE: Final = "-"
ALL: Final = "(all)"
"""Shown for the containers of a pod that were measured together."""
NAMED: Final = 5
"""Pods that a note names; the others are counted."""
_EFFECT_HEADS: Final = ("PODS PLACED", "GPUS IN USE", "PENDING PODS THAT FIT")
PEAKS_UNKNOWN: Final = (
    "whose peaks come together is not known: the histories have amounts without times"
)


def recommend(
    found: Sequence[Recommendation],
    unit: str,
    *,
    namespaces: bool = False,
    wide: bool = False,
    headers: bool = True,
) -> str:
    """A line for each container of a workload.

    Args:
        wide: adds what was measured, and the reason.
    """
    heads = ["NAMESPACE"] if namespaces else []
    heads += ["WORKLOAD", "CONTAINER", f"REQUEST({unit})", "P50(GiB)", "P95(GiB)", "MAX(GiB)"]
    heads += [f"RECOMMENDED({unit})", "ADVICE", "CONFIDENCE"]
    heads += ["SM P95(%)", "DAYS", "PODS", "STARTS", "REASON"] if wide else []
    rows = (_row(each, namespaces=namespaces, wide=wide) for each in found)
    return table(heads, rows, headers=headers)


def _row(found: Recommendation, *, namespaces: bool, wide: bool) -> list[str]:
    key = found.key
    row = [key.namespace] if namespaces else []
    row += [f"{key.kind.lower()}/{one_line(key.name)}", one_line(key.container) or ALL]
    row += [size_text(found.current)]
    used = (found.median_bytes, found.p95_bytes, found.peak_bytes)
    row += [f"{amount / GIB_BYTES:.1f}" for amount in used]
    row += [NONE if found.size is None else size_text(found.size)]
    row += [NONE if found.advice is SizingAdvice.NONE else str(found.advice)]
    row += [str(found.confidence)]
    percent = NONE if found.sm_p95_percent is None else str(found.sm_p95_percent)
    counts = [
        percent,
        f"{found.days:.1f}",
        str(found.pods),
        str(found.starts),
        sizing_sentence(found),
    ]
    return [*row, *counts] if wide else row


def size_text(size: ContainerSize) -> str:
    """Units of the request, and of the limit where it is higher: ``4`` or ``4 to 9``."""
    return f"{size.request} to {size.burst}" if size.burst else str(size.request)


def sizes_effect(effect: SizesEffect, *, price: float, headers: bool = True) -> str:
    """A line for each way to place the pods, then the gain."""
    rows = (
        _effect_row("as they are", effect, effect.in_use, effect.fitting_now),
        _effect_row("anew, same sizes", effect, effect.same_sizes, effect.fitting_same),
        _effect_row("anew, recommended", effect, effect.recommended_sizes, len(effect.fitting)),
    )
    shown = table(_EFFECT_HEADS, rows, headers=headers)
    return f"{shown}\n{_gain(effect, price)}" if headers else shown


def _effect_row(how: str, effect: SizesEffect, gpus: int, fitting: int) -> tuple[str, ...]:
    return (how, f"{gpus} of {effect.gpus}", f"{fitting} of {effect.waiting}")


def notes(effect: SizesEffect) -> Iterator[str]:
    """What the figures do not show."""
    yield "a figure, not a plan: pods are not moved, and another order may need more GPUs"
    if effect.unplaced:
        names = [one_line(name) for name in effect.unplaced]
        yield (
            f"{counted(len(effect.unplaced), 'running pod')} found no place when all were placed"
            f" anew, so the GPUs of {listed(names, NAMED)} are missing in a figure"
        )
    if effect.overcommitted:
        yield (
            f"on {counted(effect.overcommitted, 'GPU')} the burst limits together are more than"
            " the memory: pods whose peaks come together run out of it"
        )
    yield PEAKS_UNKNOWN


def _gain(effect: SizesEffect, price: float) -> str:
    freed = f"GPUs freed: {effect.freed}, with {counted(effect.resized, 'pod')} resized"
    cost = f"; {effect.monthly(price):.2f} in a month of {HOURS_A_MONTH} hours" if price else ""
    more = len(effect.fitting) - effect.fitting_now
    return f"{freed}{cost}\nPending pods that would fit in addition: {more}\n"


def source_notes(histories: ReadHistories, window: str) -> list[str]:
    """What differs from the histories of the device plugins; nothing for those.

    Args:
        window: the time that was looked back, as it was given.
    """
    if histories.source is not HistorySource.PROMETHEUS:
        return []
    step = _minutes(histories.step_seconds)
    sentence = (
        f"measured by Prometheus in {window}, with one sample every {step}; peaks, starts and"
        " out-of-memory events are those that the device plugins recorded, also between samples"
    )
    return [sentence]


def _minutes(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{seconds / 60:.0f} min"
