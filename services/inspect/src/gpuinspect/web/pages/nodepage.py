"""One node: its GPUs, their pods, and the links between them."""

from gpucore.accounting.node_infos import node_matrix
from gpucore.units import MemoryUnit
from gpucore.wire.names import Names
from gpucore.wire.node.matrices import shown
from gpucore.wire.node.spec import Node
from gpuinspect.queries.gpumap import in_gib
from gpuinspect.queries.views import NodeSummary
from gpuinspect.web.frames import Frame
from gpuinspect.web.pages import bars
from gpuinspect.web.pages.bars import gib
from gpuinspect.web.pages.charts import chart
from gpuinspect.web.pages.healthpage import unhealthy
from gpuinspect.web.rendering import Table, View, age_cell, pod_link, table


def node(frame: Frame, found: NodeSummary) -> View:
    """Facts, unhealthy GPUs, bars, memory over time, pods and the matrix of links."""
    matrix = _matrix(frame.nodes[found.name], frame.ledger.names)
    unit = frame.view.unit
    values = {
        "name": found.name,
        "facts": _facts(found, unit),
        "unhealthy": unhealthy(each for each in frame.unhealthy if each.node == found.name),
        "chart": chart(frame.history.of(found.name), in_gib(found.total, unit)),
        "gpus": [bars.gpu(found, each, unit, frame.in_use(each.uuid)) for each in found.gpus],
        "tables": [each for each in (_gpus(found, unit), _pods(frame, found), matrix) if each],
    }
    return View("node.html", values)


def _facts(found: NodeSummary, shown: MemoryUnit) -> str:
    """In words; ``shown`` is the unit of the figures, which may not be that of the node."""
    state = "ready" if found.ready else "not ready"
    cordoned = ", cordoned" if found.cordoned else ""
    unit = found.unit if found.explicit else f"{found.unit} (derived from its figures)"
    return (
        f"{found.address or 'no address'}, {state}{cordoned}; driver {found.driver or 'unknown'};"
        f" unit {unit}; {gib(found.used, shown)} of {gib(found.total, shown)} GiB allocated,"
        f" {gib(found.pending, shown)} GiB pending"
    )


def _gpus(found: NodeSummary, unit: MemoryUnit) -> Table:
    rows = (
        (
            f"GPU{gpu.index}",
            gpu.model or "-",
            f"{gib(gpu.used, unit)}/{gib(gpu.total, unit)}",
            f"{gpu.core}%",
            gpu.mode,
            "healthy" if gpu.healthy else "unhealthy",
            gpu.uuid or "-",
        )
        for gpu in found.gpus
    )
    heads = ("GPU", "Model", "Memory (GiB)", "Compute", "Isolation", "Health", "UUID")
    return table(heads, rows, caption="GPUs", stacks=True)


def _pods(frame: Frame, found: NodeSummary) -> Table:
    unit = frame.view.unit
    rows = (
        (
            pod_link(pod.namespace, pod.name),
            ", ".join(f"{gib(each, unit)} on GPU{index}" for index, each in pod.gpus.items())
            or "-",
            gib(pod.pending, unit),
            pod.state,
            age_cell(frame.created(pod.uid), frame.taken),
        )
        for pod in found.pods
    )
    heads = ("Pod", "Allocated (GiB)", "Pending (GiB)", "State", "Age")
    return table(heads, rows, caption="Pods", stacks=True)


def _matrix(found: Node, names: Names) -> Table | None:
    matrix = node_matrix(found, names)
    if matrix is None or len(matrix.gpus) < 2:
        return None
    rows = (
        (f"GPU{a}", *("X" if a == b else shown(matrix, a, b) for b in matrix.gpus))
        for a in matrix.gpus
    )
    return table(("", *(f"GPU{gpu}" for gpu in matrix.gpus)), rows, caption="Links between GPUs")
