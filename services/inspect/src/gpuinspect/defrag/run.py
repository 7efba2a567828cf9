"""One run: find a plan and carry it out, one eviction at a time, each judged on a fresh state.

A run carries out one plan at most. It ends at the first eviction that the cluster refuses, and as
soon as the plan no longer holds; what it evicted until then it does not take back.

The annotation of its Lease remembers the evictions of the last hour. Each is written before it is
requested, so a run that dies has counted its eviction.
"""

from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from gpucore.defrag.budgets import Allowance, Budgets, PastEviction, recent
from gpucore.defrag.planning import Eviction, EvictionPlan, PlanSearch, find_plan
from gpucore.defrag.pods import DefragPod, DefragState
from gpucore.defrag.progress import check_plan
from gpucore.units import PodUid
from gpucore.wire.names import DEFRAG_HISTORY, Names
from gpuinspect.cluster.collect import CLAIM_LISTS, ClusterSource, live
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.defrag.reading import READ, defrag_state
from gpuinspect.errors import InspectError
from gpuinspect.eviction.lease import LeaseError, RunLease
from gpuinspect.eviction.pods import refusal
from gpuinspect.terminal.ages import now
from gpukube.errors import ForbiddenError, InvalidReplyError, KubeError

NEEDED: Final = frozenset(one.kind for one in CLAIM_LISTS)
"""Lists without which GPUs would seem free that claims hold."""


class DefragLease(RunLease):
    """The Lease and its history."""

    @property
    def history(self) -> tuple[PastEviction, ...]:
        """The evictions of the last hour, of all runs."""
        try:
            text = self.annotations.get(DEFRAG_HISTORY, "[]")
            found = msgspec.json.decode(text, type=tuple[PastEviction, ...])
        except msgspec.MsgspecError as error:
            where = f"annotation {DEFRAG_HISTORY} of Lease {self.name}"
            raise InvalidReplyError(f"{where} cannot be parsed: {error}") from error
        return recent(found, int(self._clock().timestamp()))

    def record(self, eviction: PastEviction) -> None:
        """Write an eviction that is about to be requested, and renew the Lease.

        Raises:
            LeaseError: another run took the Lease.
            KubeError: it cannot be written.
        """
        history = msgspec.json.encode((*self.history, eviction)).decode()
        self.renew({DEFRAG_HISTORY: history})


if TYPE_CHECKING:  # the import takes a while and a snapshot needs no client
    from gpukube.blocking import BlockingClient


class EvictionSettings(msgspec.Struct, frozen=True):
    """What an operator set.

    Attributes:
        waited_seconds: seconds for which a pod must have waited.
        scheduler: the only scheduler whose pods count as waiting; empty for all.
        lease: ``NAMESPACE/NAME``.
        apply: evict.
    """

    budgets: Budgets = Budgets()
    waited_seconds: int = 120
    scheduler: str = ""
    lease: str = "kube-system/gpushare-defrag"
    apply: bool = False


class RunReport(msgspec.Struct, frozen=True):
    """What a run did.

    Attributes:
        found: the plan, or why there is none.
        evicted: the pods that were evicted, in order.
        stopped: why the plan was not carried out to its end; empty where it was.
        applied: the run was allowed to evict.
    """

    found: PlanSearch
    evicted: tuple[DefragPod, ...] = ()
    stopped: str = ""
    applied: bool = False


def plan_or_evict(
    source: ClusterSource, names: Names, wanted: EvictionSettings
) -> tuple[RunReport, DefragState]:
    """What was done, or would be, and the state that it was decided on.

    Raises:
        InspectError: a snapshot cannot be changed, or the name of the Lease is wrong.
        KubeError: the cluster cannot be read or written, or the outcome of a request is unknown.
    """
    if source.snapshot is not None:
        if wanted.apply:
            raise InspectError("--apply needs a cluster: a snapshot cannot be changed")
        state = _state(source.read(*READ), names, wanted, now())
        return _planned(state, wanted.budgets, ()), state
    with source.connect() as kube:
        calls = _Calls(kube, names, wanted)
        lease = DefragLease(kube, wanted.lease, now)
        if wanted.apply:
            report = _carried_out(calls, lease, wanted.budgets)
            return report, calls.state or calls.read()
        state = calls.read()
        with suppress(ForbiddenError):  # a person who only plans need not read it
            lease.look()
        return _planned(state, wanted.budgets, lease.history), state


