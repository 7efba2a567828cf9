"""The reasons why a request does not fit: code, meaning, and what to do about it.

``docs/reason-codes.md`` is written from here, and a test fails when the two differ.
"""

from enum import StrEnum
from typing import Final, Self


class Code(StrEnum):
    """Why a GPU or a node cannot take a request.

    Attributes:
        sentence: what is the case.
        remedy: what an operator or a user can do.
    """

    sentence: str
    remedy: str

    def __new__(cls, value: str, sentence: str, remedy: str) -> Self:
        """A code that equals its text."""
        code = str.__new__(cls, value)
        code._value_ = value
        code.sentence, code.remedy = sentence, remedy
        return code

    INVALID_REQUEST = (
        "InvalidRequest",
        "No node can ever satisfy the request.",
        "Correct the pod's limits, label or annotation that the reason names and create it again.",
    )
    NOT_SHARED = (
        "NotShared",
        "The node does not offer the requested resource.",
        "Label the node gpushare=true (or gputopology=true) and check that the device plugin runs.",
    )
    NODE_UNKNOWN = (
        "NodeUnknown",
        "The extender has not received a node with this name.",
        "If the node is new, wait for the watch event; otherwise check the extender's readiness.",
    )
    NO_INVENTORY = (
        "NoInventory",
        "The node offers GPU memory, but its number of GPUs is unknown.",
        "Check that the device plugin runs on the node and may patch its annotations.",
    )
    PLUGIN_AWAY = (
        "PluginAway",
        "The device plugin of the node is stopped or not registered with kubelet.",
        (
            "Wait: after an upgrade it restarts within seconds and kube-scheduler "
            "retries the pod. If it stays "
            "away, check its pod on that node."
        ),
    )
    INSUFFICIENT_MEMORY = (
        "InsufficientMemory",
        "No GPU has enough free memory, although GPUs of that size exist on the node.",
        "Wait for a pod to end, request less, or add a node; the figures show how much is missing.",
    )
    INSUFFICIENT_CORE = (
        "InsufficientCore",
        "No GPU with enough free memory has enough free compute.",
        "Request a smaller percentage, or wait for a pod to end.",
    )
    INSUFFICIENT_GPUS = (
        "InsufficientGpus",
        "The node has too few GPUs that are entirely free.",
        "Wait, request fewer GPUs, or pack shares on fewer nodes with the binpack policy.",
    )
    UNHEALTHY = (
        "Unhealthy",
        "The GPU is unhealthy, by NVML or by the ConfigMap unhealthy-gpu-<node>.",
        (
            "Read the node's events for the reason; the GPU is offered again once it works, after "
            "some XIDs only after a reset."
        ),
    )
    TAKEN_WHOLE = (
        "TakenWhole",
        "A pod uses the GPU exclusively.",
        "Wait for that pod to end.",
    )
    SHARED_GPU = (
        "SharedGpu",
        "The GPU has shares, so it cannot be allocated exclusively.",
        "Wait for those pods to end, or request a share.",
    )
    MAX_PODS = (
        "MaxPods",
        "The GPU has reached its maximum number of pods.",
        "Raise the node's label ack.node.gpu.max-pod; 48 is the limit of MPS, 1 of a MIG instance.",
    )
    TOO_LARGE = (
        "TooLarge",
        "The request exceeds the memory of every GPU of the node.",
        (
            "Check the unit (GiB or MiB), or spread the pod over GPUs with the label "
            "aliyun.com/gpu-count (the prefix is that of the resources)."
        ),
    )
    UNEVEN_SPLIT = (
        "UnevenSplit",
        "The amount does not divide evenly over the requested number of GPUs.",
        "Request a multiple of the label gpu-count.",
    )
    ISOLATION_MODE_MISSING = (
        "IsolationModeMissing",
        "The GPU does not have the isolation mode that the pod demands.",
        (
            "Turn that mode on for the node, or drop the pod's annotation gpushare/isolation; "
            "shares over several GPUs need GPUs without MPS."
        ),
    )
    MIG_INSTANCE = (
        "MigInstance",
        "The GPU is a MIG instance, and a process uses no GPU beside a MIG instance.",
        (
            "Request one GPU in each container and no label gpu-count, or turn MIG mode off on the "
            "GPUs of a node."
        ),
    )
    PENDING_UNITS = (
        "PendingUnits",
        "Pods on the node have allocations on unknown GPUs, so the free capacity is uncertain.",
        "Schedule those pods through the extender; it ends once the plugin has corrected them.",
    )
    PENDING_COMPUTE = (
        "PendingCompute",
        "Pods on the node have compute on unknown GPUs, so the free compute is uncertain.",
        "Schedule those pods through the extender; it ends once the plugin has corrected them.",
    )
    GANG = (
        "GangWaits",
        "All pods of a gang are placed together: some do not exist yet, or do not fit.",
        "Create all pods of the gang, free GPUs, or request fewer; the message states which.",
    )
    COMPUTE_TOO_LARGE = (
        "ComputeTooLarge",
        "The pod requests more than 100 percent of the compute of one GPU.",
        (
            "Request at most 100 percent, or spread the pod over GPUs with the label "
            "aliyun.com/gpu-count (the prefix is that of the resources)."
        ),
    )
    NODE_UNSCHEDULABLE = (
        "NodeUnschedulable",
        "The node is cordoned or not ready, so the scheduler places no new pods there.",
        "Uncordon the node (kubectl uncordon), or find out why its kubelet is not ready.",
    )
    TAINT_NOT_TOLERATED = (
        "TaintNotTolerated",
        "The node has a taint that the pod does not tolerate.",
        "Add a toleration to the pod, or remove the taint from the node.",
    )
    NODE_AFFINITY = (
        "NodeAffinityMismatch",
        "The node does not match the pod's nodeSelector or required node affinity.",
        "Correct the pod's nodeSelector or affinity, or label the node.",
    )
    INSUFFICIENT_RESOURCES = (
        "InsufficientResources",
        "The node has too little cpu, memory or another resource left for the pod's requests.",
        "Wait for a pod to end, request less, or add a node; kubectl describe node shows the sums.",
    )
    NO_RESOURCE_SLICE = (
        "NoResourceSlice",
        "The node publishes no ResourceSlice of gpushare, so it offers no GPUs as claims.",
        "Label the node gpushare/api=claims and check that the node agent runs there.",
    )
    SELECTOR = (
        "SelectorMismatch",
        "No GPU matches the selectors of the DeviceClass and of the claim.",
        "Correct the selector that the reason names, or add a node with such GPUs.",
    )
    DEVICE_CONSTRAINT = (
        "DeviceConstraint",
        "GPUs of the node fit one by one, but not together under the constraints of the claim.",
        "Drop the constraint that the reason names, request fewer GPUs, or wait for a pod to end.",
    )


COUNTING: Final = frozenset({Code.INSUFFICIENT_GPUS, Code.MIG_INSTANCE})
"""Codes whose figures are numbers of GPUs: too few fit, however much each GPU has."""
