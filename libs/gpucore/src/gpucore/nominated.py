"""Room that a preemption makes is kept for the pod it is made for.

kube-scheduler nominates a node for a pod that evicts others there and counts the nominated pod when
it judges pods of the same or a lower priority. It does so for resources of the node as a whole;
here the same is done for each GPU.
"""

from collections.abc import Iterable

import msgspec

from gpucore.account import NodeAccount
from gpucore.fit import fit
from gpucore.model import Claim, ClaimState, Demand, Placement, Refusal
from gpucore.policy import place
from gpucore.units import PodUid


class NominatedPod(msgspec.Struct, frozen=True):
    """A pod without a place for which others are evicted from a node."""

    uid: PodUid
    name: str
    demand: Demand
    priority: int = 0


def before(pods: Iterable[NominatedPod], uid: PodUid, priority: int) -> list[NominatedPod]:
    """Of the pods that are nominated for a node, those that another pod must leave room for.

    Args:
        uid: of the other pod.
        priority: of the other pod.
    """
    return [one for one in pods if one.uid != uid and one.priority >= priority]


def refusal_beside(
    account: NodeAccount, demand: Demand, nominated: Iterable[NominatedPod]
) -> Refusal | None:
    """Why a node cannot take ``demand`` beside the pods that are nominated for it.

    Args:
        account: state of the node, which stays as it is.
    """
    books = account.copy()
    for one in sorted(nominated, key=lambda one: -one.priority):
        books.put(_held(books, one))
    return fit(books, demand)


def _held(books: NodeAccount, pod: NominatedPod) -> Claim:
    """What the pod is going to hold: on the GPUs it fits now, else anywhere on the node."""
    demand = pod.demand
    placement = place(books, demand)
    if not isinstance(placement, Refusal):
        alone = demand.whole_device
        return Claim(pod.uid, "", pod.name, ClaimState.RESERVED, placement, exclusive=alone)
    return Claim(
        pod.uid,
        "",
        pod.name,
        ClaimState.RESERVED,
        Placement(books.name),
        pending=demand.mem,
        pending_core=demand.core,
        pending_gpus=demand.gpus,
        unit=books.unit,
    )
