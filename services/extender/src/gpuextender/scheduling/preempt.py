"""preempt: names the pods of each node whose eviction makes the request fit.

The scheduler counts a node's units as one sum: its victims may be on two GPUs where the request
needs one. The core chooses among them and the other pods of the node with a lower priority
(:mod:`gpucore.scheduling.preemption`); kube-scheduler evicts every pod of the node that is named.

Never added are pods that are being deleted, and pods of a PodGroup: its priority, which is not read
here, counts for kube-scheduler. Nor is a part of a PodGroup named that is evicted as a whole. The
reply omits nodes on which no eviction helps. A pod of a gang evicts no pod, because evictions for
one member do not help the others. Nor does a nominated pod, or one that is about to be: it fits on
a node that the scheduler did not evaluate. Nor one whose bind has an unknown outcome: GPUs are
reserved for it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Allocation, AllocationState, PodRequest
from gpucore.model.constraints import PodConstraints
from gpucore.scheduling.nominated import host_beside
from gpucore.scheduling.pending_pods import NominatedPod, UnscheduledPod
from gpucore.scheduling.preemption import (
    FitCheck,
    NodeRules,
    Victim,
    by_priority,
    in_order,
    needed,
)
from gpucore.units import NodeName, PodUid
from gpucore.wire.constraints import all_constraints
from gpucore.wire.errors import WireError
from gpucore.wire.pod.gangs import GROUP_PREFIX, gang_of
from gpucore.wire.pod.spec import Pod, decode_pod, started
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
from gpukube.server.time_slices import TimeSlices

_NOBODY: Final = PreemptionResult({})
_ON_NODE: Final = frozenset({AllocationState.BOUND, AllocationState.CONFIRMED})


class Preempt:
    """The preempt call. The reply to an unreadable request has no node, so no pod is evicted.

    Attributes:
        fits_elsewhere: whether some node of the cluster admits a pod as it is.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.fits_elsewhere: Callable[[UnscheduledPod], bool] = lambda _: False

    async def preempt(self, body: bytes) -> PreemptionResult:
        """Victims by node, for nodes where they help; other calls are answered between nodes."""
        try:
            return await self._decide(messages.decode(body, PreemptionArgs))
        except (MessageError, WireError):
            return _NOBODY

    async def _decide(self, args: PreemptionArgs) -> PreemptionResult:
        given = args.node_name_to_victims or args.node_name_to_meta_victims or {}
        if not messages.given(args.pod):
            return _NOBODY
        pod = decode_pod(args.pod)
        pod_request = self._state.saw(pod).pod_request
        if pod_request is not None and gang_of(pod) is not None:
            return _NOBODY
        if self._state.ledger.allocation(pod.uid) is not None:
            return _NOBODY
        known = self._state.find(pod.namespace, pod.name)
        if known is not None and known.pod.uid == pod.uid and self.fits_elsewhere(known):
            return _NOBODY
        constraints = self._state.constraints_of(pod) or all_constraints(args.pod)
        chosen: dict[str, MetaVictims] = {}
        slices = TimeSlices()
        for node, raw in given.items():
            await slices.yield_to_loop()
            if not messages.given(raw):
                continue
            victims = messages.decode(raw, Victims)
            listed = self._identify(victims.pods or ())
            evicted = self._evicted(node, pod, pod_request, constraints, listed)
            if evicted:
                pods = [MetaPod(victim.uid) for victim in evicted]
                chosen[node] = MetaVictims(pods, victims.num_pdb_violations)
        if self._state.ledger.allocation(pod.uid) is not None:  # it got a place meanwhile
            return _NOBODY
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
        """Victims as whole pods, or by UID alone, by priority.

        PodGroups stay where kube-scheduler has put them: it does not compare the pods' priorities.
        """
        found = [self._victim(raw) for raw in pods]
        groups = any(self._state.gangs.evicted_with(one.uid) for one in found)
        return found if groups else by_priority(found)

    def _victim(self, raw: msgspec.Raw) -> Victim:
        uid = PodUid(messages.decode(raw, MetaPod).uid)
        if uid:
            return self._state.victim(uid)
        pod: Pod = decode_pod(raw)
        return Victim(pod.uid, pod.priority, started(pod))

    def _evicted(
        self,
        node: str,
        pod: Pod,
        pod_request: PodRequest | None,
        constraints: PodConstraints,
        listed: Sequence[Victim],
    ) -> Sequence[Victim]:
        """The victims on one node, in kube-scheduler's order; empty where they do not help."""
        if pod_request is None:
            return self._whole(node, listed, listed)
        node_info = self._without_nominated(NodeName(node), pod)
        if node_info is None:
            return ()
        nominated = self._state.nominations.before(node_info.name, pod)
        check = FitCheck(
            node_info,
            pod_request,
            nominated,
            proposed=listed,
            rules=self._rules(node_info, constraints, listed, nominated),
        )
        evicted = needed(check, listed, self._others(node_info, pod, listed))
        everyone = in_order(listed, [one for one in evicted if one not in listed])
        return self._whole(node, everyone, evicted)

    def _without_nominated(self, name: NodeName, pod: Pod) -> NodeInfo | None:
        """The node as if pods of lower priority that the extender nominated had no places.

        kube-scheduler does not count them, and clears the nominations where it evicts others.
        """
        found = self._state.ledger.node(name)
        if found is None:
            return None
        node_info = found.copy()
        for one in self._state.nominated_below(pod.priority).get(name, ()):
            node_info.drop(one.uid)
        return node_info

    def _others(self, node_info: NodeInfo, pod: Pod, listed: Sequence[Victim]) -> Sequence[Victim]:
        """The other pods of the node that ``pod`` may evict."""
        known = {one.uid for one in listed}
        found = (
            self._state.victim(uid)
            for uid, allocation in node_info.allocations.items()
            if uid not in known and self._may_be_added(allocation)
        )
        return [one for one in found if one.priority < pod.priority]

    def _may_be_added(self, allocation: Allocation) -> bool:
        """kube-scheduler may evict it alone: a bound pod of no PodGroup that goes on running."""
        return (
            allocation.state in _ON_NODE
            and allocation.users is None
            and not allocation.gang.startswith(GROUP_PREFIX)
            and not self._state.terminates(allocation.uid)
        )

    def _rules(
        self,
        node_info: NodeInfo,
        constraints: PodConstraints,
        listed: Sequence[Victim],
        nominated: Sequence[NominatedPod],
    ) -> NodeRules | None:
        node = self._state.candidates.node(node_info.name)
        if node is None:
            return None
        uids = [*node_info.allocations, *(one.uid for one in listed)]
        requests = self._state.candidates.requests(node.name, uids)
        return NodeRules(host_beside(node_info, node, nominated), constraints, requests)
