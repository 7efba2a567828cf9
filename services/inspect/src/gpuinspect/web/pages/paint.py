"""Colour of the cells of the map, as classes of the style sheet, and what each class means.

Every class also has a sign in its cell, and every cell its figures as text.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from gpuinspect.queries.gpumap import GpuCell

TENTHS: Final = 10
_UNKNOWN: Final = "u"
_STATES: Final = {"healthy": "h0", "unhealthy": "h1", "cordoned": "h2", "not ready": "h3"}
_SHADES: Final = 6
_OTHER, _SEVERAL, _NONE = "n6", "n7", "p0"

Paint = Callable[[Sequence[GpuCell]], str]
"""The class of a cell, which stands for one GPU or for those of a node."""


class Swatch(msgspec.Struct, frozen=True):
    """An entry of the legend: a class and its meaning."""

    paint: str
    text: str


def painter(show: str, cells: Iterable[GpuCell]) -> tuple[Paint, Sequence[Swatch]]:
    """The class of each cell, and the legend.

    Args:
        show: one of :data:`~gpuinspect.web.pages.choices.SHOWS`.
        cells: all cells of the map.
    """
    if show == "health":
        return _health, [Swatch(each, state) for state, each in _STATES.items()]
    if show == "namespace":
        return _namespaces(cells)
    amounts = {"allocated": _allocated, "in use": _in_use, "waste": _waste}
    amount = amounts[show]
    known = [Swatch("p0", "none"), Swatch("p1", "up to 10 %"), Swatch("p5", "up to 50 %")]
    known += [Swatch("p10", "more than 90 % of the GPU")]
    unknown = [] if show == "allocated" else [Swatch(_UNKNOWN, "unknown")]
    return (lambda gpus: _tenths(gpus, amount)), known + unknown


def _allocated(cell: GpuCell) -> float | None:
    return cell.allocated


def _in_use(cell: GpuCell) -> float | None:
    return cell.in_use


def _waste(cell: GpuCell) -> float | None:
    return cell.waste


def _tenths(gpus: Sequence[GpuCell], amount: Callable[[GpuCell], float | None]) -> str:
    """Tenths of the memory, rounded up; of the GPUs whose amount is known."""
    known = [(found, gpu.total) for gpu in gpus if (found := amount(gpu)) is not None]
    if not known:
        return _UNKNOWN
    part, total = (sum(column) for column in zip(*known, strict=True))
    tenths = -(-TENTHS * part // total) if total else TENTHS * (part > 0)
    return f"p{min(int(tenths), TENTHS)}"


def _health(gpus: Sequence[GpuCell]) -> str:
    states = {gpu.state for gpu in gpus}
    worst = next((s for s in ("unhealthy", "not ready", "cordoned") if s in states), "healthy")
    return _STATES[worst]


def _namespaces(cells: Iterable[GpuCell]) -> tuple[Paint, Sequence[Swatch]]:
    """The namespaces with most GPUs have a class each."""
    counts = Counter(name for cell in cells for name in cell.namespaces)
    ordered = sorted(counts, key=lambda name: (-counts[name], name))
    shades = {name: f"n{place}" for place, name in enumerate(ordered[:_SHADES])}

    def paint(gpus: Sequence[GpuCell]) -> str:
        names = {name for gpu in gpus for name in gpu.namespaces}
        if not names:
            return _NONE
        return _SEVERAL if len(names) > 1 else shades.get(names.pop(), _OTHER)

    legend = [Swatch(each, name) for name, each in shades.items()]
    others = [Swatch(_OTHER, "another namespace")] if len(ordered) > _SHADES else []
    return paint, [*legend, *others, Swatch(_SEVERAL, "several"), Swatch(_NONE, "no pods")]
