"""The details of ``kubectl inspect gpushare -d``, byte for byte as the original prints them.

Its oddities are kept, since tools depend on the layout: the dashes are as long as the raw pod
rows of the first node together, in bytes, so they grow with the number of pods there. Rows are in
the order of cards, as the original walks them; a pod on several is listed with its first.
"""

from gpucore.units import GpuIndex
from gpuinspect.tables import align
from gpuinspect.views import ClusterView, NodeView, PodView, percent

DASHES_BEYOND_PODS = 10
UNENFORCED = "none"


def details(view: ClusterView) -> str:
    """A block a node with a line a pod, then the totals of the cluster on one line."""
    return align(
        f"{blocks(view)}\n\nAllocated/Total GPU Memory In Cluster:\t"
        f"{view.used}/{view.total} ({percent(view.used, view.total)}%)\t\n"
    )


def blocks(view: ClusterView) -> str:
    """The nodes alone, not yet aligned."""
    first = _pods(view.nodes[0]) if view.nodes else ""
    dashes = "-" * (len(first.encode()) + DASHES_BEYOND_PODS)
    return "".join(_block(node, dashes) for node in view.nodes)


def _block(node: NodeView, dashes: str) -> str:
    return (
        f"\nNAME:\t{node.name}\nIPADDRESS:\t{node.address or 'unknown'}\n\n"
        f"{_header(node)}{_pods(node)}"
        f"Allocated :\t{node.used} ({percent(node.used, node.total)}%)\t\n"
        f"Total :\t{node.total} \t\n"
        f"{_isolation(node)}{dashes}\n"
    )


def _isolation(node: NodeView) -> str:
    """What enforces shares, card by card; the original has no word for it and so no line."""
    if all(card.mode == UNENFORCED for card in node.cards):
        return ""
    cards = ", ".join(f"GPU{card.index} {card.mode}" for card in node.cards)
    return f"Isolation :\t{cards}\n"


def _header(node: NodeView) -> str:
    cards = "".join(f"GPU{index}(Allocated)\t" for index in range(node.width))
    if node.pending:
        cards += "Pending(Allocated)\t"
    return f"NAME\tNAMESPACE\t{cards}\n"


def _pods(node: NodeView) -> str:
    """A line for every pod with units of memory; compute alone has no column here."""
    shown = [pod for pod in node.pods if pod.pending or any(pod.cards.values())]
    return "".join(_row(node, pod) for pod in sorted(shown, key=_first_card))


def _first_card(pod: PodView) -> tuple[bool, int]:
    """Units on no known card come after all cards."""
    cards = [index for index, units in pod.cards.items() if units]
    return not cards, min(cards, default=0)


def _row(node: NodeView, pod: PodView) -> str:
    amounts = [pod.cards.get(GpuIndex(index), 0) for index in range(node.width)]
    if node.pending:
        amounts.append(pod.pending)
    return "\t".join([pod.name, pod.namespace, *map(str, amounts)]) + "\t\n"
