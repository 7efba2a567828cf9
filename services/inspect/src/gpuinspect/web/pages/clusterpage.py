"""The cluster: totals, memory over time, and a bar for each GPU; fifty nodes a page."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from gpuinspect.queries.views import NodeSummary, percent
from gpuinspect.terminal.wrapping import nodes as counted
from gpuinspect.web.frames import Frame
from gpuinspect.web.history import CLUSTER
from gpuinspect.web.pages import bars
from gpuinspect.web.pages.charts import chart
from gpuinspect.web.rendering import Cell, Link, View

PAGE: Final = 50
_ORDERS: Final = {
    "name": lambda node: node.name,
    "free": lambda node: (node.used - node.total, node.name),
    "used": lambda node: (-percent(node.used, node.total), node.name),
}


def cluster(frame: Frame, query: Mapping[str, str]) -> View:
    """The totals, the chart, the filter and one page of nodes."""
    wanted, order = query.get("q", ""), query.get("sort", "name")
    key = _ORDERS.get(order, _ORDERS["name"])
    nodes = sorted((node for node in frame.view.nodes if _called(node, wanted)), key=key)
    pages = max(-(-len(nodes) // PAGE), 1)
    number = min(max(_number(query.get("page", "1")), 1), pages)
    part = nodes[(number - 1) * PAGE : number * PAGE]
    values = {
        "totals": _totals(frame),
        "wanted": wanted,
        "order": order,
        "orders": list(_ORDERS),
        "chart": chart(frame.history.of(CLUSTER), frame.view.total, str(frame.view.unit)),
        "nodes": [_node(frame, node) for node in part],
        "unit": str(frame.view.unit),
        "number": number,
        "pages": pages,
        "previous": _page(number - 1, pages, wanted, order),
        "next": _page(number + 1, pages, wanted, order),
    }
    return View("cluster.html", values)


def _called(node: NodeSummary, wanted: str) -> bool:
    return wanted in node.name or any(wanted in f"{p.namespace}/{p.name}" for p in node.pods)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 1


def _totals(frame: Frame) -> Sequence[tuple[str, Cell]]:
    view, (free, lost) = frame.view, frame.fragments
    gpus = sum(len(node.gpus) for node in view.nodes)
    share = round(100 * lost / free) if free else 0
    return (
        (
            "Memory allocated",
            f"{view.used}/{view.total} {view.unit} ({percent(view.used, view.total)}%)",
        ),
        ("Memory in use", _in_use(frame)),
        ("Nodes and GPUs", f"{counted(len(view.nodes))}, {gpus} GPU{'' if gpus == 1 else 's'}"),
        ("Pending pods", Link(len(frame.waiting), "/pods")),
        ("Unhealthy GPUs", Link(len(frame.unhealthy), "/health")),
        ("Free", f"{free:.1f} GPUs"),
        ("Fragmented", f"{lost:.1f} GPUs ({share}% of free)"),
    )


def _in_use(frame: Frame) -> str:
    used = frame.amounts[CLUSTER].used
    return "unknown" if used is None else f"{used:.1f} {frame.view.unit}"


def _models(node: NodeSummary) -> str:
    """The GPU models of a node, such as ``, 2 x Tesla T4``."""
    counts = Counter(gpu.model or "unknown model" for gpu in node.gpus)
    return "".join(f", {count} x {model}" for model, count in sorted(counts.items()))


def _node(frame: Frame, node: NodeSummary) -> dict[str, Any]:
    marks = (
        ("cordoned", node.cordoned),
        ("not ready", not node.ready),
        (f"{node.pending} {frame.view.unit} pending", node.pending > 0),
    )
    return {
        "link": Link(node.name, f"/nodes/{node.name}"),
        "used": node.used,
        "total": node.total,
        "marks": [word for word, holds in marks if holds],
        "models": _models(node),
        "gpus": [bars.gpu(node, each, frame.in_use(each.uuid)) for each in node.gpus],
    }


def _page(number: int, pages: int, wanted: str, order: str) -> str:
    """Address of a page of nodes; empty where there is none."""
    query = {"q": wanted, "sort": order, "page": number}
    return f"/?{urlencode(query)}" if 1 <= number <= pages else ""
