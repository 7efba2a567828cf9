"""Capacity that a preemption frees is reserved for the nominated pod.

kube-scheduler nominates a node for a pod that evicts others there and counts the nominated pod when
it judges pods of the same or a lower priority. It does so for resources of the node as a whole;
here the same is done for each GPU.
"""

from collections.abc import Iterable

import msgspec

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Allocation, AllocationState, FitError, Placement, PodRequest
from gpucore.scheduling.fit import fit
from gpucore.scheduling.pending_pods import NominatedPod, Nominations
from gpucore.scheduling.policy import place
from gpucore.wire.pod.spec import Pod


def reserved_for_nominated(
    nominations: Nominations, node_info: NodeInfo | None, pod: Pod, pod_request: PodRequest
) -> tuple[FitError, tuple[str, ...]] | None:
    """Why a node with enough free GPUs refuses ``pod``, and names of pods that keep them."""
    if node_info is None:
        return None
    held = nominations.before(node_info.name, pod)
    refusal = refusal_beside(node_info, pod_request, held) if held else None
    if refusal is None:
        return None
    return refusal, tuple(sorted(one.name for one in held))


def refusal_beside(
    node_info: NodeInfo, pod_request: PodRequest, nominated: Iterable[NominatedPod]
) -> FitError | None:
    """Why a node, which stays as it is, cannot take a pod beside those nominated for it."""
    filled = node_info.copy()
    for one in sorted(nominated, key=lambda one: -one.priority):
        filled.put(_held(filled, one))
    return fit(filled, pod_request)


def _held(filled: NodeInfo, pod: NominatedPod) -> Allocation:
    """What the pod is going to hold: on the GPUs it fits now, else anywhere on the node."""
    request = pod.pod_request
    held = Allocation(pod.uid, "", pod.name, AllocationState.RESERVED, Placement(filled.name))
    placement = place(filled, request)
    if isinstance(placement, FitError):
        return msgspec.structs.replace(
            held, pending=request.mem, pending_core=request.core, pending_gpus=request.gpus
        )
    return msgspec.structs.replace(held, placement=placement, exclusive=request.whole_device)
