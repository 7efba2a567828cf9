"""One run: notices for pods that became idle, evictions of those whose grace time is over.

Each eviction is decided again on what the plugin of its node reports at that moment, and the
request has the pod's UID and version as preconditions: a label or use between the read and the
request keeps the pod.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Protocol

from gpucore.sizing.idle_eviction import IdleDecision, IdleRules, IdleStep, MeasuredPod, decide
from gpuinspect.eviction.lease import LeaseError, RunLease
from gpuinspect.eviction.pods import refusal
from gpuinspect.idle.outcomes import IdleOutcome, IdlePodOutcome, IdleRun, MeasuredPods, RunLimits
from gpukube.errors import KubeError


class IdleCalls(Protocol):
    """The calls by which a run reads and changes the cluster."""

    def read(self) -> MeasuredPods:
        """The pods as they are now."""
        ...

    def again(self, pod: MeasuredPod, found: MeasuredPods) -> MeasuredPod:
        """What the plugin of its node reports now."""
        ...

    def notice(self, pod: MeasuredPod, noticed_at: float, evict_after: float) -> None:
        """Record the event and write the annotation; raises :class:`KubeError`."""
        ...

    def evict(self, pod: MeasuredPod) -> None:
        """Evict the pod and record events; raises :class:`KubeError`."""
        ...


Clock = Callable[[], datetime]


def carry_out(
    calls: IdleCalls,
    rules: IdleRules,
    limits: RunLimits,
    clock: Clock,
    lease: RunLease | None,
) -> IdleRun:
    """Give notice and evict.

    Args:
        lease: admits one run at a time; without one nothing is changed.

    Raises:
        KubeError, InspectError: the cluster cannot be read.
    """
    if lease is None:
        return _Run(calls, rules, limits, clock, None).report()
    try:
        lease.acquire()
    except LeaseError as error:
        return IdleRun(stopped=str(error), applied=True)
    try:
        return _Run(calls, rules, limits, clock, lease).report()
    finally:
        lease.release()


class _Run:
    def __init__(
        self,
        calls: IdleCalls,
        rules: IdleRules,
        limits: RunLimits,
        clock: Clock,
        lease: RunLease | None,
    ) -> None:
        self._calls, self._rules, self._clock, self._lease = calls, rules, clock, lease
        self._left = {IdleStep.NOTICE: limits.notices, IdleStep.EVICT: limits.evictions}
        self._found = calls.read()
        self._stopped = ""

    def report(self) -> IdleRun:
        decisions = self._decisions()
        outcomes = tuple(self._outcome(each) for each in decisions)
        return IdleRun(outcomes, self._found.note, self._stopped, applied=self._lease is not None)

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
        if self._stopped or not self._left[decision.step]:
            reason = self._stopped or "this run has reached its maximum"
            return IdlePodOutcome(pod, IdleOutcome.POSTPONED, after, reason)
        self._left[decision.step] -= 1
        if decision.step is IdleStep.NOTICE:
            return self._noticed(pod)
        return self._evicted(pod, after)

    def _noticed(self, pod: MeasuredPod) -> IdlePodOutcome:
        """The grace time is whole for each pod, however long the notices before it took."""
        at = self._now
        after = at + self._rules.grace_seconds
        return self._tried(
            pod, IdleOutcome.NOTICED, after, lambda: self._calls.notice(pod, at, after)
        )

    def _evicted(self, pod: MeasuredPod, after: float) -> IdlePodOutcome:
        if self._lease is None:
            return IdlePodOutcome(pod, IdleOutcome.EVICTED, after)
        now = decide(self._calls.again(pod, self._found), self._rules, self._now)
        if now is None or now.step is not IdleStep.EVICT:
            reason = (now.reason if now else "") or "it has used its GPU meanwhile"
            return IdlePodOutcome(pod, IdleOutcome.SPARED, reason=reason)
        return self._tried(pod, IdleOutcome.EVICTED, after, lambda: self._calls.evict(pod))

    def _tried(
        self, pod: MeasuredPod, outcome: IdleOutcome, after: float, call: Callable[[], None]
    ) -> IdlePodOutcome:
        """Hold the Lease and make a change; a failure that is not about this pod ends the run."""
        if self._lease is None:
            return IdlePodOutcome(pod, outcome, after)
        try:
            self._lease.renew()
            call()
        except LeaseError as error:
            self._stopped = str(error)
        except KubeError as error:
            if reason := refusal(pod, error):
                return IdlePodOutcome(pod, IdleOutcome.REFUSED, after, reason)
            self._stopped = str(error)
        else:
            return IdlePodOutcome(pod, outcome, after)
        return IdlePodOutcome(pod, IdleOutcome.POSTPONED, after, self._stopped)
