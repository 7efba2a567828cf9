"""The tables of ``arena top node``, with and without details.

The dashes have fixed lengths there, one for each set of columns.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from gpuinspect.layout.topmetrics import gpu_table
from gpuinspect.tables import align
from gpuinspect.topnodes import TopNode, TopPod

_DASHES: Final = {
    (False, False): 89,
    (True, False): 99,
    (False, True): 96,
    (True, True): 107,
}
"""Length of the line under the summary, by (unhealthy column, shareable column)."""


def tenths(cards: Fraction) -> str:
    """Cards to one decimal, none where it is a whole number; never 0 for a part of a card."""
    rounded = Fraction(round(cards * 10), 10)
    if cards and not rounded:
        rounded = Fraction(1, 10)
    return str(rounded.numerator) if rounded.denominator == 1 else f"{float(rounded):.1f}"


def summary(nodes: Sequence[TopNode], *, headers: bool = True) -> str:
    """One line a node, then the totals of the cluster."""
    unhealthy, shareable = any(n.unhealthy for n in nodes), any(n.shareable for n in nodes)
    rows = "".join(_row(node, unhealthy=unhealthy, shareable=shareable) for node in nodes)
    if not headers:
        return align(rows)
    head = "NAME\tIPADDRESS\tROLE\tSTATUS\tGPU(Total)\tGPU(Allocated)"
    head += "\tGPU(Unhealthy)" if unhealthy else ""
    head += "\tGPU(Shareable)" if shareable else ""
    dashes = "-" * _DASHES[unhealthy, shareable]
    return align(f"{head}\n{rows}{dashes}\n{_totals(nodes)}")


def _row(node: TopNode, *, unhealthy: bool, shareable: bool) -> str:
    cells = [
        node.name,
        node.address or "unknown",
        node.role,
        "ready" if node.ready else "notReady",
        str(node.total),
        tenths(node.allocated),
    ]
    cells += [str(node.unhealthy)] if unhealthy else []
    cells += ["Yes" if node.shareable else "No"] if shareable else []
    return "\t".join(cells) + "\n"


def _totals(nodes: Sequence[TopNode]) -> str:
    total = sum(node.total for node in nodes)
    text = f"Allocated/Total GPUs In Cluster:\n{_share(nodes)}\t\n"
    if not all(node.ready for node in nodes):
        active = [node for node in nodes if node.ready]
        text += f"Allocated/Total GPUs(Active) In Cluster:\n{_share(active)}\t\n"
    unhealthy = sum(node.unhealthy for node in nodes)
    if unhealthy:
        portion = f"{unhealthy}/{total} ({unhealthy * 100 // total}%)"
        text += f"Unhealthy/Total GPUs In Cluster:\n{portion}\t\n"
    return text


def _share(nodes: Sequence[TopNode]) -> str:
    allocated = sum((node.allocated for node in nodes), Fraction(0))
    total = sum(node.total for node in nodes)
    return f"{tenths(allocated)}/{total} ({_percent(allocated, total)}%)"


def _percent(part: Fraction, whole: int) -> int:
    return int(part * 100 / whole) if whole else 0


def details(nodes: Sequence[TopNode], *, metric: bool = False) -> str:
    """A block a node with its pods, then the totals on one line.

    Args:
        nodes: to show.
        metric: with a table of the node's GPUs.
    """
    blocks = "".join(_block(node, gpu_table(node) if metric else "") for node in nodes)
    return align(f"{blocks}\n\nAllocated/Total GPUs In Cluster:\t{_share(nodes)}\t\n")


def _block(node: TopNode, gpus: str) -> str:
    pods = "".join(f"{pod.namespace}\t{pod.name}\t{_request(pod)}\n" for pod in node.pods)
    share = f"{tenths(node.allocated)} ({_percent(node.allocated, node.total)}%)"
    lines = f"Total GPUs In Node {node.name}:\t{node.total}\t\n"
    lines += f"Allocated GPUs In Node {node.name}:\t{share}\t\n"
    lines += "If Node is Shareable :\tYes\t\n" if node.shareable else ""
    if node.unhealthy:
        lines += f"Unhealthy GPUs In Node {node.name}:\t{node.unhealthy}\t\n"
    return (
        f"\nNAME:\t{node.name}\nIPADDRESS:\t{node.address or 'unknown'}\nROLE:\t{node.role}\n\n"
        f"NAMESPACE\tNAME\tGPU REQUESTS\n{pods}{gpus}\n{lines}{'-' * 89}\n"
    )


def _request(pod: TopPod) -> str:
    """Whole cards as a number, a share to two decimals."""
    return str(pod.cards.numerator) if pod.cards.denominator == 1 else f"{float(pod.cards):.2f}"
