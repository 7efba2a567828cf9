"""The tables of nodes that share GPUs: ``kubectl inspect gpushare`` and ``arena top node -s``.

They are byte for byte as the originals print them, because tools cut them by column. So nothing is
ever added: marks of health, mode and cordoning are notes beside a table
(:func:`notes`), or columns of ``-o wide``.

Oddities are kept. The dashes under the details are as long as the raw pod rows of the first node
together, in bytes, so they grow with the number of pods there. Rows of pods are in the order of
GPUs, as the original walks them; a pod on several is listed with its first.
"""

from collections.abc import Iterable, Iterator, Mapping

from gpucore.units import GpuIndex, counted
from gpuinspect.queries.views import ClusterView, GpuSummary, NodeSummary, PodSummary, percent
from gpuinspect.terminal.output import align, plain, table

DASHES_BEYOND_ROW = 20  # the original's line is the bytes of the first row, unaligned, plus this
DASHES_BEYOND_PODS = 10
UNENFORCED = "none"


def summary(view: ClusterView, *, headers: bool = True) -> str:
    """One line a node with its GPUs, then the totals of the cluster."""
    width = view.width
    pending = any(node.pending for node in view.nodes)
    rows = [_summary_row(node, width, pending=pending) for node in view.nodes]
    if not headers:
        return align("".join(rows))
    dashes = "-" * (len(rows[0].encode()) + DASHES_BEYOND_ROW) if rows else ""
    return align(
        f"{_summary_header(view, width, pending=pending)}{''.join(rows)}{dashes}\n"
        "Allocated/Total GPU Memory In Cluster:\n"
        f"{view.used}/{view.total} ({percent(view.used, view.total)}%)\t\n"
    )


def _summary_header(view: ClusterView, width: int, *, pending: bool) -> str:
    heads = "".join(f"GPU{index}(Allocated/Total)\t" for index in range(width))
    if pending:
        heads += "PENDING(Allocated)\t"
    return f"NAME\tIPADDRESS\t{heads}GPU Memory({view.unit})\n"


def _summary_row(node: NodeSummary, width: int, *, pending: bool) -> str:
    cells = [node.name, node.address or "unknown"]
    cells += gpus(node, width)
    if pending:
        cells.append(str(node.pending) if node.pending else "")
    return "\t".join([*map(plain, cells), f"{node.used}/{node.total}"]) + "\n"


def gpus(node: NodeSummary, width: int) -> list[str]:
    """A cell for every index below ``width``; 0/0 where the node has no such GPU."""
    found = (node.gpu(index) for index in range(width))
    return [f"{gpu.used}/{gpu.total}" if gpu else "0/0" for gpu in found]


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


def _block(node: NodeSummary, dashes: str) -> str:
    return (
        f"\nNAME:\t{node.name}\nIPADDRESS:\t{plain(node.address) or 'unknown'}\n\n"
        f"{_pods_header(node)}{_pods(node)}"
        f"Allocated :\t{node.used} ({percent(node.used, node.total)}%)\t\n"
        f"Total :\t{node.total} \t\n"
        f"{_isolation(node)}{dashes}\n"
    )


def _isolation(node: NodeSummary) -> str:
    """The isolation modes of the GPUs; the original prints no such line."""
    if all(gpu.mode == UNENFORCED for gpu in node.gpus):
        return ""
    gpus = ", ".join(f"GPU{gpu.index} {gpu.mode}" for gpu in node.gpus)
    return f"Isolation :\t{gpus}\n"


def _pods_header(node: NodeSummary) -> str:
    gpus = "".join(f"GPU{index}(Allocated)\t" for index in range(node.width))
    if node.pending:
        gpus += "Pending(Allocated)\t"
    return f"NAME\tNAMESPACE\t{gpus}\n"


def _pods(node: NodeSummary) -> str:
    """A line for every pod with units of memory; compute alone has no column here."""
    shown = [pod for pod in node.pods if pod.pending or any(pod.gpus.values())]
    return "".join(_pod_row(node, pod) for pod in sorted(shown, key=_first_gpu))


def _first_gpu(pod: PodSummary) -> tuple[bool, int]:
    """Units on no known GPU come after all GPUs."""
    gpus = [index for index, units in pod.gpus.items() if units]
    return not gpus, min(gpus, default=0)


def _pod_row(node: NodeSummary, pod: PodSummary) -> str:
    amounts = [_amount(pod, GpuIndex(index)) for index in range(node.width)]
    if node.pending:
        amounts.append(str(pod.pending))
    return "\t".join([pod.name, pod.namespace, *amounts]) + "\t\n"


def _amount(pod: PodSummary, gpu: GpuIndex) -> str:
    """``8``, or ``8 (to 12)`` for a pod that may use more; the original has no such pods."""
    units = str(pod.gpus.get(gpu, 0))
    return f"{units} (to {pod.limits[gpu]})" if gpu in pod.limits else units


