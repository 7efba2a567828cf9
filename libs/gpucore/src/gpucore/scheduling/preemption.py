"""The victims proposed by kube-scheduler whose GPUs make room for the pod.

On a copy of the node, victims are taken away until the request fits, those of lowest priority
first, and then every one that turns out not to be needed is given back, highest priority first.

kube-scheduler counts pods that are nominated for the node by their sums alone. Victims therefore
have to make room beside the nominated pods of the same or a higher priority.

Victims that hold none of our resources were chosen for reasons that are not ours (processors,
memory, ports) and stay; so do all where the request fits without any eviction.
"""

from collections.abc import Iterable, Sequence

import msgspec

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import PodRequest
from gpucore.scheduling.fit import fit
from gpucore.scheduling.nominated import refusal_beside
from gpucore.scheduling.pending_pods import NominatedPod
from gpucore.units import PodUid


class Victim(msgspec.Struct, frozen=True):
    """A pod that may be evicted; higher priority is more worth keeping."""

    uid: PodUid
    priority: int = 0


class FitCheck:
    """Whether a request fits on a node once some victims are gone.

    Args:
        node_info: state of the node, which stays as it is.
        nominated: pods for which room is kept on the node.
    """

    def __init__(
        self, node_info: NodeInfo, pod_request: PodRequest, nominated: Sequence[NominatedPod] = ()
    ) -> None:
        self.node_info = node_info
        self._pod_request = pod_request
        self._nominated = nominated

    def fits(self, victims: Iterable[Victim] = ()) -> bool:
        """The request fits beside the nominated pods without these victims."""
        copy = self.node_info.copy()
        for victim in victims:
            copy.drop(victim.uid)
        if self._nominated:
            return refusal_beside(copy, self._pod_request, self._nominated) is None
        return fit(copy, self._pod_request) is None


def needed(check: FitCheck, victims: Sequence[Victim]) -> Sequence[Victim]:
    """The victims to evict; empty when even all of them do not make room."""
    node_info = check.node_info
    if check.fits():
        return victims
    ours = sorted(
        (victim for victim in victims if victim.uid in node_info.allocations),
        key=lambda victim: victim.priority,
    )
    evicted = _enough(check, ours)
    if evicted is None:
        return ()
    spared = {victim.uid for victim in ours} - {victim.uid for victim in evicted}
    return [victim for victim in victims if victim.uid not in spared]


def _enough(check: FitCheck, victims: Sequence[Victim]) -> Sequence[Victim] | None:
    """The fewest of ``victims`` (lowest priority first) that make room; ``None`` if none do.

    Each victim alone is tried, then the victims of each GPU, then all: linear in victims, for the
    scheduler checks about a hundred nodes at once.
    """
    for victim in victims:
        if check.fits((victim,)):
            return (victim,)
    found = [_pruned(check, crowd) for crowd in _crowds(check.node_info, victims)]
    enough = [crowd for crowd in found if crowd is not None]
    return min(enough, key=_cost) if enough else _pruned(check, victims)


def _crowds(node_info: NodeInfo, victims: Sequence[Victim]) -> Iterable[Sequence[Victim]]:
    """Victims by GPU, for a share of one GPU needs room on one GPU."""
    for device in node_info.devices.values():
        yield [victim for victim in victims if victim.uid in device.holders]


def _pruned(check: FitCheck, victims: Sequence[Victim]) -> Sequence[Victim] | None:
    """``victims`` less everyone who can stay, highest priority spared first."""
    if not check.fits(victims):
        return None
    kept = list(victims)
    for victim in sorted(victims, key=lambda one: -one.priority):
        rest = [one for one in kept if one is not victim]
        if check.fits(rest):
            kept = rest
    return kept


def _cost(victims: Sequence[Victim]) -> tuple[int, int, int]:
    """How many, then the highest priority lost, then the sum of priorities."""
    priorities = [victim.priority for victim in victims]
    return len(victims), max(priorities, default=0), sum(priorities)
