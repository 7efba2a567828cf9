"""The tables of ``arena top node``: nodes, their pods, and with ``--metric`` their GPUs.

The dashes have fixed lengths there, one for each set of columns.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from gpucore.units import GIB_BYTES
from gpuinspect.queries.top import TopGpu, TopNode, TopPod
from gpuinspect.terminal.output import align, one_line, plain, table

_DASHES: Final = {
    (False, False): 89,
    (True, False): 99,
    (False, True): 96,
    (True, True): 107,
}
"""Length of the line under the summary, by (unhealthy column, shareable column)."""


def tenths(amount: Fraction) -> str:
    """GPUs to one decimal, none where it is a whole number; never 0 for a part of a GPU."""
    rounded = Fraction(round(amount * 10), 10)
    if amount and not rounded:
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
        plain(node.address) or "unknown",
        node.role,
        "ready" if node.ready else "notReady",
        str(node.total),
        tenths(node.allocated),
    ]
    cells += [str(node.unhealthy)] if unhealthy else []
    cells += ["Yes" if node.shareable else "No"] if shareable else []
    return "\t".join(cells) + "\n"


def _totals(nodes: Sequence[TopNode]) -> str:
    text = f"Allocated/Total GPUs In Cluster:\n{_share(nodes)}\t\n"
    if not all(node.ready for node in nodes):
        active = [node for node in nodes if node.ready]
        text += f"Allocated/Total GPUs(Active) In Cluster:\n{_share(active)}\t\n"
    return text + _unhealthy(nodes, "\n")


def _unhealthy(nodes: Sequence[TopNode], between: str) -> str:
    """The unhealthy GPUs of the cluster, where there are some."""
    total, unhealthy = sum(node.total for node in nodes), sum(node.unhealthy for node in nodes)
    if not unhealthy:
        return ""
    part = f"{unhealthy}/{total} ({unhealthy * 100 // total}%)"
    return f"Unhealthy/Total GPUs In Cluster:{between}{part}\t\n"


def _share(nodes: Sequence[TopNode]) -> str:
    allocated = sum((node.allocated for node in nodes), Fraction(0))
    total = sum(node.total for node in nodes)
    return f"{tenths(allocated)}/{total} ({_percent(allocated, total)}%)"


def _percent(part: Fraction, whole: int) -> int:
    return int(part * 100 / whole) if whole else 0


def details(nodes: Sequence[TopNode], *, metric: bool = False) -> str:
    """A block a node with its pods, then the totals on one line.

    Args:
        metric: with memory in use of each pod and a table of the node's GPUs.
    """
    blocks = "".join(_block(node, metric=metric) for node in nodes)
    totals = f"Allocated/Total GPUs In Cluster:\t{_share(nodes)}\t\n"
    return align(f"{blocks}\n\n{totals}" + _unhealthy(nodes, "\t"))


def _block(node: TopNode, *, metric: bool) -> str:
    head = "NAMESPACE\tNAME\tGPU REQUESTS" + (f"\t{_USED}" if metric else "")
    pods = "".join(_pod_row(pod, metric=metric) for pod in node.pods)
    gpus = gpu_table(node) if metric else ""
    share = f"{tenths(node.allocated)} ({_percent(node.allocated, node.total)}%)"
    lines = f"Total GPUs In Node {node.name}:\t{node.total}\t\n"
    lines += f"Allocated GPUs In Node {node.name}:\t{share}\t\n"
    lines += "If Node is Shareable :\tYes\t\n" if node.shareable else ""
    if node.unhealthy:
        part = f"{node.unhealthy} ({node.unhealthy * 100 // node.total}%)"
        lines += f"Unhealthy GPUs In Node {node.name}:\t{part}\t\n"
    address = plain(node.address) or "unknown"
    return (
        f"\nNAME:\t{node.name}\nIPADDRESS:\t{address}\nROLE:\t{node.role}\n\n"
        f"{head}\n{pods}{gpus}\n{lines}{'-' * 89}\n"
    )


def _pod_row(pod: TopPod, *, metric: bool) -> str:
    used = f"\t{_gib(pod.used_bytes)}" if metric else ""
    return f"{pod.namespace}\t{pod.name}\t{_request(pod)}{used}\n"


def _request(pod: TopPod) -> str:
    """Exclusive GPUs as a number, a share to two decimals."""
    whole = pod.gpus.denominator == 1 and not pod.shares
    return str(pod.gpus.numerator) if whole else f"{float(pod.gpus):.2f}"


_USED: Final = "MEMORY(Used)"
_TITLES: Final = ("INDEX", "MEMORY(Total)", "MEMORY(Allocated)", _USED, "DUTY_CYCLE")
UNKNOWN: Final = "-"


def gpu_table(node: TopNode) -> str:
    """One line a GPU, then the memory of the node; an unknown figure is a dash."""
    if not node.gpus:
        return ""
    dashes = ["-" * len(title) for title in _TITLES]
    rows = [_TITLES, dashes, *(_gpu_row(gpu) for gpu in node.gpus)]
    lines = "".join("  " + "\t".join(row) + "\n" for row in rows)
    return f"\nGPUs:\n{lines}{_gpu_summary(node.gpus)}"


def _gpu_row(gpu: TopGpu) -> Sequence[str]:
    percent = UNKNOWN if gpu.utilization is None else f"{gpu.utilization:.1f}%"
    amounts = (gpu.total_bytes, gpu.allocated_bytes, gpu.used_bytes)
    return [str(gpu.index), *map(_gib, amounts), percent]


def _gpu_summary(gpus: Sequence[TopGpu]) -> str:
    known = [gpu.used_bytes for gpu in gpus if gpu.used_bytes is not None]
    figures = {
        "Total GPU Memory": sum(gpu.total_bytes for gpu in gpus),
        "Allocated GPU Memory": sum(gpu.allocated_bytes for gpu in gpus),
        "Used GPU Memory": sum(known) if known else None,
    }
    return "".join(f"{title}:\t{_gib(amount)}\t\n" for title, amount in figures.items())


def _gib(amount: float | None) -> str:
    return UNKNOWN if amount is None else f"{amount / GIB_BYTES:.1f} GiB"


_HEADS: Final = (
    *("NODE", "GPU", "MODEL", "TOTAL(NVML)"),
    *("ALLOCATED", "USED", "USED/ALLOCATED", "UTIL"),
)


def gpus(pairs: Sequence[tuple[TopNode, TopGpu]], *, headers: bool = True) -> str:
    """One line a GPU; amounts in GiB, an unknown figure is a dash."""
    return table(_HEADS, (_line(node, gpu) for node, gpu in pairs), headers=headers)


def _line(node: TopNode, gpu: TopGpu) -> tuple[str, ...]:
    model = one_line(gpu.model.removeprefix("NVIDIA ")) or UNKNOWN
    total = gpu.total_bytes if gpu.reported else None
    amounts = map(_gib, (total, gpu.allocated_bytes, gpu.used_bytes))
    util = UNKNOWN if gpu.utilization is None else f"{gpu.utilization:.0f}%"
    return (node.name, str(gpu.index), model, *amounts, _part(gpu), util)


def _part(gpu: TopGpu) -> str:
    """Above 100%: pods use more than they were given."""
    if gpu.used_bytes is None or not gpu.allocated_bytes:
        return UNKNOWN
    return f"{100 * gpu.used_bytes / gpu.allocated_bytes:.0f}%"
