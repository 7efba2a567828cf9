"""Notes beside the figures, one sentence each, printed on stderr.

The originals' tables cannot carry marks without breaking the tools that cut them, so these notes
report health, cordoning, differing units and pending amounts, with the next step.
"""

from collections.abc import Iterator

from gpuinspect.queries.views import ClusterView, NodeSummary, percent


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
        yield (
            f"{node.name}: {node.pending} {unit} PENDING, bound to the node, GPU unknown: the"
            f" scheduler extender did not place {_pending(node)} (see 'gpushare doctor')"
        )
    for pod in node.pods:
        yield from (f"{pod.namespace}/{pod.name}: {fault}" for fault in pod.faults)


def _pending(node: NodeSummary) -> str:
    return ", ".join(f"{pod.namespace}/{pod.name}" for pod in node.pods if pod.pending)
