"""Capacity that a preemption frees is reserved for the nominated pod.

kube-scheduler nominates a node for a pod that evicts others there and counts the nominated pod when
it judges pods of the same or a lower priority. It does so for resources of the node as a whole;
here the same is done for each GPU.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.kubescheduler.node_fit import constraint_refusals
from gpucore.model import Allocation, AllocationState, FitError, Placement, PodRequest
from gpucore.model.constraints import CPU, CandidateNode, PodConstraints
from gpucore.scheduling.candidates import Candidates, PodRequirements
from gpucore.scheduling.fit import fit
from gpucore.scheduling.host_rooms import MEMORY
from gpucore.scheduling.pending_pods import NominatedPod, Nominations
from gpucore.scheduling.policy import place
from gpucore.units import NodeName
from gpucore.wire.pod.spec import Pod

Nominated = Mapping[NodeName, Sequence[NominatedPod]]
NONE_NOMINATED: Final[Nominated] = MappingProxyType({})


class CandidatesBesideNominated(Candidates, frozen=True):
    """The nodes that a pod could go to, beside the pods that are nominated to them.

    Attributes:
        nominated: pods of each node whose requests take precedence over the pod.
    """

    nominated: Nominated = NONE_NOMINATED

    def refusal_of(
        self, node_info: NodeInfo, node: CandidateNode, pod: PodRequirements
    ) -> FitError | None:
        """Why a node does not admit the pod, the nominated pods last."""
        why = super().refusal_of(node_info, node, pod)
        held = self.nominated.get(node_info.name)
        if why is not None or not held:
            return why
        return host_refusal_beside(node_info, node, pod.constraints, held) or refusal_beside(
            node_info, pod.pod_request, held
        )

    def filled(self, node_info: NodeInfo) -> NodeInfo:
        """The allocations of a node with what the nominated pods are going to hold."""
        return node_beside(node_info, self.nominated.get(node_info.name, ()))


def reserved_for_nominated(
    nominations: Nominations, node_info: NodeInfo | None, pod: Pod, pod_request: PodRequest
) -> FitError | None:
    """Why a node with enough free GPUs refuses ``pod``."""
    if node_info is None:
        return None
    held = nominations.before(node_info.name, pod)
    return refusal_beside(node_info, pod_request, held) if held else None


def refusal_beside(
    node_info: NodeInfo, pod_request: PodRequest, nominated: Collection[NominatedPod]
) -> FitError | None:
    """Why a node, which stays as it is, cannot take a pod beside those nominated for it."""
    refusal = fit(filled_by(node_info, nominated), pod_request)
    if refusal is None:
        return None
    return msgspec.structs.replace(refusal, reserved_for=len(nominated))


def host_refusal_beside(
    node_info: NodeInfo,
    node: CandidateNode,
    constraints: PodConstraints,
    nominated: Sequence[NominatedPod],
) -> FitError | None:
    """Why kube-scheduler rejects a node that admits a pod: it counts the nominated pods as well."""
    refusal = next(constraint_refusals(host_beside(node_info, node, nominated), constraints), None)
    return refusal and msgspec.structs.replace(refusal, reserved_for=len(nominated))


def host_beside(
    node_info: NodeInfo, node: CandidateNode, nominated: Iterable[NominatedPod]
) -> CandidateNode:
    """The node with what the nominated pods request besides GPUs.

    Those with a place in ``node_info`` count in ``node`` already.
    """
    for one in nominated:
        if not _has_place(node_info, one):
            request = one.pod_request
            node = node.plus(((CPU, request.cpu_milli), (MEMORY, request.memory_mib << 20)))
    return node


def node_beside(node_info: NodeInfo, nominated: Sequence[NominatedPod]) -> NodeInfo:
    """The node on which to place a pod beside those nominated for it; itself without any."""
    return filled_by(node_info, nominated) if nominated else node_info


def filled_by(node_info: NodeInfo, nominated: Iterable[NominatedPod]) -> NodeInfo:
    """A copy of a node with what the pods nominated for it are going to hold.

    A nominated pod whose bind is under way holds GPUs already, and keeps these. So does one of a
    PodGroup that has a plan with a place for the pod on this node.
    """
    filled = node_info.copy()
    for one in sorted(nominated, key=lambda one: -one.priority):
        if not _has_place(filled, one):
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


def _has_place(node_info: NodeInfo, pod: NominatedPod) -> bool:
    return bool(node_info.allocations.keys() & {pod.uid, pod.place})


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
