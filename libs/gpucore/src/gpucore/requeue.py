"""Which waiting pods a node has room for now, of those that it was refused to.

A scheduler tries a refused pod again only when it hears of something new. Whoever refused the pod
by an older view of the cluster has to say so once its own view changes, or the pod waits for
minutes beside a free GPU.
"""

from collections.abc import Iterable

import msgspec

from gpucore.account import NodeAccount
from gpucore.model import Claim, ClaimState, Demand, Refusal
from gpucore.policy import place
from gpucore.units import PodUid


class RefusedPod(msgspec.Struct, frozen=True):
    """A pod that no node could take.

    Attributes:
        creation: RFC 3339 time.
    """

    uid: PodUid
    demand: Demand
    priority: int = 0
    creation: str = ""

    @property
    def rank(self) -> tuple[int, str, PodUid]:
        """The order in which pods are tried: highest priority first, then the oldest."""
        return -self.priority, self.creation, self.uid


def fitting(account: NodeAccount, pods: Iterable[RefusedPod]) -> list[PodUid]:
    """The pods that a node can take together, in the order given.

    Args:
        account: state of the node, which stays as it is.
    """
    books, found = account, list[PodUid]()
    hopeless: set[Demand] = set()
    for pod in pods:
        if pod.demand in hopeless:
            continue
        placement = place(books, pod.demand)
        if isinstance(placement, Refusal):
            hopeless.add(pod.demand)  # the node only fills up from here
            continue
        books = account.copy() if books is account else books
        alone = pod.demand.whole_device
        books.put(Claim(pod.uid, "", "", ClaimState.ASSUMED, placement, exclusive=alone))
        found.append(pod.uid)
    return found
