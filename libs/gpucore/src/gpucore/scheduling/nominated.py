"""Capacity that a preemption frees is reserved for the nominated pod.

kube-scheduler nominates a node for a pod that evicts others there and counts the nominated pod when
it judges pods of the same or a lower priority. It does so for resources of the node as a whole;
here the same is done for each GPU.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Allocation, AllocationState, FitError, Placement, PodRequest
from gpucore.scheduling.fit import fit
from gpucore.scheduling.pending_pods import NominatedPod, Nominations
from gpucore.scheduling.policy import place
from gpucore.units import NodeName
from gpucore.wire.pod.spec import Pod

Nominated = Mapping[NodeName, Sequence[NominatedPod]]
NONE_NOMINATED: Final[Nominated] = MappingProxyType({})


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
    return fit(filled_by(node_info, nominated), pod_request)


def node_beside(node_info: NodeInfo, nominated: Sequence[NominatedPod]) -> NodeInfo:
    """The node on which to place a pod beside those nominated for it; itself without any."""
    return filled_by(node_info, nominated) if nominated else node_info


def filled_by(node_info: NodeInfo, nominated: Iterable[NominatedPod]) -> NodeInfo:
    """A copy of a node with what the pods nominated for it are going to hold."""
    filled = node_info.copy()
    for one in sorted(nominated, key=lambda one: -one.priority):
        filled.put(_held(filled, one))
    return filled


def beside_nominated(
    ledger: Ledger,
    changed: Mapping[NodeName, NodeInfo],
    nominated: Nominated,
) -> dict[NodeName, NodeInfo]:
    """``changed`` and the nodes for which pods are nominated, with what these are going to hold."""
    found = dict(changed)
    for name, pods in nominated.items():
        node_info = changed.get(name) or ledger.node(name)
        if node_info is not None:
            found[name] = filled_by(node_info, pods)
    return found


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