def top_summary(view: ClusterView, *, headers: bool = True) -> str:
    """One line a node; unlike in ``inspect`` every cell, the last too, ends in a tab."""
    width = view.width
    rows = [_top_row(node, width) for node in view.nodes]
    if not headers:
        return align("".join(rows))
    head = "".join(f"GPU{index}(Allocated/Total)\t" for index in range(width))
    dashes = "-" * (len(rows[0]) + DASHES_BEYOND_ROW) if rows else ""
    return align(f"NAME\tIPADDRESS\t{head}\n{''.join(rows)}{dashes}\n{_totals(view)}")


def top_details(view: ClusterView) -> str:
    """As ``inspect -d``, with the totals of this command."""
    return align(f"{blocks(view)}\n\n{_totals(view)}")


def _top_row(node: NodeSummary, width: int) -> str:
    return "\t".join([node.name, plain(node.address) or "unknown", *gpus(node, width)]) + "\t\n"


def _totals(view: ClusterView) -> str:
    share = f"{view.used}/{view.total} ({view.unit}) ({percent(view.used, view.total)}%)"
    return f"Allocated/Total GPU Memory In GPUShare Node:\n{share}\t\n"


def wide(view: ClusterView, *, headers: bool = True) -> str:
    """One line a node: state, unit, driver, models, enforcement, and every GPU with its marks."""
    width = view.width
    gpus = (f"GPU{index}" for index in range(width))
    heads = ("NAME", "STATUS", "IPADDRESS", "UNIT", "DRIVER", "MODE", "MODEL", *gpus)
    rows = (_wide_row(node, width) for node in view.nodes)
    return table((*heads, "PENDING", "TOTAL"), rows, headers=headers)


def _wide_row(node: NodeSummary, width: int) -> list[str]:
    return [
        node.name,
        _status(node),
        node.address or "unknown",
        node.unit if node.explicit else f"{node.unit}?",
        node.driver or "-",
        _distinct(gpu.mode for gpu in node.gpus),
        _distinct(gpu.model.removeprefix("NVIDIA ") for gpu in node.gpus),
        *(_gpu(node.gpu(index)) for index in range(width)),
        str(node.pending),
        f"{node.used}/{node.total}",
    ]


def _status(node: NodeSummary) -> str:
    """The state of a node as kubectl prints it."""
    return ("Ready" if node.ready else "NotReady") + (
        ",SchedulingDisabled" if node.cordoned else ""
    )


def _distinct(words: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(word for word in words if word)) or "-"


def _gpu(gpu: GpuSummary | None) -> str:
    if gpu is None:
        return "-"
    return f"{gpu.used}/{gpu.total}" + (f"({','.join(gpu.marks)})" if gpu.marks else "")


def notes(view: ClusterView) -> Iterator[str]:
    """Sentences about the nodes in order, then about the cluster."""
    for node in view.nodes:
        yield from _node(node, str(view.unit))
    if {node.unit for node in view.nodes} - {str(view.unit)}:
        yield f"nodes use different units; all figures are in {view.unit}"
    if any(node.cordoned for node in view.nodes):
        part = view.schedulable
        share = f"{part.used}/{part.total} ({percent(part.used, part.total)}%)"
        yield f"without cordoned and unready nodes and unhealthy GPUs: {share}"


def _node(node: NodeSummary, unit: str) -> Iterator[str]:
    if node.cordoned:
        yield f"{node.name} is cordoned: it accepts no new pods"
    if not node.ready:
        yield f"{node.name} is not ready"
    for gpu in node.gpus:
        if not gpu.healthy:
            yield f"{node.name} GPU{gpu.index} is unhealthy: it accepts no new pods"
        if gpu.used > gpu.total:
            yield f"{node.name} GPU{gpu.index} is over-full: {gpu.used} of {gpu.total} {unit}"
    if node.lost:
        yield f"{node.name}: {node.lost} {unit} are allocated on GPUs that the node no longer has"
    if node.pending:
        pods = (f"{pod.namespace}/{pod.name}" for pod in node.pods if pod.pending)
        yield _unplaced(node.name, f"{node.pending} {unit}", pods)
    yield from pending_gpus(node.name, node.pending_gpus)
    for pod in node.pods:
        yield from (f"{pod.namespace}/{pod.name}: {fault}" for fault in pod.faults)


def pending_gpus(node: str, pending: Mapping[str, int]) -> Iterator[str]:
    """A sentence about exclusive GPUs on unknown GPUs of a node; ``pending`` is by pod."""
    if pending:
        yield _unplaced(node, counted(sum(pending.values()), "exclusive GPU"), pending)


def _unplaced(node: str, amount: str, pods: Iterable[str]) -> str:
    return (
        f"{node}: {amount} PENDING, bound to the node, GPU unknown: the scheduler extender did"
        f" not place {', '.join(pods)} (see 'gpushare doctor')"
    )
