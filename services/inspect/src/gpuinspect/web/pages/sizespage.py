"""Used against requested GPU memory of each workload, sortable by waste."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gpucore.explain.sizing import sizing_sentence
from gpucore.sizing.share_size import ContainerSize
from gpucore.units import GIB_BYTES, MemoryUnit
from gpuinspect.queries.views import natural
from gpuinspect.queries.workload_sizes import SizedWorkload, WorkloadSizes
from gpuinspect.web.frames import Frame
from gpuinspect.web.pages.bars import gib
from gpuinspect.web.pages.choices import searched
from gpuinspect.web.rendering import Cell, View, table

SHOWN: Final = 200
"""Rows of the page; more are counted."""
_READING: Final = (
    "The histories of the device plugins are being read; the page shows them once they are there."
)
_ORDERS: Final[Mapping[str, Callable[[SizedWorkload], tuple[float, ...]]]] = {
    "waste": lambda each: (-each.waste, -each.waste_of_pod),
    "waste of a pod": lambda each: (-each.waste_of_pod,),
    "requested": lambda each: (-each.requested,),
    "name": lambda _: (),
}
_HEADS: Final = (
    "Workload",
    "Container",
    "Requested",
    "Used p50 / p95 / max",
    "Recommended",
    "Confidence",
    "Pods",
    "Waste of a pod",
    "Waste",
    "Reason",
)


def sizes(frame: Frame, query: Mapping[str, str]) -> View:
    """A table of the workloads, and the form that filters and sorts it."""
    read, wanted = frame.sizes(), searched(query)
    order = query.get("sort", "")
    order = order if order in _ORDERS else next(iter(_ORDERS))
    found = [each for each in read.items if wanted in _name(each)] if read else []
    found.sort(key=lambda each: (_ORDERS[order](each), natural(_name(each))))
    values = {
        "wanted": wanted,
        "order": order,
        "orders": list(_ORDERS),
        "sizes_note": _note(read),
        "some": bool(read and read.items),
        "sum": _sum(found),
        "shown": table(_HEADS, map(_row, found[:SHOWN]), caption="Memory in GiB", stacks=True),
        "rest": max(len(found) - SHOWN, 0),
    }
    return View("sizes.html", values)


def _name(each: SizedWorkload) -> str:
    key = each.found.key
    return f"{key.namespace}/{key.kind.lower()}/{key.name}"


def _note(read: WorkloadSizes | None) -> str:
    if read is None:
        return _READING
    return f"{read.note[:1].upper()}{read.note[1:]}." if read.note else ""


def _sum(found: Sequence[SizedWorkload]) -> dict[str, Any] | None:
    requested = sum(each.requested * each.running for each in found)
    waste = sum(each.waste for each in found)
    if not requested:
        return None
    percent = round(100 * waste / requested)
    return {"requested": f"{requested:.1f}", "waste": f"{waste:.1f}", "percent": percent}


def _row(each: SizedWorkload) -> Sequence[Cell]:
    found = each.found
    used = (found.median_bytes, found.p95_bytes, found.peak_bytes)
    return (
        _name(each),
        found.key.container or "all",
        _size(found.current, found.unit),
        " / ".join(f"{amount / GIB_BYTES:.1f}" for amount in used),
        "none" if found.size is None else _size(found.size, found.unit),
        str(found.confidence),
        each.running,
        f"{each.waste_of_pod:.1f}",
        f"{each.waste:.1f}",
        sizing_sentence(found),
    )


def _size(size: ContainerSize, unit: MemoryUnit) -> str:
    """GiB of the request, and of the limit where it is higher: ``4`` or ``4 to 9``."""
    request = gib(size.request, unit)
    return f"{request} to {gib(size.burst, unit)}" if size.burst else request
