"""One run: find a plan and carry it out, one eviction at a time, each judged on a fresh state.

A run carries out one plan at most. It ends at the first eviction that the cluster refuses, and as
soon as the plan no longer holds; what it evicted until then it does not take back.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

import msgspec

from gpucore.defrag.budgets import Allowance, Budgets, PastEviction
from gpucore.defrag.planning import Eviction, EvictionPlan, PlanSearch, find_plan
from gpucore.defrag.pods import DefragPod, DefragState
from gpucore.defrag.progress import check_plan
from gpucore.units import PodUid
from gpuinspect.defrag.lease import DefragLease
from gpuinspect.eviction.lease import LeaseError
from gpuinspect.eviction.pods import refusal
from gpukube.errors import KubeError


class EvictionCalls(Protocol):
    """The calls by which a run changes the cluster."""

    def read(self) -> DefragState:
        """The cluster as it is now."""
        ...

    def evict(self, pod: DefragPod, *, dry_run: bool) -> None:
        """Request an eviction; raises the errors of :func:`gpuinspect.eviction.requests.evict`."""
        ...

    def announce(self, plan: EvictionPlan, eviction: Eviction) -> None:
        """Record events."""
        ...


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


def planned(state: DefragState, budgets: Budgets, history: tuple[PastEviction, ...]) -> RunReport:
    """Find a plan and evict nothing."""
    return RunReport(find_plan(state, Allowance(budgets, history)))


def carry_out(
    calls: EvictionCalls, lease: DefragLease, budgets: Budgets, clock: Callable[[], datetime]
) -> RunReport:
    """Find a plan and evict its pods.

    Raises:
        KubeError: the cluster cannot be read, or the outcome of a request is unknown.
    """
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
        return _Run(calls, lease, clock, found).report()
    finally:
        lease.release()


class _Run:
    def __init__(
        self,
        calls: EvictionCalls,
        lease: DefragLease,
        clock: Callable[[], datetime],
        found: PlanSearch,
    ) -> None:
        assert found.plan is not None
        self._calls, self._lease, self._clock = calls, lease, clock
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
            at=int(self._clock().timestamp()),
            node=pod.node,
            namespace=pod.namespace,
            uid=pod.uid,
            owner=pod.owner,
            waiting=waiting.uid,
            for_namespace=waiting.namespace,
        )
