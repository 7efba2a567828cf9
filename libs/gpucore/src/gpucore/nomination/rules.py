"""Rules of nominating: which pending pods, which of their nominations stand, who gives way to whom.

kube-scheduler evaluates ``status.nominatedNodeName`` first and, where the pod fits there, no other
node. A nomination is a hint for kube-scheduler and a reservation in the ledger for everyone else.
"""

from collections.abc import Iterable, Sequence

from gpucore.accounting.node_info import NodeInfo
from gpucore.model.constraints import MOST_COMPARED, CandidateNode
from gpucore.scheduling.candidates import PodRequirements
from gpucore.scheduling.fit import admit
from gpucore.scheduling.nominated import node_beside
from gpucore.scheduling.pending_pods import NominatedPod
from gpucore.units import PodUid
from gpucore.wire.pod.spec import Pod


def left_to_scheduler(pod: Pod) -> str:
    """Why a pending pod is not nominated, in words; empty where it may be."""
    if pod.constraints is None:
        return "its constraints were not read"
    if pod.gated or pod.terminating:
        return "it has scheduling gates" if pod.gated else "it is being deleted"
    if pod.pod_group:
        return "its scheduler evaluates all nodes for its PodGroup"
    if pod.constraints.size > MOST_COMPARED:
        return "it has too many constraints"
    return ", ".join(pod.constraints.unsupported)


def nomination_stands(
    node_info: NodeInfo, node: CandidateNode, pod: PodRequirements, uid: PodUid
) -> bool:
    """Whether the node admits the pod in the place that is reserved for it there."""
    without = node_info.copy()
    without.drop(uid)
    return (
        admit(
            without,
            pod.pod_request,
            node.plus(pod.constraints.requests, pods=-1),
            pod.constraints,
        )
        is None
    )


def giving_way(
    node_info: NodeInfo,
    node: CandidateNode,
    pod: PodRequirements,
    lower: Iterable[tuple[PodUid, PodRequirements]],
    nominated: Sequence[NominatedPod] = (),
) -> Sequence[PodUid]:
    """Nominated pods that lose the node to one of higher priority; empty where that is no help.

    Args:
        lower: nominated pods of lower priority on this node, those to lose it first in front.
        nominated: pods of the same or a higher priority that other components nominated to it.
    """
    without, given_up = node_info.copy(), list[PodUid]()
    for uid, other in lower:
        without.drop(uid)
        node = node.plus(other.constraints.requests, pods=-1)
        given_up.append(uid)
        free = node_beside(without, nominated)
        if admit(free, pod.pod_request, node, pod.constraints) is None:
            return given_up
    return ()
