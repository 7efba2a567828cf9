"""One run: find a plan and carry it out, one eviction at a time, each judged on a fresh state.

A run carries out one plan at most, the first one of which the cluster refuses no eviction in a dry
run. It ends at the first eviction that is refused then, and as soon as the plan no longer holds;
what it evicted until then it does not take back.

The annotation of its Lease remembers the evictions of the last hour. Each is written before it is
requested, so a run that dies has counted its eviction.
"""

from collections import Counter
from collections.abc import Collection, Sequence
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
from gpuinspect.cluster.schedulers import unread_health
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.defrag.reading import READ, defrag_state
from gpuinspect.errors import FAILURES, InspectError, sentence
from gpuinspect.eviction.lease import LeaseError, RunLease
from gpuinspect.eviction.pods import UNCHECKED, may_be_done, refusal
from gpuinspect.terminal.ages import now
from gpukube.errors import ForbiddenError, InvalidReplyError, KubeError

NEEDED: Final = frozenset(one.kind for one in CLAIM_LISTS)
"""Lists without which GPUs would seem free that claims hold."""
REFUSED_PLANS: Final = 20
"""Plans of one run that the cluster may refuse in a dry run."""
OF_A_NAMESPACE: Final = 5
"""Of those, plans for waiting pods of one namespace; then it is the turn of the others."""
KEPT: Final = "the cluster refuses its eviction"
GIVEN_UP: Final = "the cluster refused too many plans for pods of its namespace"


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
        failure: that ended the run after an eviction was requested; ``None`` where there is none.
        unchecked: why no dry run of the evictions was made, as a sentence; empty where one was.
        unknown: the pod of the plan of which it is not known whether it was evicted, if any.
        applied: the run was allowed to evict.
        refused: why the cluster refused evictions of other plans, in a dry run.
    """

    found: PlanSearch
    evicted: tuple[DefragPod, ...] = ()
    stopped: str = ""
    applied: bool = False
    refused: tuple[str, ...] = ()
    failure: Exception | None = None
    unknown: DefragPod | None = None
    unchecked: str = ""


def plan_or_evict(
    source: ClusterSource, names: Names, wanted: EvictionSettings
) -> tuple[RunReport, DefragState]:
    """What was done, or would be, and the state that it was decided on.

    Raises:
        InspectError: a snapshot cannot be changed, or the name of the Lease is wrong.
        KubeError: the cluster cannot be read or written, and nothing was evicted.
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
        return _checked(calls, lease, state, wanted.budgets), state


def _planned(state: DefragState, budgets: Budgets, history: tuple[PastEviction, ...]) -> RunReport:
    """Find a plan and evict nothing."""
    return RunReport(find_plan(state, Allowance(budgets, history)))


def _checked(
    calls: "_Calls", lease: DefragLease, state: DefragState, budgets: Budgets
) -> RunReport:
    """The plan that ``--apply`` would carry out, by dry runs of its evictions where they may be."""
    try:
        return _first_permitted(calls, lease, state, Allowance(budgets, lease.history), apply=False)
    except KubeError as error:
        unchecked = UNCHECKED.format(sentence(error))
        planned = _planned(state, budgets, lease.history)
        return msgspec.structs.replace(planned, unchecked=unchecked)


class _Calls:
    """A cluster that is read and changed through a client.

    Attributes:
        state: as it was read first, which the plan is made for.
    """

    def __init__(self, kube: "BlockingClient", names: Names, wanted: EvictionSettings) -> None:
        self._kube, self._names, self._wanted = kube, names, wanted
        self.state: DefragState | None = None

    def read(self) -> DefragState:
        """The cluster as it is now."""
        found = live(self._kube, READ)
        for kind in NEEDED & found.missing.keys():
            raise InspectError(f"allocations are unknown: {found.missing[kind]}")
        if unread := unread_health(found):
            raise InspectError(unread)  # else for room on a GPU that the extender does not use
        state = _state(found, self._names, self._wanted, now())
        self.state = self.state or state
        return state

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
        return _first_permitted(calls, lease, state, Allowance(budgets, history), apply=True)
    finally:
        lease.release()


def _first_permitted(
    calls: _Calls, lease: DefragLease, state: DefragState, allowance: Allowance, *, apply: bool
) -> RunReport:
    """Carry out the first plan that passes its dry run, or without ``apply`` only find it."""
    refused: list[str] = []
    plans: Counter[str] = Counter()
    for _ in range(REFUSED_PLANS):
        found = find_plan(state, allowance)
        if found.plan is None:
            stopped = refused[0] if refused else ""
            return RunReport(found, stopped=stopped, applied=apply, refused=tuple(refused))
        run = _Run(calls, lease, found)
        reasons = run.refusals()
        if not reasons:
            planned = RunReport(found, refused=tuple(refused))
            return run.report(refused) if apply else planned
        refused += reasons.values()
        namespace = found.plan.waiting.namespace
        plans[namespace] += 1
        given_up = namespace if plans[namespace] == OF_A_NAMESPACE else ""
        state = _without(state, reasons, given_up)
    stopped = f"the cluster refused {REFUSED_PLANS} plans, the maximum of a run"
    return RunReport(PlanSearch(), stopped=stopped, applied=apply, refused=tuple(refused))


def _without(state: DefragState, refused: Collection[PodUid], given_up: str) -> DefragState:
    """The state in which pods that are refused stay, with the others of their controllers.

    Args:
        refused: UIDs of pods.
        given_up: namespace for whose waiting pods nothing is moved; empty for none.
    """
    owners = {(state.running[uid].namespace, state.running[uid].owner) for uid in refused}
    running = {
        uid: msgspec.structs.replace(pod, obstacle=KEPT)
        for uid, pod in state.running.items()
        if (pod.namespace, pod.owner) in owners
    }
    waiting = tuple(
        msgspec.structs.replace(pod, obstacle=pod.obstacle or GIVEN_UP)
        if given_up and pod.namespace == given_up
        else pod
        for pod in state.waiting
    )
    return msgspec.structs.replace(state, waiting=waiting, running={**state.running, **running})


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
        self._unknown: DefragPod | None = None

    def report(self, refused: Sequence[str]) -> RunReport:
        """Evict the pods; ``refused`` is why other plans were not carried out."""
        failure: Exception | None = None
        try:
            stopped = self._evictions()
        except FAILURES as error:
            if not (self._evicted or self._unknown):
                raise
            stopped, failure = sentence(error), error
        return RunReport(
            self._found,
            tuple(self._evicted),
            stopped,
            applied=True,
            refused=tuple(refused),
            failure=failure,
            unknown=self._unknown,
        )

    def refusals(self) -> dict[PodUid, str]:
        """Why evictions of the plan are not permitted now, by a dry run of each."""
        tried = ((each.pod, self._refused(each.pod, dry_run=True)) for each in self._plan.evictions)
        return {pod.uid: reason for pod, reason in tried if reason}

    def _evictions(self) -> str:
        for eviction in self._plan.evictions:
            state = self._calls.read()
            if reason := check_plan(self._plan, self._gone, state):
                return reason
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
            if not dry_run and may_be_done(error):
                self._unknown = pod
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
