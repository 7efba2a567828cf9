"""One run: notices for pods that became idle, evictions of those whose grace time is over.

Each eviction is decided again on what the plugin of its node reports at that moment, and the
request has the pod's UID and version as preconditions: a label or use between the read and the
request keeps the pod.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from gpucore.sizing.idle_eviction import IdleDecision, IdleRules, IdleStep, MeasuredPod, decide
from gpucore.units import counted
from gpucore.wire.names import Names
from gpuinspect.cluster.collect import ClusterSource
from gpuinspect.errors import FAILURES, InspectError, sentence
from gpuinspect.eviction.lease import LeaseError, RunLease
from gpuinspect.eviction.pods import UNCHECKED, may_be_done, refusal
from gpuinspect.idle.outcomes import IdleOutcome, IdlePodOutcome, IdleRun
from gpuinspect.idle.reading import IdleSelection, measured_again, measured_pods
from gpukube.errors import KubeError

if TYPE_CHECKING:  # the import takes a while
    from gpukube.blocking import BlockingClient

ATTEMPTS: Final = 5
"""Attempts of a run for each notice and eviction of its maximum: the cluster may refuse many."""


class IdleEviction(msgspec.Struct, frozen=True):
    """What an operator set.

    Attributes:
        notices, evictions: maximum numbers of one run.
        lease: ``NAMESPACE/NAME``.
        apply: give notice and evict; without it nothing is changed.
    """

    rules: IdleRules
    notices: int
    evictions: int
    selection: IdleSelection
    lease: str
    apply: bool = False


def run_eviction(
    source: ClusterSource, names: Names, wanted: IdleEviction, clock: Callable[[], datetime]
) -> IdleRun:
    """What was done, or would be.

    Raises:
        InspectError: the name of the Lease is wrong, or what holds GPUs is not all known.
        KubeError: the cluster cannot be read.
    """
    with source.connect() as kube:
        if not wanted.apply:
            return _Run(kube, names, wanted, clock, None).report()
        lease = RunLease(kube, wanted.lease, clock)
        try:
            lease.acquire()
        except LeaseError as error:
            return IdleRun(stopped=str(error), applied=True)
        try:
            return _Run(kube, names, wanted, clock, lease).report()
        finally:
            lease.release()


class _Run:
    """A run on a cluster that is read and changed through a client.

    Args:
        lease: admits one run at a time; without one nothing is changed.
    """

    def __init__(
        self,
        kube: "BlockingClient",
        names: Names,
        wanted: IdleEviction,
        clock: Callable[[], datetime],
        lease: RunLease | None,
    ) -> None:
        self._kube, self._rules, self._clock, self._lease = kube, wanted.rules, clock, lease
        self._most = {IdleStep.NOTICE: wanted.notices, IdleStep.EVICT: wanted.evictions}
        self._done: Counter[IdleStep] = Counter()
        self._attempts: Counter[IdleStep] = Counter()
        self._found = measured_pods(kube, names, wanted.selection)
        self._stopped = self._unchecked = ""

    def report(self) -> IdleRun:
        decisions = self._decisions()
        outcomes = tuple(self._outcome(each) for each in decisions)
        note = "; ".join(filter(None, [self._found.note, self._unchecked]))
        return IdleRun(outcomes, note, self._stopped, applied=self._lease is not None)

    def _decisions(self) -> Iterable[IdleDecision]:
        """Longest idle first, so that these are evicted where not all can be."""
        at = self._now
        found = [decide(pod, self._rules, at) for pod in self._found.pods]
        idle = [each for each in found if each is not None]
        return sorted(idle, key=lambda each: (each.pod.last_use, str(each.pod)))

    @property
    def _now(self) -> float:
        return self._clock().timestamp()

    def _outcome(self, decision: IdleDecision) -> IdlePodOutcome:
        pod, after = decision.pod, decision.evict_after
        if decision.step is IdleStep.SPARE:
            return IdlePodOutcome(pod, IdleOutcome.SPARED, reason=decision.reason)
        if decision.step is IdleStep.WAIT:
            return IdlePodOutcome(pod, IdleOutcome.WAITS, after)
        if reason := self._stopped or self._exhausted(decision.step):
            return IdlePodOutcome(pod, IdleOutcome.POSTPONED, after, reason)
        self._attempts[decision.step] += 1
        notice = decision.step is IdleStep.NOTICE
        try:
            found = self._noticed(pod) if notice else self._evicted(pod, after)
        except FAILURES as error:
            self._stopped = str(error)
            return IdlePodOutcome(pod, IdleOutcome.POSTPONED, after, self._stopped)
        if found.outcome in {IdleOutcome.NOTICED, IdleOutcome.EVICTED}:
            self._done[decision.step] += 1
        return found

    def _exhausted(self, step: IdleStep) -> str:
        """Why this run takes the step for no further pod; empty where it may."""
        most, attempts = self._most[step], self._attempts[step]
        if self._done[step] >= most:
            return "this run has reached its maximum"
        if attempts >= ATTEMPTS * most:
            return f"this run has made {counted(attempts, 'attempt')}, {ATTEMPTS} times its maximum"
        return ""

    def _noticed(self, pod: MeasuredPod) -> IdlePodOutcome:
        """The grace time is whole for each pod, however long the notices before it took."""
        at = self._now
        after = at + self._rules.grace_seconds

        def notice() -> None:
            from gpuinspect.idle.changes import give_notice  # noqa: PLC0415 - imports the async client

            give_notice(self._kube, pod, at, after)

        return self._tried(pod, IdleOutcome.NOTICED, after, notice)

    def _evicted(self, pod: MeasuredPod, after: float) -> IdlePodOutcome:
        if self._lease is None:
            return self._would_be_evicted(pod, after)
        now = decide(measured_again(self._kube, pod, self._found), self._rules, self._now)
        if now is None or now.step is not IdleStep.EVICT:
            reason = (now.reason if now else "") or "it has used its GPU meanwhile"
            return IdlePodOutcome(pod, IdleOutcome.SPARED, reason=reason)

        def evict() -> None:
            from gpuinspect.idle.changes import evict_idle  # noqa: PLC0415 - as above

            evict_idle(self._kube, pod)

        return self._tried(pod, IdleOutcome.EVICTED, after, evict)

    def _would_be_evicted(self, pod: MeasuredPod, after: float) -> IdlePodOutcome:
        """By dry runs of the requests, until the API server makes none."""
        from gpuinspect.eviction.requests import evict  # noqa: PLC0415 - as above

        reason = ""
        if not self._unchecked:
            try:
                evict(self._kube, pod, dry_run=True)
            except KubeError as error:
                reason = refusal(pod, error)
                self._unchecked = "" if reason else UNCHECKED.format(sentence(error))
        outcome = IdleOutcome.REFUSED if reason else IdleOutcome.EVICTED
        return IdlePodOutcome(pod, outcome, after, reason)

    def _tried(
        self, pod: MeasuredPod, outcome: IdleOutcome, after: float, call: Callable[[], None]
    ) -> IdlePodOutcome:
        """Hold the Lease and make a change; a failure that is not about this pod ends the run.

        Raises:
            LeaseError: another run took the Lease.
            InspectError: it is not known whether the pod was evicted.
            KubeError: other failures.
        """
        if self._lease is None:
            return IdlePodOutcome(pod, outcome, after)
        self._lease.renew()
        try:
            call()
        except KubeError as error:
            if reason := refusal(pod, error):
                return IdlePodOutcome(pod, IdleOutcome.REFUSED, after, reason)
            if outcome is IdleOutcome.EVICTED and may_be_done(error):
                raise InspectError(f"{pod} may be evicted: {error}") from error
            raise
        return IdlePodOutcome(pod, outcome, after)
