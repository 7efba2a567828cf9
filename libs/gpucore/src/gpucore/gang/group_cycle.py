"""What was answered to the pods of one PodGroup, in this cycle of kube-scheduler and before."""

from collections import deque
from collections.abc import Collection, Mapping
from typing import Final

from gpucore.gang.group_offers import GroupOffers
from gpucore.gang.node_sets import NodeSets
from gpucore.gang.values import Refused
from gpucore.model import Allocation
from gpucore.units import NodeName, PodUid

SIMULATIONS: Final = 8
"""Earlier answers that are remembered: kube-scheduler may try several sets of nodes in a cycle."""

Places = Mapping[PodUid, Allocation]


class GroupCycle:
    """What was answered to the pods of one group.

    Attributes:
        answered: the places that the current cycle was given.
        earlier: those of cycles before, and of other sets of nodes.
        offers: the nodes that its pods were offered.
        again: places of the cycle before were not enough, so all are planned anew.
        in_vain: number of plans in this cycle without a place for the pod that was called.
        shortage: why the whole group is refused, and in which state of the cluster, if it is
            refused.
        binding: kube-scheduler binds the pods, so the answers hold until they are bound.
        accepted_ns: when that began.
        scheduled: kube-scheduler had placed the group before this cycle.
        called_ns: when the last call came.
    """

    def __init__(self, sets: NodeSets) -> None:
        self.scheduled = False
        self.answered: dict[PodUid, Allocation] = {}
        self.earlier: deque[Places] = deque(maxlen=SIMULATIONS)
        self.offers = GroupOffers(sets)
        self.again = False
        self.in_vain = 0
        self.shortage: tuple[Refused, int] | None = None
        self.refused: set[PodUid] = set()
        self.binding = False
        self.accepted_ns = 0
        self.called_ns = 0

    def called(
        self, uid: PodUid, waiting: Collection[PodUid], now_ns: int, *, scheduled: bool
    ) -> None:
        """Filter is called for a pod; a second call for it begins another cycle."""
        self.called_ns = now_ns
        self.answered = {key: one for key, one in self.answered.items() if key in waiting}
        self.scheduled = scheduled and (self.scheduled or not self.answered)
        self.binding = self.binding and bool(self.answered)
        again = uid in self.answered and not self.binding
        if uid in self.refused or again:
            self.again = bool(self.refused) and not self.binding
            self.refused.clear()
            self.offers.begin()
            self.shortage, self.in_vain = None, 0
        if again:
            self.earlier.append(self.answered)
            self.answered = {}

    def accept(self, now_ns: int) -> None:
        """kube-scheduler binds the pods; later calls and binds do not renew the time."""
        if not self.binding:
            self.binding, self.accepted_ns = True, now_ns

    def answers_for(self, uid: PodUid, node: NodeName) -> Places | None:
        """The newest answers in which the pod was sent to ``node``."""
        found = (self.answered, *reversed(self.earlier))
        return next((one for one in found if uid in one and one[uid].placement.node == node), None)
