"""Memory over time as an SVG chart with a text summary."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from gpuinspect.web.history import STEP_SECONDS, Amounts, Point

_GAP: Final = 3 * STEP_SECONDS
"""Seconds without a point after which a line is interrupted."""


class Chart(msgspec.Struct, frozen=True):
    """Lines in a box of 100 by 100, and the same as text.

    Attributes:
        allocated: a list of point lists, as SVG's ``points``.
        used: likewise.
        summary: for the page and for screen readers.
        first, last: RFC 3339 times of the ends of the time axis.
        top: amount at the upper edge.
    """

    allocated: Sequence[str]
    used: Sequence[str]
    summary: str
    first: str
    last: str
    top: str


def chart(points: Sequence[Point], total: float) -> Chart | None:
    """The chart of a series; ``None`` before there are two points.

    Args:
        points: oldest first.
        total: memory of the GPUs, in GiB; the upper edge unless more was allocated.
    """
    if len(points) < 2:
        return None
    used = [(point.when, point.amounts.used) for point in points]
    known = [(when, amount) for when, amount in used if amount is not None]
    allocated = [(point.when, point.amounts.allocated) for point in points]
    top = max(total, *(amount for _, amount in allocated + known), 1.0)
    span = (points[0].when, points[-1].when)
    return Chart(
        list(_lines(allocated, span, top)),
        list(_lines(known, span, top)),
        _summary(points),
        _iso(span[0]),
        _iso(span[1]),
        f"{top:.10g} GiB",
    )


def _iso(when: int) -> str:
    return datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _lines(values: Sequence[tuple[int, float]], span: tuple[int, int], top: float) -> Sequence[str]:
    """Points by stretch without a gap."""
    parts: list[list[str]] = []
    before = None
    for when, amount in values:
        if before is None or when - before > _GAP:
            parts.append([])
        x = 100 * (when - span[0]) / max(span[1] - span[0], 1)
        parts[-1].append(f"{x:.2f},{100 - 100 * amount / top:.2f}")
        before = when
    return [" ".join(part) for part in parts]


def _summary(points: Sequence[Point]) -> str:
    amounts = [point.amounts for point in points]
    most = max(each.allocated for each in amounts)
    text = f"Allocated (solid line) now {amounts[-1].allocated:.10g} GiB, at most {most:.10g}"
    known = [each.used for each in amounts if each.used is not None]
    if not known:
        return f"{text}. Memory in use is unknown"
    partial = any(each.partial and each.used is not None for each in amounts)
    note = ". Where the use of some GPUs was unknown, the dashed line is the use of the others"
    text = f"{text}. In use (dashed line) now {in_use(amounts[-1])}, highest {max(known):.1f}"
    return text + note * partial


def in_use(amounts: Amounts) -> str:
    """Memory in use, in words."""
    least = "at least " if amounts.partial else ""
    return "unknown" if amounts.used is None else f"{least}{amounts.used:.1f} GiB"
