"""The scheduling status of pods with GPU requests; equal pods are explained once.

With the whole cluster at hand the core decides again. With less, the scheduler's last message is
the reason, because allocations of other namespaces are unknown.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import Final

import msgspec

from gpucore.accounting.node_info import common_unit, unit_of
from gpucore.claims.facts import ClaimFacts
from gpucore.explain.groups import figures
from gpucore.explain.pod_states import Cluster, Explanation, PodState
from gpucore.explain.pods import likeness, request_sentence
from gpucore.explain.sentences import gated, placement_sentence
from gpucore.model import Allocation, Code, PodRequest
from gpucore.units import MemoryUnit, counted
from gpucore.wire.constraints import pod_constraints
from gpucore.wire.names import Names
from gpucore.wire.pod.scheduler_events import SchedulerRecord, scheduler_record
from gpucore.wire.pod.spec import Pod
from gpucore.wire.whole_requests import pod_request_of
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.schedulers import Schedulers, schedulers_of
from gpuinspect.cluster.scoped import is_partial
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.queries.claims import NOTHING, PodClaims
from gpuinspect.queries.explain import cluster_of, explain, is_known

UNSEEN: Final = "no scheduler has recorded an attempt: check that a scheduler named {} runs"
UNPLACED: Final = "bound to {}, but on no known GPU: {}"
UNCALLED: Final = "the scheduler that bound it did not call the extender"
WAITING: Final = frozenset(PodState) - {PodState.ASKS_NOTHING, PodState.FINISHED, PodState.PLACED}
_GROUPS: Final = 2


class SchedulingStatus(msgspec.Struct, frozen=True):
    """The scheduling status of one pod.

    Attributes:
        reason: why it waits, or where it is placed, in one line.
        found: the core's explanation of it or of an equal pod, if it is pending and the whole
            cluster is known; else the state in its own object.
    """

    pod: Pod
    pod_request: PodRequest
    state: PodState
    reason: str
    found: Explanation

    @property
    def waits(self) -> bool:
        """True while the pod has no GPU."""
        return self.state in WAITING


class SchedulingStatuses:
    """The scheduling status of the pods of one snapshot."""

    def __init__(self, snapshot: Snapshot, names: Names, *, policy: str = "") -> None:
        self._snapshot, self._names, self._policy = snapshot, names, policy
        self.ledger = ledger_of(snapshot, names)
        self._alike: dict[object, Explanation] = {}
        self._claims = PodClaims(snapshot, self.ledger)

    @cached_property
    def _schedulers(self) -> Schedulers:
        return schedulers_of(self._snapshot, self._names)

    @cached_property
    def _unit(self) -> MemoryUnit | None:
        return common_unit(self.ledger.nodes().values())

    def _unit_for(self, allocation: Allocation | None) -> MemoryUnit | None:
        """What the amounts of a pod are counted in; ``None`` where its node is unknown."""
        if allocation is None:
            return self._unit
        node_info = self.ledger.nodes()[allocation.placement.node]
        known = unit_of(node_info) if node_info.devices else None
        return allocation.unit or known

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster that the core decides on."""
        return cluster_of(self._snapshot, self.ledger, policy=self._policy)

    def in_namespace(
        self, namespace: str, *, only: Collection[str] | None = None
    ) -> Iterator[SchedulingStatus]:
        """The pods of a namespace that request GPUs.

        Args:
            namespace: empty for all.
            only: UIDs of the pods; ``None`` for all.
        """
        for pod, raw in self._snapshot.raw_pods():
            if namespace not in {"", pod.namespace} or (only is not None and pod.uid not in only):
                continue
            pod_request = pod_request_of(pod, self._names)
            facts = self._claims.facts_with_extended(pod, pod_request, raw)
            if facts is not None:
                yield self.of_pod_with_claims(facts, pod_request or NOTHING)
            elif pod_request is not None:
                yield self.of_pod(pod, pod_request, raw)

    def explanation_of(self, pod: Pod) -> Explanation:
        """The core's explanation of one pod, with what was read of the cluster."""
        raw = self._snapshot.raw_by_uid[pod.uid]
        pod_request = pod_request_of(pod, self._names)
        facts = self._claims.facts_with_extended(pod, pod_request, raw)
        if facts is not None:
            return self._explained_claims(facts)
        if pod_request is None or not is_partial(self._snapshot):
            return explain(self._snapshot, pod, self.cluster)
        return self.of_pod(pod, pod_request, raw).found

    def of_pod_with_claims(self, facts: ClaimFacts, pod_request: PodRequest) -> SchedulingStatus:
        """The status of a pod with claims."""
        found = self._explained_claims(facts)
        reason = _reason_of_claims(found)
        return SchedulingStatus(facts.pod, pod_request, found.state, reason, found)

    def _explained_claims(self, facts: ClaimFacts) -> Explanation:
        """The core's explanation of a pod with claims, on the part of the cluster that was read."""
        return self._claims.explain(facts, self.cluster.nodes)

    def of_pod(self, pod: Pod, pod_request: PodRequest, raw: msgspec.Raw) -> SchedulingStatus:
        """The status of a pod without claims."""
        known = self._snapshot.was_read("Event")
        seen = scheduler_record(raw, self._snapshot.events, complete=known)
        found = self._partly(pod, pod_request, raw, seen)
        if found.state in WAITING and not is_partial(self._snapshot):
            found = self._explained(pod, pod_request, raw)
        unseen = "" if pod.node else self._schedulers.keeps_waiting(pod.scheduler_name)
        reason = _reason(found, pod, seen, unseen)
        return SchedulingStatus(pod, pod_request, found.state, reason, found)

    def _explained(self, pod: Pod, pod_request: PodRequest, raw: msgspec.Raw) -> Explanation:
        if pod.node:
            return explain(self._snapshot, pod, self.cluster, self._schedulers)
        kind = likeness(pod, pod_request, pod_constraints(raw, self._names))
        if kind not in self._alike:
            self._alike[kind] = explain(self._snapshot, pod, self.cluster, self._schedulers)
        return self._alike[kind]

    def _partly(
        self, pod: Pod, pod_request: PodRequest, raw: msgspec.Raw, seen: SchedulerRecord
    ) -> Explanation:
        allocation = self.ledger.allocation(pod.uid)
        gates = () if pod.node else pod_constraints(raw, self._names).gates
        return Explanation(
            pod,
            _state(pod, allocation),
            request_summary=request_sentence(pod_request, self._unit_for(allocation)),
            where=_where(allocation, self._unit_for(allocation)),
            faults=allocation.faults if allocation else (),
            scheduler_record=seen,
            pod_request=pod_request,
            gates=gates,
            helps=(gated(gates),) if gates else (),
        )


