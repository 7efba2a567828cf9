"""One node: its cards, who holds them, and how they are joined."""

from gpucore.topology.codec import node_matrix, shown
from gpucore.topology.links import Matrix
from gpucore.wire.names import Names
from gpucore.wire.nodes import Node
from gpuinspect.views import NodeView
from gpuinspect.web.feed import Frame
from gpuinspect.web.markup import Markup, el, table
from gpuinspect.web.pages import bars


def node(frame: Frame, found: NodeView) -> Markup:
    """Facts, bars, pods and the matrix of links."""
    matrix = _matrix(frame.nodes[found.name], frame.ledger.names)
    return el(
        "div",
        el("h1", found.name),
        el("p", _facts(found)),
        el("ul", [bars.card(found, each) for each in found.cards], class_="cards"),
        _cards(found),
        _pods(found),
        matrix,
    )


def _facts(found: NodeView) -> str:
    state = "ready" if found.ready else "not ready"
    cordoned = ", cordoned" if found.cordoned else ""
    unit = found.unit if found.explicit else f"{found.unit} (told from its figures)"
    return (
        f"{found.address or 'no address'}, {state}{cordoned}; driver {found.driver or 'unknown'};"
        f" unit {unit}; {found.used} of {found.total} in use, {found.pending} pending"
    )


def _cards(found: NodeView) -> Markup:
    rows = (
        (
            f"GPU{card.index}",
            card.model or "-",
            f"{card.used}/{card.total}",
            f"{card.core}%",
            card.mode,
            "healthy" if card.healthy else "unhealthy",
            card.uuid or "-",
        )
        for card in found.cards
    )
    heads = ("Card", "Model", "Memory", "Compute", "Mode", "Health", "UUID")
    return table(heads, rows, caption="Cards")


def _pods(found: NodeView) -> Markup:
    rows = (
        (
            el("a", f"{pod.namespace}/{pod.name}", href=f"/pods/{pod.namespace}/{pod.name}"),
            ", ".join(f"{units} on GPU{index}" for index, units in pod.cards.items()) or "-",
            pod.pending,
            pod.state,
        )
        for pod in found.pods
    )
    return table(("Pod", "Holds", "Pending", "State"), rows, caption="Pods")


def _matrix(found: Node, names: Names) -> Markup | None:
    matrix = node_matrix(found, names)
    if matrix is None or len(matrix.gpus) < 2:
        return None
    rows = (
        (f"GPU{a}", *("X" if a == b else _link(matrix, a, b) for b in matrix.gpus))
        for a in matrix.gpus
    )
    return table(("", *(f"GPU{gpu}" for gpu in matrix.gpus)), rows, caption="Links between cards")


def _link(matrix: Matrix, a: int, b: int) -> str:
    return shown(matrix, a, b)
