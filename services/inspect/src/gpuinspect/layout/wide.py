"""``-o wide``: the summary with what the original has no column for, marks in words."""

from collections.abc import Iterable

from gpuinspect.tables import align
from gpuinspect.views import CardView, ClusterView, NodeView


def wide(view: ClusterView, *, headers: bool = True) -> str:
    """One line a node: state, unit, driver, models, enforcement, and every card with its marks."""
    width = view.width
    cards = "".join(f"GPU{index}\t" for index in range(width))
    head = f"NAME\tSTATUS\tIPADDRESS\tUNIT\tDRIVER\tMODE\tMODEL\t{cards}PENDING\tTOTAL\n"
    return align((head if headers else "") + "".join(_row(node, width) for node in view.nodes))


def _row(node: NodeView, width: int) -> str:
    cells = [
        node.name,
        _status(node),
        node.address or "unknown",
        node.unit if node.explicit else f"{node.unit}?",
        node.driver or "-",
        _distinct(card.mode for card in node.cards),
        _distinct(card.model.removeprefix("NVIDIA ") for card in node.cards),
        *(_card(node.card(index)) for index in range(width)),
        str(node.pending),
        f"{node.used}/{node.total}",
    ]
    return "\t".join(cells) + "\n"


def _status(node: NodeView) -> str:
    """As kubectl says it."""
    return ("Ready" if node.ready else "NotReady") + (
        ",SchedulingDisabled" if node.cordoned else ""
    )


def _distinct(words: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(word for word in words if word)) or "-"


def _card(card: CardView | None) -> str:
    if card is None:
        return "-"
    marks = [
        word
        for word, holds in (
            ("unhealthy", not card.healthy),
            ("whole", card.whole),
            ("overfull", card.used > card.total),
        )
        if holds
    ]
    return f"{card.used}/{card.total}" + (f"({','.join(marks)})" if marks else "")
