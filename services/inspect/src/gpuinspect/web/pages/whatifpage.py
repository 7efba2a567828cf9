"""What-if: a form for new pods, and the placements that the core computes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import common_unit
from gpucore.explain.answers import Answer
from gpucore.explain.sentences import unit_words
from gpucore.explain.whatif_documents import placed_text
from gpucore.simulate.manifests import WorkloadPods
from gpucore.units import PodUid
from gpucore.wire.pod.spec import Container, Pod
from gpuinspect.errors import InspectError
from gpuinspect.layout.whatif import why
from gpuinspect.queries.whatif import Addition, whatif_answers
from gpuinspect.web.frames import Frame
from gpuinspect.web.limits import most_pods
from gpuinspect.web.rendering import Table, View, table

MOST: Final = 100  # pods and nodes of one simulation
SUGGESTED: Final = 1000  # names of nodes; any other can be entered
NOTHING_REQUESTED: Final = "The pods request nothing: enter memory, compute or exclusive GPUs."
Values = dict[str, Any]
_FIELDS: Final = (
    ("mem", "Memory ({})", 0, 1 << 20),
    ("core", "Compute in percent", 0, 100),
    ("gpus", "Exclusive GPUs", 0, 64),
    ("replicas", "Number of pods", 1, MOST),
    ("add", "Nodes to add", 0, MOST),
)


def whatif(frame: Frame, query: Mapping[str, str]) -> View:
    """The form with its values, and the result once it was submitted."""
    unit = unit_words(common_unit(frame.ledger.nodes().values()))
    values = {
        "fields": [
            _field(query, name, text.format(unit), low, high) for name, text, low, high in _FIELDS
        ],
        "nodes": [node.name for node in frame.view.nodes[:SUGGESTED]],
        "like": _like(frame, query),
        "refused": "",
        "answers": None,
    }
    return View("whatif.html", values | _result(frame, query))


def _field(query: Mapping[str, str], name: str, text: str, low: int, high: int) -> Values:
    value = _amount(query.get(name, ""), low, high)
    return {"name": name, "text": text, "low": low, "high": high, "value": value}


def _result(frame: Frame, query: Mapping[str, str]) -> Values:
    amounts = {name: _amount(query.get(name, ""), low, high) for name, _, low, high in _FIELDS}
    if not (amounts["mem"] or amounts["core"] or amounts["gpus"]):
        return {"refused": NOTHING_REQUESTED} if query else {}
    nodes = len(frame.view.nodes) + amounts["add"]
    pods = min(amounts["replicas"], most_pods(nodes))
    wanted = WorkloadPods(_pod(amounts, frame.ledger), pods)
    added = Addition(amounts["add"], _like(frame, query) if amounts["add"] else "")
    try:
        answers = whatif_answers(
            frame.snapshot,
            [wanted],
            frame.ledger,
            addition=added,
            policy=frame.policy,
            nodes=frame.candidates,
        )
    except InspectError as error:
        return {"refused": str(error)}
    limited = f"Simulated {pods} of {amounts['replicas']} pods: the cluster has {nodes} nodes."
    return {
        "limited": limited if pods < amounts["replicas"] else "",
        "policy": str(frame.policy),
        "fitting": sum(answer.fits for answer in answers),
        "reasons": sorted({reason for answer in answers for reason in answer.likely}),
        "answers": _answers(answers),
    }


def _like(frame: Frame, query: Mapping[str, str]) -> str:
    """The node to copy: the first where none is named."""
    return query.get("like") or next((node.name for node in frame.view.nodes), "")


def _amount(text: str, low: int, high: int) -> int:
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else low
    return min(max(value, low), high)


def _pod(amounts: Mapping[str, int], ledger: Ledger) -> Pod:
    names = ledger.names
    resources = ((names.gpu_mem, "mem"), (names.gpu_core, "core"), (names.gpu, "gpus"))
    limits = {resource: str(amounts[key]) for resource, key in resources if amounts[key]}
    return Pod(PodUid("what-if"), "", "pod", containers=(Container("c", limits=limits),))


def _answers(answers: Sequence[Answer]) -> Table:
    rows = ((answer.outcome.name, _where(answer)) for answer in answers)
    return table(("Pod", "Placement"), rows, caption="Result", stacks=True)


def _where(answer: Answer) -> str:
    if answer.outcome.placement is None:
        return f"fits no node: {why(answer)}"
    return placed_text(answer)
