"""JSON and YAML of ``gpushare idle``, also with ``--evict`` or ``--dry-run``.

Versions as in :mod:`gpuinspect.documents.inspect`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from gpucore.wire.documents import API_VERSION, Document
from gpucore.wire.pod.controllers import workload_of
from gpuinspect.idle.outcomes import IdlePodOutcome, IdleRun
from gpuinspect.queries.idle import IdleShare, IdleShares


class IdleShareDoc(msgspec.Struct, frozen=True, rename="camel"):
    """A pod that holds GPU memory and does not use it, or runs no work on its GPUs.

    ``usedBytes`` is memory in use, by a pod that runs no work.
    ``gpus`` is the part of GPUs that it holds, ``gpuHours`` that part times the idle time, ``cost``
    at the given price; ``since`` is its creation, RFC 3339.
    """

    namespace: str
    name: str
    uid: str
    workload_kind: str
    workload: str
    node: str
    units: int
    gpus: float
    idle_seconds: int
    gpu_hours: float
    cost: float
    since: str
    used_bytes: int


class IdleShareList(Document, frozen=True):
    """The answer of ``gpushare idle -o json``.

    ``namespace`` is empty for all namespaces; ``unit`` is that of ``units``; ``allowed`` is the
    number of idle pods that are left out by their label, ``unknown`` that of pods whose memory in
    use is not known; ``gaps`` is what could not be read.
    """

    namespace: str
    unit: str
    allowed: int
    unknown: int
    gaps: list[str]
    items: list[IdleShareDoc]


def idle_share_list(
    found: IdleShares, *, namespace: str, price: float, gaps: Sequence[str]
) -> IdleShareList:
    """The document of idle shares."""
    return IdleShareList(
        api_version=API_VERSION,
        kind="IdleShareList",
        namespace=namespace,
        unit=str(found.unit),
        allowed=found.allowed,
        unknown=found.unknown,
        gaps=list(gaps),
        items=[_doc(share, price) for share in found.shares],
    )


def _doc(share: IdleShare, price: float) -> IdleShareDoc:
    return IdleShareDoc(
        namespace=share.namespace,
        name=share.name,
        uid=share.uid,
        workload_kind=share.kind,
        workload=share.workload,
        node=share.node,
        units=share.units,
        gpus=round(share.gpus, 4),
        idle_seconds=int(share.idle_seconds),
        gpu_hours=round(share.gpu_hours, 4),
        cost=round(share.cost(price), 2),
        since=share.since,
        used_bytes=share.used_bytes,
    )


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


class IdleEvictionDoc(Document, frozen=True):
    """The answer of ``gpushare idle --evict`` and ``--dry-run``.

    ``applied`` is false for a dry run; ``stopped`` is why the run ended early, empty where it did
    not; ``gaps`` is what could not be read.
    """

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
        items=[_pod_doc(each, at) for each in run.outcomes],
    )


def _pod_doc(each: IdlePodOutcome, at: datetime) -> IdlePodDoc:
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
