"""The catalogue of reason codes: the meaning of each and what to do about it.

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
        "No node can ever satisfy the request.",
        "Correct the pod's limits, label or annotation that the reason names and create it again.",
    ),
    Entry(
        Code.NOT_SHARED,
        "The node does not offer the requested resource.",
        "Label the node gpushare=true (or gputopology=true) and check that the device plugin runs.",
    ),
    Entry(
        Code.NODE_UNKNOWN,
        "The extender has not received a node with this name.",
        "If the node is new, wait for the watch event; otherwise check the extender's readiness.",
    ),
    Entry(
        Code.NO_INVENTORY,
        "The node offers GPU memory, but its number of GPUs is unknown.",
        "Check that the device plugin runs on the node and may patch its annotations.",
    ),
    Entry(
        Code.PLUGIN_AWAY,
        "The device plugin of the node is stopped or not registered with kubelet.",
        "Wait: after an upgrade it restarts within seconds and kube-scheduler "
        "retries the pod. If it stays "
        "away, check its pod on that node.",
    ),
    Entry(
        Code.INSUFFICIENT_MEMORY,
        "No GPU has enough free memory, although GPUs of that size exist on the node.",
        "Wait for a pod to end, request less, or add a node; the figures show how much is missing.",
    ),
    Entry(
        Code.INSUFFICIENT_CORE,
        "No GPU with enough free memory has enough free compute.",
        "Request a smaller percentage, or wait for a pod to end.",
    ),
    Entry(
        Code.INSUFFICIENT_GPUS,
        "The node has too few GPUs that are entirely free.",
        "Wait, request fewer GPUs, or pack shares on fewer nodes with the binpack policy.",
    ),
    Entry(
        Code.UNHEALTHY,
        "The GPU is unhealthy, by NVML or by the ConfigMap unhealthy-gpu-<node>.",
        "Read the node's events for the XID; the GPU is offered again after successful probes.",
    ),
    Entry(
        Code.TAKEN_WHOLE,
        "A pod uses the GPU exclusively.",
        "Wait for that pod to end.",
    ),
    Entry(
        Code.SHARED_GPU,
        "The GPU has shares, so it cannot be allocated exclusively.",
        "Wait for those pods to end, or request a share.",
    ),
    Entry(
        Code.MAX_PODS,
        "The GPU has reached its maximum number of pods.",
        "Raise the node's label ack.node.gpu.max-pod; 48 is the limit of MPS, 1 of a MIG instance.",
    ),
    Entry(
        Code.TOO_LARGE,
        "The request exceeds the memory of every GPU of the node.",
        "Check the unit (GiB or MiB), or spread the pod over GPUs with the label gpu-count.",
    ),
    Entry(
        Code.UNEVEN_SPLIT,
        "The amount does not divide evenly over the requested number of GPUs.",
        "Request a multiple of the label gpu-count.",
    ),
    Entry(
        Code.ISOLATION_MODE_MISSING,
        "The GPU does not have the isolation mode that the pod demands.",
        "Turn that mode on for the node, or drop the pod's annotation gpushare/isolation; "
        "shares over several GPUs need GPUs without MPS.",
    ),
    Entry(
        Code.PENDING_UNITS,
        "Pods on the node have allocations on unknown GPUs, so the free capacity is uncertain.",
        "Schedule those pods through the extender; it ends once the plugin has corrected them.",
    ),
    Entry(
        Code.GANG,
        "All pods of a gang are placed together: some do not exist yet, or do not fit.",
        "Create all pods of the gang, free GPUs, or request fewer; the message states which.",
    ),
    Entry(
        Code.COMPUTE_TOO_LARGE,
        "The pod requests more than 100 percent of the compute of one GPU.",
        "Request at most 100 percent, or spread the pod over GPUs with the label gpu-count.",
    ),
    Entry(
        Code.NODE_UNSCHEDULABLE,
        "The node is cordoned or not ready, so the scheduler places no new pods there.",
        "Uncordon the node (kubectl uncordon), or find out why its kubelet is not ready.",
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
    Entry(
        Code.NO_RESOURCE_SLICE,
        "The node publishes no ResourceSlice of gpushare, so it offers no GPUs as claims.",
        "Label the node gpushare/api=claims and check that the node agent runs there.",
    ),
    Entry(
        Code.SELECTOR,
        "No GPU matches the selectors of the DeviceClass and of the claim.",
        "Correct the selector that the reason names, or add a node with such GPUs.",
    ),
    Entry(
        Code.DEVICE_CONSTRAINT,
        "GPUs of the node fit one by one, but not together under the constraints of the claim.",
        "Drop the constraint that the reason names, request fewer GPUs, or wait for a pod to end.",
    ),
)

CATALOGUE: Final = MappingProxyType({entry.code: entry for entry in _ENTRIES})
"""Every reason by its code."""


def catalogue_page() -> str:
    """The page of the documentation, as Markdown."""
    lines = [
        "# Reason codes",
        "",
        "Why a pod does not fit a node or a GPU. This page is generated from the code;",
        "`python -m gpucore.explain.catalogue` prints it.",
        "",
        "| code | what it means | what to do |",
        "|---|---|---|",
    ]
    lines += [f"| `{e.code}` | {e.sentence} | {e.remedy} |" for e in _ENTRIES]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(catalogue_page(), end="")
