"""The map of the cluster: a row a node, a bar a card; fifty nodes a page."""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from gpuinspect.layout.explanation import nodes as counted
from gpuinspect.views import NodeView, percent
from gpuinspect.web.feed import Frame
from gpuinspect.web.markup import Child, Markup, el
from gpuinspect.web.pages import bars

PAGE: Final = 50
_ORDERS: Final = {
    "name": lambda node: node.name,
    "free": lambda node: (node.used - node.total, node.name),
    "used": lambda node: (-percent(node.used, node.total), node.name),
}


def cluster(frame: Frame, query: Mapping[str, str]) -> Markup:
    """The totals, the filter and one page of nodes."""
    wanted, order = query.get("q", ""), query.get("sort", "name")
    key = _ORDERS.get(order, _ORDERS["name"])
    nodes = sorted((node for node in frame.view.nodes if _called(node, wanted)), key=key)
    pages = max(-(-len(nodes) // PAGE), 1)
    number = min(max(_number(query.get("page", "1")), 1), pages)
    part = nodes[(number - 1) * PAGE : number * PAGE]
    return el(
        "div",
        el("h1", "Cluster"),
        _totals(frame),
        _filter(wanted, order),
        [_node(node, str(frame.view.unit)) for node in part],
        None
        if nodes
        else el("p", "No node that shares its GPUs, and no pod on one, is called so."),
        _pages(number, pages, {"q": wanted, "sort": order}) if pages > 1 else None,
    )


def _called(node: NodeView, wanted: str) -> bool:
    return wanted in node.name or any(wanted in f"{p.namespace}/{p.name}" for p in node.pods)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 1


def _totals(frame: Frame) -> Markup:
    view, (free, lost) = frame.view, frame.fragments
    cards = sum(len(node.cards) for node in view.nodes)
    share = round(100 * lost / free) if free else 0
    facts: Sequence[tuple[str, Child]] = (
        (
            "Memory in use",
            f"{view.used}/{view.total} {view.unit} ({percent(view.used, view.total)}%)",
        ),
        ("Nodes and cards", f"{counted(len(view.nodes))}, {cards} card{'' if cards == 1 else 's'}"),
        ("Waiting pods", el("a", len(frame.waiting), href="/pods")),
        ("Free", f"{free:.1f} cards"),
        ("Fragmented", f"{lost:.1f} cards ({share}% of free)"),
    )
    return el("dl", [el("div", el("dt", name), el("dd", value)) for name, value in facts])


def _filter(wanted: str, order: str) -> Markup:
    options = [el("option", each, value=each, selected=each == order) for each in _ORDERS]
    return el(
        "form",
        el("label", "Nodes or pods called ", el("input", name="q", value=wanted, type="search")),
        el("label", " in order of ", el("select", options, name="sort")),
        el("button", "Show"),
        role="search",
    )


def _node(node: NodeView, unit: str) -> Markup:
    marks = [
        word
        for word, holds in (
            ("cordoned", node.cordoned),
            ("not ready", not node.ready),
            (f"{node.pending} pending", node.pending > 0),
        )
        if holds
    ]
    head = el(
        "h2",
        el("a", node.name, href=f"/nodes/{node.name}"),
        el("small", f" {node.used}/{node.total} {unit}"),
        [el("span", mark, class_="mark") for mark in marks],
    )
    return el(
        "section", head, el("ul", [bars.card(node, each) for each in node.cards], class_="cards")
    )


def _pages(number: int, pages: int, query: Mapping[str, str]) -> Markup:
    def link(text: str, to: int) -> Markup | None:
        if not 1 <= to <= pages:
            return None
        return el("a", text, href=f"/?{urlencode({**query, 'page': to})}", rel=text.lower())

    return el(
        "nav",
        link("Previous", number - 1),
        el("span", f" page {number} of {pages} "),
        link("Next", number + 1),
        aria_label="Pages of nodes",
    )
