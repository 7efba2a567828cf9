"""Writes docs/reference/events.md: events on pods and nodes, and what a node answers kubelet.

Event reasons and codes come from the code that uses them; what is said of each stands here. Reasons
are found as constants of the services, so one that is new and has no words is an error. Why a
scheduler refuses is on another page, written from the core's catalogue.
"""
# ruff: noqa: INP001 - a script beside the page, no package

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from gpucore.node.denial import DenialCode
from gpucore.node.reconcile import ADOPTED, CORRECTED
from gpudeviceplugin import announce, usage

PAGE = Path(__file__).resolve().parents[1] / "reference" / "events.md"
HEAD: Final = """\
# Events and answers of nodes

Made by `python docs/generators/eventpage.py` from the code. Why the scheduler refuses a node, which
is in the event `FailedScheduling`, is in [reason codes](../reason-codes.md).

"""
TAIL: Final = """\
kubelet fails such a pod with `UnexpectedAdmissionError` and the plugin's sentence; its controller
makes a new one. The metric `gpushare_plugin_refusals_total` counts codes.
"""
PLACED, PLACEMENT_FAILED = "GpuPlaced", "GpuPlacementFailed"
EVENTS: Final[Mapping[str, tuple[str, str]]] = {
    PLACED: ("pod", "The extender bound it; the message says to which cards."),
    PLACEMENT_FAILED: ("pod", "The bind was refused, mostly by a race; the scheduler tries again."),
    CORRECTED: ("pod", "kubelet has it on other cards than annotated; the annotations follow."),
    ADOPTED: ("pod", "It came past the extender; the annotations now say where it is."),
    usage.OVERUSED: ("pod", "Its processes use more of the card than was granted."),
    announce.UNHEALTHY: ("node and the pods of the card", "The card is withdrawn; why is said."),
    announce.RECOVERED: ("node and the pods of the card", "The card is offered again."),
    announce.DAEMON_FAILED: (
        "node and the pods of the card",
        "The card's MPS daemon does not answer; no new pods until it does.",
    ),
    announce.DAEMON_SERVES: ("node and the pods of the card", "The MPS daemon answers again."),
    announce.ISOLATION: ("node", "What was asked of isolation and cannot be, or not yet."),
}
ANSWERS: Final[Mapping[DenialCode, str]] = {
    DenialCode.UNKNOWN_DEVICE: "kubelet names a device that the plugin does not have.",
    DenialCode.UNHEALTHY: "The card is unhealthy.",
    DenialCode.SPANS_CARDS: "The devices are of several cards, and the pod asked for one.",
    DenialCode.SPLITS_POD: "The pod's other containers are on another card.",
    DenialCode.TAKEN_WHOLE: "A pod has the card whole.",
    DenialCode.SHARED_CARD: "Shares are on the card, so it cannot be given away whole.",
    DenialCode.NO_CARD_FITS: "No card has room for all that the pod asks.",
    DenialCode.RUNG_MISSING: "The card cannot enforce shares in the way that the pod demands.",
    DenialCode.MAX_PODS: "The card holds as many pods as it may.",
    DenialCode.DEVICE_IN_USE: "A running pod has the device; kubelet lost its record of that.",
}


def page() -> str:
    """The page as it should be.

    Raises:
        KeyError: a code of the node has no words.
    """
    events = (f"| `{reason}` | {where} | {words} |" for reason, (where, words) in EVENTS.items())
    answers = (f"| `{code}` | {ANSWERS[code]} |" for code in DenialCode)
    return HEAD + "\n".join(
        [
            *_table("Events", ("reason", "on", "what it says"), events),
            "",
            *_table("Answers of a node", ("code", "why kubelet is given nothing"), answers),
            "",
            TAIL,
        ]
    )


def _table(title: str, heads: Iterable[str], rows: Iterable[str]) -> list[str]:
    names = list(heads)
    return [f"## {title}", "", f"| {' | '.join(names)} |", "|---" * len(names) + "|", *rows]


if __name__ == "__main__":
    PAGE.write_text(page())
