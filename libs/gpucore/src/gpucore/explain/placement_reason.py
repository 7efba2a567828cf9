"""Explains the placement of a bound pod, by repeating the choice with the current state.

The ledger has the current state, not that of the time when the pod was placed. A choice that would
differ now is reported; it is not a fault. The caller passes the policies of the extender.
"""

from typing import Final

from gpucore.accounting.node_info import NodeInfo, unit_of
from gpucore.explain.sentences import gpus_named, placement_sentence, sentence
from gpucore.model import Allocation, FitError, Placement, PodRequest
from gpucore.scheduling.device_fit import exclusive_devices
from gpucore.scheduling.grouping import BY_LINKS, Grouping
from gpucore.scheduling.policy import place, resolve
from gpucore.units import GpuIndex

_RULES: Final = {
    "binpack": "the fullest GPU that fits, the lowest index among equals",
    "spread": "the emptiest GPU that fits, the lowest index among equals",
    "fragmentation": "the GPU on which the least usable capacity is lost",
}


def why(
    allocation: Allocation,
    pod_request: PodRequest,
    node_info: NodeInfo,
    policy: str = "",
    *,
    grouping: Grouping = BY_LINKS,
) -> str:
    """A sentence about the pod's GPUs on its node; the node stays as it is.

    Args:
        allocation, pod_request: what the pod holds, and what it requests.
        node_info: the node it is on.
        policy, grouping: of the cluster, as in :func:`gpucore.scheduling.policy.place`.
    """
    without = node_info.copy()
    without.drop(allocation.uid)
    again = place(without, pod_request, policy, grouping=grouping)
    if isinstance(again, FitError):
        return f"it would not fit here now: {sentence(again)}"
    if pod_request.gpus:
        return _whole(allocation.placement.group, again.group, pod_request, without, grouping)
    name = resolve(without, pod_request, policy).name
    rule = _RULES[name]
    if _gpus(again) == _gpus(allocation.placement):
        return f"{name} would choose the same again: {rule}"
    other = placement_sentence(again, unit_of(node_info))
    return f"{name} would choose {other} now ({rule}); the usage of the GPUs has changed since then"


def _whole(
    mine: tuple[GpuIndex, ...],
    again: tuple[GpuIndex, ...],
    pod_request: PodRequest,
    without: NodeInfo,
    grouping: Grouping,
) -> str:
    matrix = without.shape.matrix
    name = pod_request.topology or f"{grouping.policy} (the default)"
    free = len(exclusive_devices(without.devices.values(), pod_request))
    choice = f"of the {free} GPUs that are free without this pod"
    if set(mine) == set(again):
        score = f"; they score {matrix.sum_of(mine)}" if matrix.links and mine[1:] else ""
        return f"{name} would choose the same {choice}{score}"
    if not matrix.links:
        return f"{name} would choose {gpus_named(again)} now, {choice}; the node reports no links"
    scores = f"they score {matrix.sum_of(again)}, its own {matrix.sum_of(mine)}"
    return f"{name} would choose {gpus_named(again)} now, {choice}: {scores}"


def _gpus(placement: Placement) -> frozenset[int]:
    return frozenset((*placement.mem, *placement.core))
