"""Nominations of pending pods: which are nominated, which nominations stand, and when again.

kube-scheduler evaluates ``status.nominatedNodeName`` first and, where the pod fits there, no other
node. A nomination is a hint for kube-scheduler and a reservation in the ledger for everyone else.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from gpucore.accounting.node_info import NodeInfo
from gpucore.model.constraints import MOST_COMPARED, CandidateNode
from gpucore.scheduling.candidates import PodRequirements
from gpucore.scheduling.fit import admit
from gpucore.scheduling.nominated import node_beside
from gpucore.scheduling.pending_pods import NominatedPod
from gpucore.units import PodUid
from gpucore.wire.pod.spec import Pod

REFUSED_SECONDS: Final = 0.1
"""kube-scheduler has usually written the status of a refused pod after this time."""
FIRST_SECONDS: Final = 0.25
LONGEST_SECONDS: Final = 30.0
FORGET_SECONDS: Final = 120.0
HOPELESS: Final = 3
"""Nominations that a pod may lose before it is taken for one that the scheduler cannot place."""
CALLS: Final = 64
IN_ORDER: Final = 64
"""Nominations ahead of a scheduler that takes pods in order."""


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
    return _admits(without, node.plus(pod.constraints.requests, pods=-1), pod, ())


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
    without, given_up = node_info.copy(), dict[PodUid, PodRequirements]()
    for uid, other in lower:
        without.drop(uid)
        node = node.plus(other.constraints.requests, pods=-1)
        given_up[uid] = other
        if _admits(without, node, pod, nominated):
            break
    else:
        return ()
    for uid, other in reversed(list(given_up.items())[:-1]):  # one on another GPU makes no room
        without.put(node_info.allocations[uid])
        beside = node.plus(other.constraints.requests)
        if _admits(without, beside, pod, nominated):
            node = beside
            del given_up[uid]
        else:
            without.drop(uid)
    return list(given_up)


def _admits(
    node_info: NodeInfo,
    node: CandidateNode,
    pod: PodRequirements,
    nominated: Sequence[NominatedPod],
) -> bool:
    free = node_beside(node_info, nominated)
    return admit(free, pod.pod_request, node, pod.constraints) is None


class NominationPauses:
    """Pauses by pod; times are in seconds of one clock.

    kube-scheduler ends a failed attempt with a write of the pod's status that clears the
    nomination: a nomination that is written before that is lost. And a pod whose nominations are
    lost again and again must not keep memory from others.
    """

    def __init__(self) -> None:
        self._until: dict[PodUid, float] = {}
        self._lost: dict[PodUid, int] = {}

    def refused(self, uid: PodUid, now: float) -> None:
        """The scheduler's attempt to place the pod is about to fail."""
        self._until[uid] = max(self._until.get(uid, 0.0), now + REFUSED_SECONDS)

    def lost(self, uid: PodUid, now: float) -> None:
        """The pod lost its nomination and is still pending; each pause is twice the last."""
        count = self._lost.get(uid, 0)
        self._lost[uid] = count + 1
        self._until[uid] = now + min(FIRST_SECONDS * 2.0 ** min(count, 20), LONGEST_SECONDS)

    def hopeful(self, uid: PodUid) -> bool:
        """The pod has not lost several nominations lately."""
        return self._lost.get(uid, 0) < HOPELESS

    def ended(self, uid: PodUid) -> None:
        """The pod is bound or gone."""
        self._until.pop(uid, None)
        self._lost.pop(uid, None)

    def left(self, uid: PodUid, now: float) -> float:
        """Seconds until the pod may be nominated; zero or less when it may."""
        return self._until.get(uid, now) - now

    def prune(self, now: float) -> None:
        """Forget pods that were not nominated again for long."""
        for uid in [uid for uid, until in self._until.items() if now - until > FORGET_SECONDS]:
            self.ended(uid)


class QueueOrder:
    """Whether kube-scheduler takes pending pods in the order in which the watch brought them.

    It does, by priority, while it runs: then few nominations ahead of it are enough, and each node
    has few of them. Pods that are there when it starts it takes in any order: then all are
    nominated.
    """

    def __init__(self) -> None:
        self._expected: deque[bool] = deque(maxlen=CALLS)

    def scheduler_called(self, uid: PodUid, nominated: Collection[PodUid]) -> None:
        """The scheduler called about this pod; these are nominated."""
        if len(nominated):
            self._expected.append(uid in nominated)

    def window(self, limit: int) -> int:
        """How many pods may be nominated at a time, at most ``limit``."""
        unexpected = self._expected.count(False)
        return limit if unexpected > CALLS // 2 else min(IN_ORDER, limit)
