"""The pods to evict from a node for a pod of higher priority.

kube-scheduler compares sums of the node: it proposes pods of which it needs every one by these, and
knows no GPUs. So its proposal is often not enough for a GPU, and other pods of the node are added.
The fewest are chosen, then those of lowest priority; other pods only where the proposed ones alone
make no room, for kube-scheduler has compared these with PodDisruptionBudgets.

Pods that kube-scheduler proposed and that hold none of our resources were chosen for other reasons
(processors, memory, ports) and stay; so do all where the request fits without any eviction. One
that holds GPUs is spared where the request fits without, by kube-scheduler's own rules too.

kube-scheduler counts pods that are nominated for the node by their sums alone. Evictions therefore
have to make room beside the nominated pods of the same or a higher priority.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from gpucore.accounting.node_info import NodeInfo
from gpucore.kubescheduler.node_fit import constraint_refusals
from gpucore.model import PodRequest
from gpucore.model.constraints import CandidateNode, PodConstraints, Resources
from gpucore.scheduling.fit import fits
from gpucore.scheduling.nominated import node_beside
from gpucore.scheduling.pending_pods import NominatedPod
from gpucore.units import PodUid


class Victim(msgspec.Struct, frozen=True):
    """A pod that may be evicted; higher priority is more worth keeping.

    Attributes:
        started: Unix seconds; 0 where it is not known.
    """

    uid: PodUid
    priority: int = 0
    started: float = 0.0

    def is_more_important(self, other: "Victim") -> bool:
        """kube-scheduler names it first: it has a higher priority, or started earlier."""
        return (-self.priority, self.started) < (-other.priority, other.started)


class NodeRules(msgspec.Struct, frozen=True):
    """kube-scheduler's own rules for one node and one pod.

    Attributes:
        node: with what its pods request now.
        constraints: of the pod.
        requests: of the node's pods.
    """

    node: CandidateNode
    constraints: PodConstraints
    requests: Mapping[PodUid, Resources]

    def admit_without(self, evicted: Iterable[Victim]) -> bool:
        """They admit the pod once these are gone; False where a rule is not evaluated here."""
        requested, pods = dict(self.node.requested), self.node.pods
        for victim in evicted:
            if victim.uid in self.requests:
                pods -= 1
                for name, amount in self.requests[victim.uid]:
                    requested[name] -= amount
        node = msgspec.structs.replace(self.node, requested=requested, pods=pods)
        refusals = constraint_refusals(node, self.constraints)
        return not self.constraints.unsupported and next(refusals, None) is None


class FitCheck:
    """Whether a request fits on a node once some pods are gone.

    Args:
        node_info: state of the node, which stays as it is.
        nominated: pods for which room is kept on the node.
        proposed: kube-scheduler's victims; its own rules admit the pod once all are gone.
        rules: for evictions that leave some of these; ``None`` where they are not known.
    """

    def __init__(
        self,
        node_info: NodeInfo,
        pod_request: PodRequest,
        nominated: Sequence[NominatedPod] = (),
        *,
        proposed: Sequence[Victim] = (),
        rules: NodeRules | None = None,
    ) -> None:
        self.node_info = node_info
        self._tried, self._gone = node_info.copy(), frozenset[PodUid]()
        self._pod_request = pod_request
        self._nominated = nominated
        self._rules = rules
        self.proposed = [one for one in proposed if one.uid in node_info.allocations]
        self._foreign = [one for one in proposed if one.uid not in node_info.allocations]

    def has_room(self, evicted: Collection[Victim] = ()) -> bool:
        """The request fits the GPUs, beside the nominated pods, without these pods."""
        gone = frozenset(victim.uid for victim in evicted)
        for uid in self._gone - gone:
            self._tried.put(self.node_info.allocations[uid])
        for uid in gone - self._gone:
            self._tried.drop(uid)
        self._gone = gone
        return fits(node_beside(self._tried, self._nominated), self._pod_request)

    def fits(self, evicted: Collection[Victim]) -> bool:
        """The node admits the pod without these and what it proposed that holds no GPU."""
        return self.has_room(evicted) and self._rules_hold(evicted)

    def units(self, victim: Victim) -> int:
        """Memory units that a pod holds."""
        return sum(self.node_info.allocations[victim.uid].placement.mem.values())

    def _rules_hold(self, evicted: Collection[Victim]) -> bool:
        if all(one in evicted for one in self.proposed):
            return True
        gone = (*evicted, *self._foreign)
        return self._rules is not None and self._rules.admit_without(gone)


def needed(
    check: FitCheck, proposed: Sequence[Victim], others: Sequence[Victim] = ()
) -> Sequence[Victim]:
    """The pods to evict; empty when even all of them do not make room.

    Args:
        proposed: kube-scheduler's victims.
        others: further pods that hold GPUs of the node and may be evicted.
    """
    if check.has_room():
        return proposed
    evicted = enough(check, check.proposed) or enough(check, [*check.proposed, *others])
    if evicted is None:
        return ()
    spared = [one for one in check.proposed if one not in evicted]
    kept = [one for one in proposed if one not in spared]
    return [*kept, *(one for one in evicted if one not in kept)]


def by_priority(proposed: Iterable[Victim]) -> list[Victim]:
    """Higher ones first: kube-scheduler takes the first for the one of highest priority.

    Patch releases without its own fix put those first that a PodDisruptionBudget protects.
    """
    return sorted(proposed, key=lambda one: -one.priority)


def in_order(proposed: Sequence[Victim], added: Iterable[Victim]) -> Sequence[Victim]:
    """All of them by their importance, where kube-scheduler proposed some in this order."""
    found = list(proposed)
    for one in added:
        less = (i for i, other in enumerate(found) if one.is_more_important(other))
        found.insert(next(less, len(found)), one)
    return found


def enough(check: FitCheck, pods: Sequence[Victim]) -> Sequence[Victim] | None:
    """The fewest of ``pods`` that make room; ``None`` if none do.

    Each pod alone is tried, then the pods of each GPU, then all: linear in pods, for the scheduler
    checks about a hundred nodes at once.
    """
    pods = sorted(pods, key=lambda one: one.priority)
    for one in pods:
        if check.fits((one,)):
            return (one,)
    found = [_sufficient(check, crowd) for crowd in _crowds(check.node_info, pods)]
    sufficient = [crowd for crowd in found if crowd is not None]
    return min(sufficient, key=_cost) if sufficient else _pruned(check, pods)


def _crowds(node_info: NodeInfo, pods: Sequence[Victim]) -> Iterator[Sequence[Victim]]:
    """Pods by GPU, for a share of one GPU needs room on one GPU."""
    for device in node_info.devices.values():
        yield [one for one in pods if one.uid in device.holders]


def _sufficient(check: FitCheck, crowd: Sequence[Victim]) -> Sequence[Victim] | None:
    """The fewest of the pods of one GPU, with proposed pods where these have to go too."""
    if not check.has_room(crowd):
        return None
    beside = [one for one in check.proposed if one not in crowd]
    return _pruned(check, crowd) or _pruned(check, [*crowd, *beside])


def _pruned(check: FitCheck, pods: Sequence[Victim]) -> Sequence[Victim] | None:
    """``pods`` less all that can stay: highest priority spared first, then the smallest."""
    if not check.fits(pods):
        return None
    kept = list(pods)
    for one in sorted(pods, key=lambda one: (-one.priority, check.units(one))):
        rest = [other for other in kept if other is not one]
        if check.fits(rest):
            kept = rest
    return kept


def _cost(pods: Sequence[Victim]) -> tuple[int, int, int]:
    """How many, then the highest priority lost, then the sum of priorities."""
    priorities = [one.priority for one in pods]
    return len(pods), max(priorities, default=0), sum(priorities)
