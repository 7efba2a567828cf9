"""One node: its GPUs, their pods, and the links between them."""

from gpucore.topology.codec import node_matrix, shown
from gpucore.topology.links import Matrix
from gpucore.wire.names import Names
from gpucore.wire.nodes import Node
from gpuinspect.queries.views import NodeSummary
from gpuinspect.web.frames import Frame
from gpuinspect.web.pages import bars
from gpuinspect.web.pages.charts import chart
from gpuinspect.web.pages.healthpage import unhealthy
from gpuinspect.web.rendering import Table, View, pod_link, table


def node(frame: Frame, found: NodeSummary) -> View:
    """Facts, unhealthy GPUs, bars, memory over time, pods and the matrix of links."""
    matrix = _matrix(frame.nodes[found.name], frame.ledger.names)
    pods = _pods(found, str(frame.view.unit))
    values = {
        "name": found.name,
        "facts": _facts(found, str(frame.view.unit)),
        "unhealthy": unhealthy(each for each in frame.unhealthy if each.node == found.name),
        "chart": chart(frame.history.of(found.name), found.total, str(frame.view.unit)),
        "gpus": [bars.gpu(found, each, frame.in_use(each.uuid)) for each in found.gpus],
        "tables": [each for each in (_gpus(found), pods, matrix) if each],
    }
    return View("node.html", values)


def _facts(found: NodeSummary, shown: str) -> str:
    """In words; ``shown`` is the unit of the figures, which may not be that of the node."""
    state = "ready" if found.ready else "not ready"
    cordoned = ", cordoned" if found.cordoned else ""
    unit = found.unit if found.explicit else f"{found.unit} (derived from its figures)"
    return (
        f"{found.address or 'no address'}, {state}{cordoned}; driver {found.driver or 'unknown'};"
        f" unit {unit}; {found.used} of {found.total} {shown} allocated,"
        f" {found.pending} {shown} pending"
    )


def _gpus(found: NodeSummary) -> Table:
    rows = (
        (
            f"GPU{gpu.index}",
            gpu.model or "-",
            f"{gpu.used}/{gpu.total}",
            f"{gpu.core}%",
            gpu.mode,
            "healthy" if gpu.healthy else "unhealthy",
            gpu.uuid or "-",
        )
        for gpu in found.gpus
    )
    heads = ("GPU", "Model", "Memory", "Compute", "Isolation", "Health", "UUID")
    return table(heads, rows, caption="GPUs")


def _pods(found: NodeSummary, unit: str) -> Table:
    rows = (
        (
            pod_link(pod.namespace, pod.name),
            ", ".join(f"{units} on GPU{index}" for index, units in pod.gpus.items()) or "-",
            pod.pending,
            pod.state,
        )
        for pod in found.pods
    )
    return table(("Pod", f"Allocated ({unit})", f"Pending ({unit})", "State"), rows, caption="Pods")


def _matrix(found: Node, names: Names) -> Table | None:
    matrix = node_matrix(found, names)
    if matrix is None or len(matrix.gpus) < 2:
        return None
    rows = (
        (f"GPU{a}", *("X" if a == b else _link(matrix, a, b) for b in matrix.gpus))
        for a in matrix.gpus
    )
    return table(("", *(f"GPU{gpu}" for gpu in matrix.gpus)), rows, caption="Links between GPUs")


def _link(matrix: Matrix, a: int, b: int) -> str:
    return shown(matrix, a, b)
