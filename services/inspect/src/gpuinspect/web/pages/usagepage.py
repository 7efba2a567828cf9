"""GPU memory by namespace, label, model or node."""

from collections.abc import Mapping
from heapq import nlargest
from typing import Final

from gpucore.units import GIB, GIB_BYTES, MemoryUnit
from gpuinspect.queries.usage import GroupUsage, UsageReport
from gpuinspect.queries.views import natural
from gpuinspect.web.frames import Frame
from gpuinspect.web.pages.bars import gib
from gpuinspect.web.rendering import Cell, Link, Table, View, table

GROUPS: Final = ("namespace", "model", "node")
LABEL: Final = "label:"
SHOWN: Final = 1000
"""Groups of the page, the largest; more are counted."""
_LONGEST: Final = 320  # characters of the key of a label with its prefix


def usage(frame: Frame, query: Mapping[str, str]) -> View:
    """A table of groups, and the form that chooses them."""
    key = query.get("label", "").strip()[:_LONGEST]
    by = query.get("by", GROUPS[0])
    by = f"{LABEL}{key}" if key else by if by in GROUPS else GROUPS[0]
    report = frame.report(by)
    values = {
        "groups": GROUPS,
        "by": by,
        "key": key,
        "shown": _table(report, by),
        "rest": max(len(report.groups) - SHOWN, 0),
        "measured": frame.figures is not None,
    }
    return View("usage.html", values)


def _table(report: UsageReport, by: str) -> Table:
    unit, title = "GiB" if report.unit else "units", by.removeprefix(LABEL)
    counted = MemoryUnit.parse(report.unit) if report.unit else GIB
    largest = nlargest(SHOWN, report.groups, key=lambda group: group.allocated + group.pending)
    groups = sorted(largest, key=lambda group: natural(group.name))
    caption = f"GPU memory by {title}"
    if by in {"model", "node"}:
        heads = ["Pods", "GPUs", f"Allocated ({unit})", f"Total ({unit})", "In use (GiB)"]
        rows = [_of_gpus(group, by, counted) for group in groups]
    else:
        pending = f"Pending ({unit})"
        heads = ["Pods", f"Allocated ({unit})", "Exclusive GPUs", "In use (GiB)", "Pending pods"]
        heads += [pending, "Pending GPUs"]
        rows = [_of_pods(group, counted) for group in groups]
    return table(
        [title.capitalize() if by in GROUPS else title, *heads], rows, caption=caption, stacks=True
    )


def _of_gpus(group: GroupUsage, by: str, unit: MemoryUnit) -> list[Cell]:
    name: Cell = Link(group.name, f"/nodes/{group.name}") if by == "node" else group.name
    allocated, total = gib(group.allocated, unit), gib(group.total or 0, unit)
    return [name, group.pods, group.gpus, allocated, total, _used(group)]


def _of_pods(group: GroupUsage, unit: MemoryUnit) -> list[Cell]:
    name, used = group.name or "none", _used(group)
    allocated = _amount(group.allocated, group.allocated_unknown_unit, unit)
    pending = _amount(group.pending, group.pending_unknown_unit, unit)
    held: list[Cell] = [name, group.pods, allocated, group.gpus, used]
    return [*held, group.pending_pods, pending, group.pending_gpus]


def _amount(known: int, unknown: int, unit: MemoryUnit) -> str:
    return "unknown" if unknown and not known else gib(known, unit)


def _used(group: GroupUsage) -> str:
    if group.used_bytes is None:
        return "unknown"
    return f"{'at least ' if group.used_unknown else ''}{group.used_bytes / GIB_BYTES:.1f}"
