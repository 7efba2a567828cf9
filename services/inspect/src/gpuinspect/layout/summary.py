"""The summary table of ``kubectl inspect gpushare``, byte for byte as the original prints it.

Tools cut this text by column, so nothing is ever added to it: marks of health, mode and cordoning
are notes beside it (:mod:`gpuinspect.layout.notes`) or columns of ``-o wide``.
"""

from gpuinspect.tables import align
from gpuinspect.views import ClusterView, NodeView, percent

DASHES_BEYOND_ROW = 20  # the original's line is the bytes of the first row, unaligned, plus this


def summary(view: ClusterView, *, headers: bool = True) -> str:
    """One line a node with its cards, then the totals of the cluster."""
    width = view.width
    pending = any(node.pending for node in view.nodes)
    rows = [_row(node, width, pending=pending) for node in view.nodes]
    if not headers:
        return align("".join(rows))
    dashes = "-" * (len(rows[0].encode()) + DASHES_BEYOND_ROW) if rows else ""
    return align(
        f"{_header(view, width, pending=pending)}{''.join(rows)}{dashes}\n"
        "Allocated/Total GPU Memory In Cluster:\n"
        f"{view.used}/{view.total} ({percent(view.used, view.total)}%)\t\n"
    )


def _header(view: ClusterView, width: int, *, pending: bool) -> str:
    heads = "".join(f"GPU{index}(Allocated/Total)\t" for index in range(width))
    if pending:
        heads += "PENDING(Allocated)\t"
    return f"NAME\tIPADDRESS\t{heads}GPU Memory({view.unit})\n"


def _row(node: NodeView, width: int, *, pending: bool) -> str:
    cells = [node.name, node.address or "unknown"]
    cells += cards(node, width)
    if pending:
        cells.append(str(node.pending) if node.pending else "")
    return "\t".join([*cells, f"{node.used}/{node.total}"]) + "\n"


def cards(node: NodeView, width: int) -> list[str]:
    """A cell for every index below ``width``; 0/0 where the node has no such card."""
    found = (node.card(index) for index in range(width))
    return [f"{card.used}/{card.total}" if card else "0/0" for card in found]
