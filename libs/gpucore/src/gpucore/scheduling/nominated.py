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
from gpucore.scheduling.policy import place
from gpucore.units import PodUid


class NominatedPod(msgspec.Struct, frozen=True):
    """A pod without a place for which others are evicted from a node."""

    uid: PodUid
    name: str
    pod_request: PodRequest
    priority: int = 0
    namespace: str = ""


def before(pods: Iterable[NominatedPod], uid: PodUid, priority: int) -> list[NominatedPod]:
    """The pods nominated to a node whose requests take precedence over another pod.

    Args:
        uid: of the other pod.
        priority: of the other pod.
    """
    return [one for one in pods if one.uid != uid and one.priority >= priority]


def refusal_beside(
    node_info: NodeInfo, pod_request: PodRequest, nominated: Iterable[NominatedPod]
) -> FitError | None:
    """Why a node cannot take ``demand`` beside the pods that are nominated for it.

    Args:
        account: state of the node, which stays as it is.
    """
    filled = node_info.copy()
    for one in sorted(nominated, key=lambda one: -one.priority):
        filled.put(_held(filled, one))
    return fit(filled, pod_request)


def _held(filled: NodeInfo, pod: NominatedPod) -> Allocation:
    """What the pod is going to hold: on the GPUs it fits now, else anywhere on the node."""
    pod_request = pod.pod_request
    placement = place(filled, pod_request)
    if not isinstance(placement, FitError):
        alone = pod_request.whole_device
        return Allocation(
            pod.uid, "", pod.name, AllocationState.RESERVED, placement, exclusive=alone
        )
    return Allocation(
        pod.uid,
        "",
        pod.name,
        AllocationState.RESERVED,
        Placement(filled.name),
        pending=pod_request.mem,
        pending_core=pod_request.core,
        pending_gpus=pod_request.gpus,
        unit=filled.unit,
    )
