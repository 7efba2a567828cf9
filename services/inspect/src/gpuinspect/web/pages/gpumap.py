"""The map of the cluster page: a cell for each GPU, or for each node where there are too many.

A cell has a class of the style sheet as its colour, a sign, and its figures as text.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import msgspec

from gpucore.units import counted
from gpuinspect.queries.gpumap import CellGroup, GpuCell
from gpuinspect.web.pages.choices import UNNAMED, Choices

TENTHS: Final = 10
_UNKNOWN: Final = "u"
_STATES: Final = {"healthy": "h0", "unhealthy": "h1", "cordoned": "h2", "not ready": "h3"}
_SHADES: Final = 6
_OTHER, _SEVERAL, _NONE = "n6", "n7", "p0"
_AMOUNTS: Final[Mapping[str, Callable[[GpuCell], float | None]]] = {
    "allocated": attrgetter("allocated"),
    "in use": attrgetter("in_use"),
    "waste": attrgetter("waste"),
}
Paint = Callable[[Sequence[GpuCell]], str]
"""The class of a cell, which stands for one GPU or for those of a node."""
MOST_GPUS: Final = 1500
"""Cells of GPUs; where there are more, a cell is a node."""
MOST_NODES: Final = 1000
"""Cells of nodes; others are found with the filter."""
_PODS: Final = 3
"""Pods that a cell names."""


class Swatch(msgspec.Struct, frozen=True):
    """An entry of the legend: a class and its meaning."""

    paint: str
    text: str


def painter(show: str, cells: Iterable[GpuCell]) -> tuple[Paint, Sequence[Swatch]]:
    """The class of each cell, and the legend.

    Args:
        show: one of :data:`~gpuinspect.web.pages.choices.SHOWS`.
    """
    if show == "health":
        return _health, [Swatch(each, state) for state, each in _STATES.items()]
    if show == "namespace":
        return _namespaces(cells)
    amount = _AMOUNTS[show]
    known = [Swatch("p0", "none"), Swatch("p1", "up to 10 %"), Swatch("p5", "up to 50 %")]
    known += [Swatch("p10", "more than 90 % of the GPU")]
    unknown = [] if show == "allocated" else [Swatch(_UNKNOWN, "unknown")]
    return (lambda gpus: _tenths(gpus, amount)), known + unknown


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


_SICK: Final = (Swatch("h0 sick", "unhealthy GPU"),)


class Cell(msgspec.Struct, frozen=True):
    """One cell.

    Attributes:
        at: what it chooses: ``NODE/INDEX`` or a node.
        paint: classes of the style sheet.
        title: what it stands for, with all figures.
        chosen: it is chosen now.
    """

    at: str
    paint: str
    title: str
    chosen: bool = False


class CellBox(msgspec.Struct, frozen=True):
    """A group of cells with its heading; ``choice`` is its name in addresses."""

    name: str
    choice: str
    facts: str
    cells: Sequence[Cell]
    chosen: bool


def gpu_map(groups: Sequence[CellGroup], choices: Choices) -> Mapping[str, Any]:
    """Values of the template."""
    gpus = [gpu for group in groups for gpu in group.gpus]
    nodes = {gpu.node for gpu in gpus}
    by_node = len(gpus) > MOST_GPUS
    paint, legend = painter(choices.show, gpus)
    boxes = list(_boxes(groups, choices, paint, by_node=by_node))
    shown = {cell.at for box in boxes for cell in box.cells}  # a node may be in several groups
    return {
        "boxes": boxes,
        "legend": [*_fitting_swatch(choices), *legend, *_SICK[choices.show == "health" :]],
        "fitting": _fitting(gpus, choices.gib),
        "by_node": by_node,
        "left": len(nodes - shown) if by_node else 0,
        "kept": choices.kept("at", "group", "rows", "page"),
    }


def _boxes(
    groups: Sequence[CellGroup], choices: Choices, paint: Paint, *, by_node: bool
) -> Iterator[CellBox]:
    room = MOST_NODES
    for group in groups:
        choice = group.name or UNNAMED
        if by_node:
            cells = list(_node_cells(group.gpus, choices, paint))[: max(room, 0)]
            room -= len(cells)
        else:
            cells = [_gpu_cell(gpu, choices, paint) for gpu in group.gpus]
        name = group.name or f"without {_label(choices)}"
        facts = f"{counted(len(group.gpus), 'GPU')}, {_amounts(group.gpus)[0]}"
        yield CellBox(name, choice, facts, cells, choices.group == choice)


def _label(choices: Choices) -> str:
    return f"the label {choices.label}" if choices.label else f"a label of the {choices.by}"


def _gpu_cell(gpu: GpuCell, choices: Choices, paint: Paint) -> Cell:
    at = f"{gpu.node}/{gpu.index}"
    return Cell(at, _classes([gpu], paint), gpu_title(gpu, choices.gib), choices.at == at)


def _node_cells(gpus: Iterable[GpuCell], choices: Choices, paint: Paint) -> Iterator[Cell]:
    for node, found in groupby(gpus, lambda gpu: gpu.node):
        members = list(found)
        title = _node_title(node, members, choices.gib)
        yield Cell(node, _classes(members, paint), title, choices.at == node)


def _classes(gpus: Sequence[GpuCell], paint: Paint) -> str:
    """Of the colour; whether the size fits; a mark for an unhealthy GPU."""
    words = [paint(gpus)]
    if gpus[0].fits is not None:
        words.append("fits" if any(gpu.fits for gpu in gpus) else "full")
    if any(gpu.state == "unhealthy" for gpu in gpus):
        words.append("sick")
    return " ".join(words)


def gpu_title(gpu: GpuCell, gib: int) -> str:
    """The name of a cell: the GPU with its figures and pods."""
    words = [*_amounts([gpu]), *(["exclusive"] if gpu.exclusive else []), gpu.state]
    words += _fits([gpu], gib)
    names = [f"{pod.namespace}/{pod.name} {pod.gib:.10g} GiB" for pod in gpu.pods[:_PODS]]
    more = len(gpu.pods) - len(names)
    pods = ", ".join(names) + (f" and {more} more" if more else "")
    model = f", {gpu.model}" if gpu.model else ""
    return f"{gpu.node} GPU{gpu.index}{model}: {', '.join(words)}; {pods or 'no pods'}"


def _node_title(node: str, gpus: Sequence[GpuCell], gib: int) -> str:
    models = ", ".join(dict.fromkeys(gpu.model for gpu in gpus if gpu.model))
    ill = sum(gpu.state == "unhealthy" for gpu in gpus)
    words = [*_amounts(gpus), *([f"{ill} unhealthy"] if ill else []), *_fits(gpus, gib)]
    pods = sum(len(gpu.pods) for gpu in gpus)
    return (
        f"{node}, {counted(len(gpus), 'GPU')} {models}: {', '.join(words)}; {counted(pods, 'pod')}"
    )


def _amounts(gpus: Sequence[GpuCell]) -> list[str]:
    allocated, total = sum(gpu.allocated for gpu in gpus), sum(gpu.total for gpu in gpus)
    known = [gpu.in_use for gpu in gpus if gpu.in_use is not None]
    least = "at least " if len(known) < len(gpus) else ""
    used = f"{least}{sum(known):.1f} in use" if known else "use unknown"
    return [f"{allocated:.10g} of {total:.10g} GiB allocated", used]


def _fits(gpus: Sequence[GpuCell], gib: int) -> list[str]:
    if gpus[0].fits is None:
        return []
    fits = any(gpu.fits for gpu in gpus)
    return [f"{gib} GiB {'fit' if fits else 'do not fit'}"]


def _fitting(gpus: Sequence[GpuCell], gib: int) -> str:
    """How many GPUs take the size, in words; empty where no size is given."""
    if not gib:
        return ""
    found = [gpu for gpu in gpus if gpu.fits]
    nodes = counted(len({gpu.node for gpu in found}), "node")
    where = f"{len(found)} of {counted(len(gpus), 'GPU')}, on {nodes}" if found else "no GPU"
    return f"A share of {gib} GiB fits now on {where}."


def _fitting_swatch(choices: Choices) -> list[Swatch]:
    return [Swatch("p0 fits", f"{choices.gib} GiB fit")] if choices.gib else []
