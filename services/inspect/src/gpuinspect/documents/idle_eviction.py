"""JSON and YAML of ``gpushare idle`` with ``--evict`` or ``--dry-run``."""

from datetime import UTC, datetime

import msgspec

from gpucore.sizing.workloads import workload_of
from gpucore.wire.documents import API_VERSION
from gpuinspect.idle.outcomes import IdlePodOutcome, IdleRun


class IdlePodDoc(msgspec.Struct, frozen=True, rename="camel"):
    """An idle pod and what became of it, or would.

    ``outcome`` is ``noticed``, ``waits``, ``evicted``, ``spared``, ``postponed`` or ``refused``;
    ``evictAfter`` is the RFC 3339 time before which it is not evicted, empty where it is spared;
    ``reason`` is why it is spared, postponed or refused. ``idleSeconds`` is 0 where its use is not
    known.
    """

    namespace: str
    name: str
    uid: str
    workload_kind: str
    workload: str
    node: str
    idle_seconds: int
    outcome: str
    evict_after: str
    reason: str


class IdleEvictionDoc(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of ``gpushare idle --evict`` and ``--dry-run``.

    ``applied`` is false for a dry run; ``stopped`` is why the run ended early, empty where it did
    not; ``gaps`` is what could not be read.
    """

    api_version: str
    kind: str
    namespace: str
    applied: bool
    stopped: str
    gaps: list[str]
    items: list[IdlePodDoc]


def idle_eviction(run: IdleRun, *, namespace: str, at: datetime) -> IdleEvictionDoc:
    """The document of a run."""
    return IdleEvictionDoc(
        api_version=API_VERSION,
        kind="IdleEviction",
        namespace=namespace,
        applied=run.applied,
        stopped=run.stopped,
        gaps=[run.note] if run.note else [],
        items=[_doc(each, at) for each in run.outcomes],
    )


def _doc(each: IdlePodOutcome, at: datetime) -> IdlePodDoc:
    pod = each.pod
    kind, workload = workload_of(pod.pod, pod.controller)
    after = datetime.fromtimestamp(each.evict_after, UTC).isoformat() if each.evict_after else ""
    idle = at.timestamp() - pod.last_use if pod.idle_since else 0
    return IdlePodDoc(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        workload_kind=kind,
        workload=workload,
        node=pod.pod.node,
        idle_seconds=max(int(idle), 0),
        outcome=each.outcome,
        evict_after=after,
        reason=each.reason,
    )