def _state(pod: Pod, allocation: Allocation | None) -> PodState:
    if pod.finished:
        return PodState.FINISHED
    if pod.node:
        return PodState.PLACED if is_known(allocation) else PodState.PENDING
    return PodState.GATED if pod.gated else PodState.UNDECIDED


def unplaced_reason(found: Explanation) -> str:
    """Why no GPU of such a pod is known, in one line."""
    return UNPLACED.format(found.pod.node, next(iter(found.faults), UNCALLED))


def _where(allocation: Allocation | None, unit: MemoryUnit | None) -> str:
    if allocation is None or not is_known(allocation):
        return ""
    return placement_sentence(allocation.placement, unit)


def _reason(found: Explanation, pod: Pod, seen: SchedulerRecord, unseen: str) -> str:
    if found.state is PodState.PENDING:
        return unplaced_reason(found)
    if found.state not in WAITING:
        return found.where or found.state.value
    if found.state is PodState.GATED or unseen:
        return found.helps[0] if found.helps else unseen
    if found.state is PodState.FITS:
        return fitting_reason(found, pod, seen)
    if found.state in {PodState.GANG_WAITS, PodState.GANG_INCOMPLETE}:
        return found.helps[0]
    return refusals(found) or seen.last_message or next(iter(found.helps), "") or _unseen(pod)


def _reason_of_claims(found: Explanation) -> str:
    if found.state not in WAITING:
        return found.where or found.state.value
    if found.state is PodState.WAITING and not found.groups:
        return found.helps[0] if found.helps else found.state.value
    if found.state is PodState.FITS:
        return fitting_reason(found, found.pod, found.scheduler_record)
    if found.state is PodState.GATED or (found.helps and found.helps[0].startswith("create ")):
        return found.helps[0]
    return refusals(found) or found.scheduler_record.last_message or _unseen(found.pod)


def attempt(found: Explanation) -> str:
    """What the scheduler did about the pod, as a clause after its name."""
    if found.state is PodState.ASKS_NOTHING:
        return "not relevant for GPUs"
    if found.pod.node:
        return f"bound it to {found.pod.node}"
    if found.gates:
        return "which ignores pods with scheduling gates"
    if found.scheduler_record.scheduler_saw_it:
        return "which has tried to place it"
    if found.scheduler_record.complete:
        return "which has not handled it: check that this scheduler runs"
    return "no events of it are available"


def fitting_reason(found: Explanation, pod: Pod, seen: SchedulerRecord) -> str:
    """Why a pod that fits a node is pending: what the scheduler reported, or that none tried.

    Args:
        found: the explanation of the pod or of an equal one.
    """
    message = seen.last_message
    tried = f"the scheduler reported: {message}" if message else _unseen(pod)
    return "; ".join([*found.helps[:1], tried])


def _unseen(pod: Pod) -> str:
    return UNSEEN.format(pod.scheduler_name or "default-scheduler")


def refusals(found: Explanation) -> str:
    """The reasons of most nodes in one line; empty where no node refuses the pod."""
    if not found.groups:
        return ""
    if found.helps and found.groups[0].code is Code.INVALID_REQUEST:
        return found.helps[0]  # it names the mistake
    counts = (
        f"{counted(len(group.nodes), 'node')}: {figures(group)}" for group in found.groups[:_GROUPS]
    )
    rest = sum(len(group.nodes) for group in found.groups[_GROUPS:])
    return "; ".join([*counts, *([f"{counted(rest, 'node')}: other reasons"] if rest else [])])


def oldest_first(statuses: Iterable[SchedulingStatus]) -> list[SchedulingStatus]:
    """By time of creation, then by name."""
    return sorted(statuses, key=lambda s: (s.pod.creation, s.pod.namespace, s.pod.name))
