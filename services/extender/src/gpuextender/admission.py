"""What is wrong with a pod before it exists: one sentence to its author instead of a long wait.

Only what can never be right is refused. Being too large for every GPU that is there now is not
such a thing, for a larger node may come. Where the amount would fit if it were meant in MiB, the
author gets a warning, and the pod waits as it did with the original extender. A pod that requests
nothing of ours is refused only where it chooses GPUs by NVIDIA_VISIBLE_DEVICES. Pods of
``kube-system`` pass untouched.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.model import Demand
from gpucore.overrides import overrides
from gpucore.units import MIB
from gpucore.wire.names import Names
from gpucore.wire.pods import Container, Pod, demand_of

EXEMPT: Final = "kube-system"
DEFAULT_SCHEDULER: Final = "default-scheduler"
NVIDIA_GPU: Final = "nvidia.com/gpu"


class Verdict(msgspec.Struct, frozen=True):
    """What becomes of a pod.

    Attributes:
        refusal: why it is refused; empty lets it pass.
        scheduler: name to set; empty leaves it.
        warning: for its author; empty is none.
    """

    refusal: str = ""
    scheduler: str = ""
    warning: str = ""


def judge(
    pod: Pod, *, namespace: str, accounts: Iterable[NodeAccount], names: Names, scheduler: str
) -> Verdict:
    """Look at a pod that is about to be created.

    Args:
        namespace: of the request; the object may not say.
        accounts: books of all nodes; none while they are not known.
        scheduler: that knows our extender; empty where every scheduler does.

    Raises:
        WireError: an amount is no Kubernetes quantity.
    """
    if namespace == EXEMPT:
        return Verdict()
    demand = demand_of(pod, names)
    containers = (*pod.containers, *pod.init_containers)
    if refusal := override_refusal(containers, requests_gpus=demand is not None):
        return Verdict(refusal=refusal)
    if demand is None:
        return Verdict()
    if refusal := _refusal(pod, demand, names):
        return Verdict(refusal=refusal)
    return _steered(pod, scheduler, warning=_unit_mistake(demand, accounts, names))


def _steered(pod: Pod, scheduler: str, *, warning: str) -> Verdict:
    """The scheduler to set, or a warning where the pod names another."""
    if not scheduler or pod.node or pod.scheduler_name == scheduler:
        return Verdict(warning=warning)
    if pod.scheduler_name in {"", DEFAULT_SCHEDULER}:
        return Verdict(scheduler=scheduler, warning=warning)
    return Verdict(
        warning=f"scheduler {pod.scheduler_name} places this pod: "
        f"unless it calls the gpushare extender, use {scheduler}"
    )


def judge_debugging(pod: Pod, *, namespace: str, names: Names) -> Verdict:
    """Look at a pod to which an ephemeral container is added.

    Raises:
        WireError: an amount is no Kubernetes quantity.
    """
    if namespace == EXEMPT:
        return Verdict()
    asks = demand_of(pod, names) is not None
    return Verdict(refusal=override_refusal(pod.ephemeral_containers, requests_gpus=asks))


def override_refusal(containers: Iterable[Container], *, requests_gpus: bool) -> str:
    """Why containers are refused that would choose their GPU or widen their limit."""
    for name, variables in overrides(containers, requests_gpus=requests_gpus).items():
        return (
            f"container {name}: sets {' and '.join(variables)}, "
            "which would bypass the share: remove it"
        )
    return ""


def _refusal(pod: Pod, demand: Demand, names: Names) -> str:
    if demand.fault:
        return demand.fault
    if demand.mem % demand.cards or demand.core % demand.cards:
        return f"asks for an amount that does not divide over its {demand.cards} cards"
    requested = {name for box in (*pod.containers, *pod.init_containers) for name in box.limits}
    ours = requested & {names.gpu_mem, names.gpu_core, names.gpu}
    if ours and NVIDIA_GPU in requested:
        return f"requests {min(ours)} and {NVIDIA_GPU}, which would allocate GPUs twice: use one"
    return ""


def _unit_mistake(demand: Demand, accounts: Iterable[NodeAccount], names: Names) -> str:
    """The amount is too large for every card, and would fit if it were meant in MiB."""
    asked = demand.mem // demand.cards
    largest, fitting = 0, 0
    for account in accounts:
        largest = max(largest, account.shape.largest_card)
        if account.unit is not None and account.unit > MIB and asked >= account.unit.mib:
            needed = account.unit.units_for(asked)
            fitting = needed if needed <= account.shape.largest_card else fitting
    if largest and fitting and asked > largest:
        return (
            f"this pod requests {asked} {names.gpu_mem}, the largest GPU has {largest}: "
            f"if MiB were meant, request {fitting}"
        )
    return ""