def _planned(state: DefragState, budgets: Budgets, history: tuple[PastEviction, ...]) -> RunReport:
    """Find a plan and evict nothing."""
    return RunReport(find_plan(state, Allowance(budgets, history)))


class _Calls:
    """A cluster that is read and changed through a client.

    Attributes:
        state: as it was read last.
    """

    def __init__(self, kube: "BlockingClient", names: Names, wanted: EvictionSettings) -> None:
        self._kube, self._names, self._wanted = kube, names, wanted
        self.state: DefragState | None = None

    def read(self) -> DefragState:
        """The cluster as it is now."""
        found = live(self._kube, READ)
        for kind in NEEDED & found.missing.keys():
            raise InspectError(f"allocations are unknown: {found.missing[kind]}")
        self.state = _state(found, self._names, self._wanted, now())
        return self.state

    def evict(self, pod: DefragPod, *, dry_run: bool) -> None:
        """Request an eviction."""
        from gpuinspect.eviction.requests import evict  # noqa: PLC0415 - imports the async client

        evict(self._kube, pod, dry_run=dry_run)

    def announce(self, plan: EvictionPlan, eviction: Eviction) -> None:
        """Record events."""
        from gpuinspect.defrag.evictions import announce  # noqa: PLC0415 - as above

        announce(self._kube, plan, eviction)


def _carried_out(calls: _Calls, lease: DefragLease, budgets: Budgets) -> RunReport:
    """Find a plan and evict its pods."""
    try:
        lease.acquire()
    except LeaseError as error:
        return RunReport(PlanSearch(), stopped=str(error), applied=True)
    try:
        state, history = calls.read(), lease.history
        leaving = [one for one in history if one.uid in state.leaving]
        if leaving:
            reason = f"{len(leaving)} pods of an earlier run are still being deleted"
            return RunReport(PlanSearch(), stopped=reason, applied=True)
        found = find_plan(state, Allowance(budgets, history))
        if found.plan is None:
            return RunReport(found, applied=True)
        return _Run(calls, lease, found).report()
    finally:
        lease.release()


class _Run:
    def __init__(
        self,
        calls: _Calls,
        lease: DefragLease,
        found: PlanSearch,
    ) -> None:
        assert found.plan is not None
        self._calls, self._lease = calls, lease
        self._found, self._plan = found, found.plan
        self._evicted: list[DefragPod] = []

    def report(self) -> RunReport:
        stopped = self._refusal() or self._evictions()
        return RunReport(self._found, tuple(self._evicted), stopped, applied=True)

    def _refusal(self) -> str:
        """Why an eviction of the plan is not permitted now, by a dry run of each."""
        for each in self._plan.evictions:
            if reason := self._refused(each.pod, dry_run=True):
                return reason
        return ""

    def _evictions(self) -> str:
        for eviction in self._plan.evictions:
            state = self._calls.read()
            check = check_plan(self._plan, self._gone, state)
            if check.reason:
                return check.reason
            pod = state.running[eviction.pod.uid]
            try:
                self._lease.record(self._past(pod))
            except LeaseError as error:
                return str(error)
            if reason := self._refused(pod, dry_run=False):
                return reason
            self._evicted.append(pod)
            self._calls.announce(self._plan, eviction)
        return ""

    @property
    def _gone(self) -> frozenset[PodUid]:
        return frozenset(pod.uid for pod in self._evicted)

    def _refused(self, pod: DefragPod, *, dry_run: bool) -> str:
        try:
            self._calls.evict(pod, dry_run=dry_run)
        except KubeError as error:
            if reason := refusal(pod, error):
                return reason
            raise
        return ""

    def _past(self, pod: DefragPod) -> PastEviction:
        waiting = self._plan.waiting
        return PastEviction(
            at=int(now().timestamp()),
            node=pod.node,
            namespace=pod.namespace,
            uid=pod.uid,
            owner=pod.owner,
            waiting=waiting.uid,
            for_namespace=waiting.namespace,
        )


def _state(
    snapshot: Snapshot, names: Names, wanted: EvictionSettings, moment: datetime
) -> DefragState:
    return defrag_state(
        snapshot,
        names,
        now=moment,
        waited_seconds=wanted.waited_seconds,
        scheduler=wanted.scheduler,
    )
