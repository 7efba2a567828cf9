"""The tables of ``arena top node -s``: only the nodes that share, in units of memory."""

from gpuinspect.layout.details import blocks
from gpuinspect.layout.summary import DASHES_BEYOND_ROW, cards
from gpuinspect.tables import align
from gpuinspect.views import ClusterView, NodeView, percent


def summary(view: ClusterView, *, headers: bool = True) -> str:
    """One line a node; unlike in ``inspect`` every cell, the last too, ends in a tab."""
    width = view.width
    rows = [_row(node, width) for node in view.nodes]
    if not headers:
        return align("".join(rows))
    head = "".join(f"GPU{index}(Allocated/Total)\t" for index in range(width))
    dashes = "-" * (len(rows[0]) + DASHES_BEYOND_ROW) if rows else ""
    return align(f"NAME\tIPADDRESS\t{head}\n{''.join(rows)}{dashes}\n{_totals(view)}")


def details(view: ClusterView) -> str:
    """As ``inspect -d``, with the totals of this command."""
    return align(f"{blocks(view)}\n\n{_totals(view)}")


def _row(node: NodeView, width: int) -> str:
    return "\t".join([node.name, node.address or "unknown", *cards(node, width)]) + "\t\n"


def _totals(view: ClusterView) -> str:
    share = f"{view.used}/{view.total} ({view.unit}) ({percent(view.used, view.total)}%)"
    return f"Allocated/Total GPU Memory In GPUShare Node:\n{share}\t\n"
