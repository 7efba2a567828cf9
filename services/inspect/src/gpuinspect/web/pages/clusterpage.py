"""The cluster: totals, the map of GPUs, and the chosen nodes as rows of bars."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpucore.accounting.node_info import common_unit
from gpucore.units import counted
from gpuinspect.queries.gpumap import GROUPS, CellGroup, in_gib
from gpuinspect.queries.views import NodeSummary, natural, percent
from gpuinspect.web.frames import Frame
from gpuinspect.web.history import CLUSTER
from gpuinspect.web.pages import bars
from gpuinspect.web.pages.bars import gib
from gpuinspect.web.pages.charts import chart, in_use
from gpuinspect.web.pages.choices import MOST_GIB, ORDERS, SHOWS, UNNAMED, Choices, choices_of
from gpuinspect.web.pages.gpumap import gpu_map, gpu_title
from gpuinspect.web.rendering import Cell, Link, View

PAGE: Final = 50
BESIDE_MAP: Final = 20
"""Rows of a page below the map; a page of all nodes has no map and :data:`PAGE` rows."""
FEW: Final = 20
"""Nodes that are all shown as rows where nothing is chosen."""
_KEYS: Final = {
    "name": lambda node: natural(node.name),
    "free": lambda node: (node.used - node.total, natural(node.name)),
    "used": lambda node: (-percent(node.used, node.total), natural(node.name)),
}


def cluster(frame: Frame, query: Mapping[str, str]) -> View:
    """The totals, the map with its choices, the rows of what is chosen, and the chart."""
    choices = choices_of(query)
    nodes = [node for node in frame.view.nodes if _called(node, choices.q)]
    mapped = () if choices.listed else {node.name for node in nodes}
    groups = frame.groups(choices.grouping, mapped, choices.gib)
    values = {
        "totals": _totals(frame),
        "choices": choices,
        "bys": GROUPS,
        "shows": SHOWS,
        "orders": ORDERS,
        "most_gib": MOST_GIB,
        "map": gpu_map(groups, choices),
        "whatif": _whatif(frame, choices.gib),
        "chart": chart(frame.history.of(CLUSTER), in_gib(frame.view.total, frame.view.unit)),
        "all_nodes": len(nodes),
        "to_map": choices.address("rows", "page") if choices.listed else "",
    }
    return View("cluster.html", values | _rows(frame, choices, nodes, groups))


def _whatif(frame: Frame, gib: int) -> str:
    """Address of What if for this size; for none where the units of the nodes differ."""
    unit = common_unit(frame.ledger.nodes().values())
    return "/whatif" if unit is None else f"/whatif?mem={unit.units_for(gib << 10)}"


def _called(node: NodeSummary, wanted: str) -> bool:
    return wanted in node.name or any(wanted in f"{p.namespace}/{p.name}" for p in node.pods)


def _rows(
    frame: Frame, choices: Choices, nodes: Sequence[NodeSummary], groups: Sequence[CellGroup]
) -> dict[str, Any]:
    """One page of the nodes that are shown as rows."""
    found = sorted(_chosen(choices, nodes, groups), key=_KEYS[choices.sort])
    size = PAGE if choices.listed else BESIDE_MAP
    pages = max(-(-len(found) // size), 1)
    number = min(max(choices.page, 1), pages)
    part = found[(number - 1) * size : number * size]
    return {
        "heading": _heading(choices),
        "figures": _figures(choices, groups),
        "asked": choices.made,
        "nodes": [_node(frame, node) for node in part],
        "every": choices.address("at", "group", "page", rows="all", anchor="#chosen"),
        "nothing": choices.address("q", "at", "group", "rows", "page"),
        "number": number,
        "pages": pages,
        "previous": _page(number - 1, pages, choices),
        "next": _page(number + 1, pages, choices),
    }


def _chosen(
    choices: Choices, nodes: Sequence[NodeSummary], groups: Sequence[CellGroup]
) -> Sequence[NodeSummary]:
    """The nodes of the chosen GPU or group; all where these are few, or wanted."""
    if choices.at:
        name = choices.at.rpartition("/")[0] or choices.at
        return [node for node in nodes if node.name in {name, choices.at}]
    if choices.group:
        wanted = [each for each in groups if (each.name or UNNAMED) == choices.group]
        names = {gpu.node for group in wanted for gpu in group.gpus}
        return [node for node in nodes if node.name in names]
    return nodes if choices.made or len(nodes) <= FEW else ()


def _heading(choices: Choices) -> str:
    if choices.at:
        node, slash, index = choices.at.rpartition("/")
        return f"GPU{index} of node {node}" if slash else f"Node {choices.at}"
    return f"Nodes of {choices.group}" if choices.group else "Nodes"


def _figures(choices: Choices, groups: Sequence[CellGroup]) -> str:
    """Those of the chosen GPU; empty where none is chosen."""
    gpus = (gpu for group in groups for gpu in group.gpus)
    found = next((gpu for gpu in gpus if f"{gpu.node}/{gpu.index}" == choices.at), None)
    return "" if found is None else gpu_title(found, choices.gib)


def _totals(frame: Frame) -> Sequence[tuple[str, Cell]]:
    view, (free, lost) = frame.view, frame.fragments
    gpus = sum(len(node.gpus) for node in view.nodes)
    share = round(100 * lost / free) if free else 0
    return (
        (
            "Memory allocated",
            (
                f"{gib(view.used, view.unit)}/{gib(view.total, view.unit)} GiB"
                f" ({percent(view.used, view.total)}%)"
            ),
        ),
        ("Memory in use", in_use(frame.amounts[CLUSTER])),
        ("Nodes and GPUs", f"{counted(len(view.nodes), 'node')}, {counted(gpus, 'GPU')}"),
        ("Pending pods", Link(len(frame.waiting), "/pods")),
        ("Unhealthy GPUs", Link(len(frame.unhealthy), "/health")),
        ("Free", f"{free:.1f} GPUs"),
        ("Fragmented", f"{lost:.1f} GPUs ({share}% of free)"),
    )


def _models(node: NodeSummary) -> str:
    """The GPU models of a node, such as ``, 2 x Tesla T4``."""
    counts = Counter(gpu.model or "unknown model" for gpu in node.gpus)
    return "".join(f", {count} x {model}" for model, count in sorted(counts.items()))


def _node(frame: Frame, node: NodeSummary) -> dict[str, Any]:
    unit = frame.view.unit
    marks = (
        ("cordoned", node.cordoned),
        ("not ready", not node.ready),
        (f"{gib(node.pending, unit)} GiB pending", node.pending > 0),
    )
    return {
        "link": Link(node.name, f"/nodes/{node.name}"),
        "used": gib(node.used, unit),
        "total": gib(node.total, unit),
        "marks": [word for word, holds in marks if holds],
        "models": _models(node),
        "gpus": [bars.gpu(node, each, unit, frame.in_use(each.uuid)) for each in node.gpus],
    }


def _page(number: int, pages: int, choices: Choices) -> str:
    """Address of a page of nodes; empty where there is none."""
    return choices.address("page", page=number, anchor="#chosen") if 1 <= number <= pages else ""
