"""What if such pods came: a form, and the core's answer."""

from collections.abc import Mapping, Sequence
from typing import Final

from gpucore.explain import placement_sentence
from gpucore.ledger import Ledger
from gpucore.units import PodUid
from gpucore.wire.podspec import Container, Pod
from gpuinspect.asking import Addition, Answer, ask
from gpuinspect.errors import InspectError
from gpuinspect.layout.whatif import why
from gpuinspect.manifests import Wanted
from gpuinspect.web.feed import Frame
from gpuinspect.web.markup import Markup, el, table

MOST: Final = 100  # pods and nodes in one question
LOOKS: Final = 20_000  # at a node for a pod: about a second, in which others wait
_FIELDS: Final = (
    ("mem", "Units of memory", 0, 1 << 20),
    ("core", "Percent of compute", 0, 100),
    ("gpus", "Whole cards", 0, 64),
    ("replicas", "How many pods", 1, MOST),
    ("add", "Nodes to add", 0, MOST),
)


def whatif(frame: Frame, query: Mapping[str, str]) -> Markup:
    """The form with its values kept, and the answer once something is asked."""
    return el("div", el("h1", "What if"), _form(frame, query), _result(frame, query))


def _form(frame: Frame, query: Mapping[str, str]) -> Markup:
    fields = [
        el(
            "label",
            f"{text} ",
            el("input", name=name, type="number", min=low, max=high, value=query.get(name, low)),
        )
        for name, text, low, high in _FIELDS
    ]
    like = query.get("like", "")
    options = [
        el("option", node.name, value=node.name, selected=node.name == like)
        for node in frame.view.nodes[:1000]
    ]
    chosen = el("label", "Made like ", el("select", options, name="like"))
    return el("form", fields, chosen, el("button", "Ask"), class_="fields")


def _result(frame: Frame, query: Mapping[str, str]) -> Markup | None:
    amounts = {name: _amount(query.get(name, ""), low, high) for name, _, low, high in _FIELDS}
    if not (amounts["mem"] or amounts["core"] or amounts["gpus"]):
        return None
    nodes = len(frame.view.nodes) + amounts["add"]
    pods = min(amounts["replicas"], max(LOOKS // max(nodes, 1), 1))
    wanted = Wanted(_pod(amounts, frame.ledger), pods)
    added = Addition(amounts["add"], query.get("like", "") if amounts["add"] else "")
    try:
        answers = ask(
            frame.snapshot,
            [wanted],
            frame.ledger,
            addition=added,
            policy=frame.policy,
            nodes=frame.candidates,
        )
    except InspectError as error:
        return el("p", str(error), class_="problem", role="alert")
    asked = f"Asked for {pods} of {amounts['replicas']} pods, because there are {nodes} nodes;"
    used = el("p", f"Policy: {frame.policy}.")
    short = el("p", asked, " gpushare whatif asks for any number.")
    return el("div", short if pods < amounts["replicas"] else None, _answers(answers), used)


def _amount(text: str, low: int, high: int) -> int:
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else low
    return min(max(value, low), high)


def _pod(amounts: Mapping[str, int], ledger: Ledger) -> Pod:
    names = ledger.names
    asked = ((names.gpu_mem, "mem"), (names.gpu_core, "core"), (names.gpu, "gpus"))
    limits = {resource: str(amounts[key]) for resource, key in asked if amounts[key]}
    return Pod(PodUid("wish"), "", "pod", containers=(Container("c", limits=limits),))


def _answers(answers: Sequence[Answer]) -> Markup:
    fitting = sum(answer.fits for answer in answers)
    rows = ((answer.outcome.name, _where(answer)) for answer in answers)
    return el(
        "section",
        el("h2", f"{fitting} of {len(answers)} pods fit"),
        table(("Pod", "Where"), rows, caption="Answer", stacks=True),
        role="status",
    )


def _where(answer: Answer) -> str:
    placement = answer.outcome.placement
    if placement is None:
        return f"fits nowhere: {why(answer)}"
    return placement_sentence(placement, answer.unit)
