"""JSON and YAML of ``gpushare pending``; versions as in :mod:`gpuinspect.documents.inspect`."""

from collections.abc import Iterable, Sequence

import msgspec

from gpucore.explain.documents import RequestDoc, request_doc
from gpucore.wire.documents import API_VERSION, Document
from gpuinspect.queries.scheduling_status import SchedulingStatus


class PendingPodDoc(msgspec.Struct, frozen=True, rename="camel"):
    """A pod that waits; ``since`` is its creation, RFC 3339."""

    namespace: str
    name: str
    uid: str
    since: str
    state: str
    request_summary: str
    reason: str
    helps: list[str]
    scheduler: str
    request: RequestDoc


class PendingPodList(Document, frozen=True):
    """The answer of ``gpushare pending -o json``.

    ``namespace`` is empty for all namespaces; ``gaps`` is what could not be read.
    """

    namespace: str
    gaps: list[str]
    items: list[PendingPodDoc]


def pending_pod_list(
    waiting: Iterable[SchedulingStatus], *, namespace: str, gaps: Sequence[str]
) -> PendingPodList:
    """The document of waiting pods."""
    items = [_pod(each) for each in waiting]
    return PendingPodList(API_VERSION, "PendingPodList", namespace, list(gaps), items)


def _pod(status: SchedulingStatus) -> PendingPodDoc:
    pod, found = status.pod, status.found
    return PendingPodDoc(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        since=pod.creation,
        state=status.state.label,
        request_summary=found.request_summary,
        reason=status.reason,
        helps=list(found.helps),
        scheduler=pod.scheduler_name,
        request=request_doc(status.pod_request),
    )
