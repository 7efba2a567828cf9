"""The catalogue of reason codes: what each means and what to do about it.

``docs/reason-codes.md`` is written from here, and a test fails when the two differ.
"""

from types import MappingProxyType
from typing import Final

import msgspec

from gpucore.model import Code


class Entry(msgspec.Struct, frozen=True):
    """One reason.

    Attributes:
        sentence: what is the case.
        remedy: what an operator or a user can do.
    """

    code: Code
    sentence: str
    remedy: str


_ENTRIES: Final = (
    Entry(
        Code.INVALID_REQUEST,
        "The pod asks for something that no node could ever give.",
        "Correct the pod's limits, label or annotation that the reason names and create it again.",
    ),
    Entry(
        Code.NOT_SHARED,
        "The node does not offer the resource that the pod asks for.",
        "Label the node gpushare=true (or gputopology=true) and see that the device plugin runs.",
    ),
    Entry(
        Code.NODE_UNKNOWN,
        "The extender does not know a node of this name.",
        "If the node is new, wait for the watch; if not, look at the extender's readiness.",
    ),
    Entry(
        Code.NO_INVENTORY,
        "The node offers GPU memory, but nothing says on how many cards.",
        "See that the device plugin runs there and may write the node's annotations.",
    ),
    Entry(
        Code.PLUGIN_AWAY,
        "The device plugin of the node is stopped or not registered with kubelet.",
        "Wait: after an upgrade it is back within seconds and the pod is tried again. If it stays "
        "away, look at its pod on that node.",
    ),
    Entry(
        Code.INSUFFICIENT_MEMORY,
        "No card has enough free memory, though cards of that size exist on the node.",
        "Wait for a pod to end, ask for less, or add a node; the figures say how much is missing.",
    ),
    Entry(
        Code.INSUFFICIENT_CORE,
        "No card that has the memory has enough free compute.",
        "Ask for a smaller percentage, or wait for a pod to end.",
    ),
    Entry(
        Code.INSUFFICIENT_GPUS,
        "The node has too few cards that are entirely free.",
        "Wait, ask for fewer cards, or keep shares on fewer nodes with the binpack policy.",
    ),
    Entry(
        Code.UNHEALTHY,
        "The card is unhealthy: NVML or the ConfigMap unhealthy-gpu-<node> withdraws it.",
        "Read the node's events for the XID; the card comes back by itself after clean probes.",
    ),
    Entry(
        Code.TAKEN_WHOLE,
        "A pod has the card whole, or to itself.",
        "Wait for that pod to end.",
    ),
    Entry(
        Code.SHARED_CARD,
        "Shares are on the card, so it cannot be given away whole.",
        "Wait for those pods to end, or ask for a share.",
    ),
    Entry(
        Code.MAX_PODS,
        "The card holds as many pods as it may.",
        "Raise the node's label ack.node.gpu.max-pod; 48 is the limit of MPS, 1 of a MIG instance.",
    ),
    Entry(
        Code.TOO_LARGE,
        "The pod asks for more than a whole card of this node.",
        "Check the unit (GiB or MiB), or spread the pod over cards with the label gpu-count.",
    ),
    Entry(
        Code.UNEVEN_SPLIT,
        "The amount does not divide evenly over the number of cards that the pod asks for.",
        "Ask for a multiple of the label gpu-count.",
    ),
    Entry(
        Code.RUNG_MISSING,
        "The card cannot enforce shares in the way that the pod demands.",
        "Turn MPS on for the node, or drop the pod's annotation gpushare/isolation; "
        "shares over several cards need cards without MPS.",
    ),
    Entry(
        Code.PENDING_UNITS,
        "Pods on the node hold amounts on unknown cards, so what looks free may not be.",
        "See that those pods go through the extender; once the plugin has placed them this passes.",
    ),
    Entry(
        Code.GANG,
        "All pods of a gang are placed together: some do not exist, or have no room.",
        "Create all pods of the gang, free room, or ask for fewer; the sentence says which.",
    ),
    Entry(
        Code.COMPUTE_TOO_LARGE,
        "The pod requests more than 100 percent of the compute of one GPU.",
        "Request at most 100 percent, or spread the pod over GPUs with the label gpu-count.",
    ),
    Entry(
        Code.NODE_UNSCHEDULABLE,
        "The node is cordoned or not ready, so the scheduler places no new pods there.",
        "kubectl uncordon the node, or see why its kubelet is not ready.",
    ),
    Entry(
        Code.TAINT_NOT_TOLERATED,
        "The node has a taint that the pod does not tolerate.",
        "Add a toleration to the pod, or remove the taint from the node.",
    ),
    Entry(
        Code.NODE_AFFINITY,
        "The node does not match the pod's nodeSelector or required node affinity.",
        "Correct the pod's nodeSelector or affinity, or label the node.",
    ),
    Entry(
        Code.INSUFFICIENT_RESOURCES,
        "The node has too little cpu, memory or another resource left for the pod's requests.",
        "Wait for a pod to end, request less, or add a node; kubectl describe node shows the sums.",
    ),
)

CATALOGUE: Final = MappingProxyType({entry.code: entry for entry in _ENTRIES})
"""Every reason by its code."""


def catalogue_page() -> str:
    """The page of the documentation, as Markdown."""
    lines = [
        "# Reason codes",
        "",
        "Why a node or a card cannot take a pod. This page is written from the code;",
        "`python -m gpucore.catalogue` prints it.",
        "",
        "| code | what it means | what to do |",
        "|---|---|---|",
    ]
    lines += [f"| `{e.code}` | {e.sentence} | {e.remedy} |" for e in _ENTRIES]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(catalogue_page(), end="")
