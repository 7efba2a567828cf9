"""A card as a bar: a piece for every pod in the shade it has on its whole node, the rest free.

Drawn as SVG, whose sizes are attributes: the content security policy allows no inline styles.
"""

from collections.abc import Iterator

from gpuinspect.views import CardView, NodeView, PodView
from gpuinspect.web.markup import Markup, el

SHADES = 6


def card(node: NodeView, shown: CardView) -> Markup:
    """The bar with its figures and marks in words."""
    holders = [(place, pod) for place, pod in enumerate(node.pods) if shown.index in pod.cards]
    marks = [
        word
        for word, holds in (
            ("unhealthy", not shown.healthy),
            ("whole", shown.whole),
            ("over-full", shown.used > shown.total),
            (shown.mode, shown.mode != "none"),
        )
        if holds
    ]
    label = f"GPU{shown.index} {shown.used}/{shown.total}"
    text = el("span", label, [el("span", mark, class_=f"mark {mark}") for mark in marks])
    bar = el(
        "svg",
        el("rect", class_="free", width="100%", height="100%"),
        _pieces(shown, holders),
        class_="bar" if shown.healthy else "bar sick",
        role="group",
        aria_label=f"{label} on {node.name}",
    )
    return el("li", text, bar, class_="card")


def _pieces(shown: CardView, holders: list[tuple[int, PodView]]) -> Iterator[Markup]:
    scale, start = 100 / max(shown.total, shown.used, 1), 0.0
    for place, pod in holders:
        width = pod.cards[shown.index] * scale
        title = f"{pod.namespace}/{pod.name}: {pod.cards[shown.index]}"
        piece = el(
            "rect",
            class_=f"pod shade{place % SHADES}",
            x=f"{start:.2f}%",
            width=f"{width:.2f}%",
            height="100%",
        )
        link = f"/pods/{pod.namespace}/{pod.name}"
        yield el("a", el("title", title), piece, href=link, aria_label=title)
        start += width
