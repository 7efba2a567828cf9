"""preempt: keeps those of the scheduler's victims whose GPUs make the request fit.

The scheduler counts a node's units as one sum: it would evict pods of two GPUs for a share that
needs one. The core chooses the victims that are needed (:mod:`gpucore.scheduling.preemption`), and
never a part of a PodGroup that is evicted as a whole. The
reply omits nodes on which no eviction helps. A pod of a gang evicts no pod, because evictions for
one member do not help the others. Nor does a nominated pod, or one that is about to be: it fits on
a node that the scheduler did not evaluate.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from gpucore.model import PodRequest
from gpucore.scheduling.pending_pods import UnscheduledPod
from gpucore.scheduling.preemption import FitCheck, Victim, needed
from gpucore.units import NodeName, PodUid
from gpucore.wire.errors import WireError
from gpucore.wire.pod.gangs import gang_of
from gpucore.wire.pod.spec import Pod, decode_pod
from gpuextender.scheduling import messages
from gpuextender.scheduling.messages import (
    MessageError,
    MetaPod,
    MetaVictims,
    PreemptionArgs,
    PreemptionResult,
    Victims,
)
from gpuextender.state import State

_NOBODY: Final = PreemptionResult({})


class Preempt:
    """The preempt call. The reply to an unreadable request has no node, so no pod is evicted.

    Attributes:
        fits_elsewhere: whether some node of the cluster admits a pod as it is.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.fits_elsewhere: Callable[[UnscheduledPod], bool] = lambda _: False

    def preempt(self, body: bytes) -> PreemptionResult:
        """Victims by node, for nodes where they help."""
        try:
            return self._decide(messages.decode(body, PreemptionArgs))
        except (MessageError, WireError):
            return _NOBODY

    def _decide(self, args: PreemptionArgs) -> PreemptionResult:
        given = args.node_name_to_victims or args.node_name_to_meta_victims or {}
        if not messages.given(args.pod):
            return _NOBODY
        pod = decode_pod(args.pod)
        pod_request = self._state.saw(pod).pod_request
        if pod_request is not None and gang_of(pod) is not None:
            return _NOBODY
        if self._state.ledger.nomination(pod.uid) is not None:
            return _NOBODY
        known = self._state.find(pod.namespace, pod.name)
        if known is not None and known.pod.uid == pod.uid and self.fits_elsewhere(known):
            return _NOBODY
        chosen: dict[str, MetaVictims] = {}
        for node, raw in given.items():
            if not messages.given(raw):
                continue
            victims = messages.decode(raw, Victims)
            listed = self._identify(victims.pods or ())
            needed = self._needed(node, pod, pod_request, listed)
            needed = self._whole(node, listed, needed)
            if needed:
                pods = [MetaPod(victim.uid) for victim in needed]
                chosen[node] = MetaVictims(pods, victims.num_pdb_violations)
        return PreemptionResult(chosen)

    def _whole(
        self, node: str, listed: Sequence[Victim], needed: Sequence[Victim]
    ) -> Sequence[Victim]:
        """``needed`` with all pods of their PodGroups where those are evicted as a whole.

        None where a pod of such a group is on another node: kube-scheduler rejects the reply if it
        names a pod of another node, and would evict a part of the group if it does not.
        """
        nodes = {one.uid: NodeName(node) for one in needed}
        for one in needed:
            nodes |= self._state.gangs.evicted_with(one.uid)
        found = [one for one in listed if one.uid in nodes]
        here = all(name == node for name in nodes.values())
        return found if here and len(found) == len(nodes) else ()

    def _identify(self, pods: Iterable[msgspec.Raw]) -> list[Victim]:
        """Victims as whole pods, or by UID alone."""
        return [self._victim(raw) for raw in pods]

    def _victim(self, raw: msgspec.Raw) -> Victim:
        uid = PodUid(messages.decode(raw, MetaPod).uid)
        if uid:
            return Victim(uid, self._state.priority(uid))
        pod: Pod = decode_pod(raw)
        return Victim(pod.uid, pod.priority)

    def _needed(
        self, node: str, pod: Pod, pod_request: PodRequest | None, victims: Sequence[Victim]
    ) -> Sequence[Victim]:
        node_info = self._state.ledger.node(NodeName(node))
        if pod_request is None:
            return victims
        if node_info is None:
            return ()
        nominated = self._state.nominations.before(node_info.name, pod)
        return needed(FitCheck(node_info, pod_request, nominated), victims)
