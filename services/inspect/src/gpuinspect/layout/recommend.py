"""The table of ``gpushare recommend``."""

from collections.abc import Sequence
from typing import Final

from gpucore.explain.sizing import sizing_sentence
from gpucore.sizing.recommendation import Recommendation, SizingAdvice
from gpucore.sizing.share_size import ContainerSize
from gpuinspect.terminal.tables import align
from gpuinspect.terminal.wrapping import one_line

NONE: Final = "-"
ALL: Final = "(all)"
"""Shown for the containers of a pod that were measured together."""
_GIB: Final = 1 << 30


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
        found: the recommendations.
        unit: of request and limit.
        namespaces: adds the column of namespaces.
        wide: adds what was measured, and the reason.
        headers: begins with the header row.
    """
    heads = ["NAMESPACE"] if namespaces else []
    heads += ["WORKLOAD", "CONTAINER", f"REQUEST({unit})", "P50(GiB)", "P95(GiB)", "MAX(GiB)"]
    heads += [f"RECOMMENDED({unit})", "ADVICE", "CONFIDENCE"]
    heads += ["SM P95(%)", "DAYS", "PODS", "STARTS", "REASON"] if wide else []
    rows = [_row(each, namespaces=namespaces, wide=wide) for each in found]
    shown = [heads, *rows] if headers else rows
    return align("".join("\t".join(row) + "\n" for row in shown))


def _row(found: Recommendation, *, namespaces: bool, wide: bool) -> list[str]:
    key = found.key
    row = [key.namespace] if namespaces else []
    row += [f"{key.kind.lower()}/{one_line(key.name)}", one_line(key.container) or ALL]
    row += [size_text(found.current)]
    row += [_gib(each) for each in (found.median_bytes, found.p95_bytes, found.peak_bytes)]
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


def _gib(amount: int) -> str:
    return f"{amount / _GIB:.1f}"
