"""JSON and YAML of ``gpushare explain deploy/NAME`` and the like."""

from collections.abc import Iterable, Sequence

import msgspec

from gpucore.wire.documents import API_VERSION, Document
from gpuinspect.queries.workloads import Alike, WorkloadRef


class AlikeDoc(msgspec.Struct, frozen=True, rename="camel"):
    """Pods in one state for one reason; ``helps`` is of the first."""

    state: str
    reason: str
    request_summary: str
    pods: list[str]
    helps: list[str]


class WorkloadExplanation(Document, frozen=True):
    """Where the pods of a workload stand, those that wait first.

    ``notCreated`` is why its controller could not create pods; ``gaps`` is what could not be read.
    """

    workload: str
    namespace: str
    name: str
    not_created: str
    gaps: list[str]
    groups: list[AlikeDoc]


def workload_explanation(
    ref: WorkloadRef, groups: Iterable[Alike], *, not_created: str, gaps: Sequence[str]
) -> WorkloadExplanation:
    """The document of one workload."""
    return WorkloadExplanation(
        api_version=API_VERSION,
        kind="WorkloadExplanation",
        workload=ref.kind,
        namespace=ref.namespace,
        name=ref.name,
        not_created=not_created,
        gaps=list(gaps),
        groups=[_group(group) for group in groups],
    )


def _group(group: Alike) -> AlikeDoc:
    first = group.pods[0]
    return AlikeDoc(
        state=group.state.label,
        reason=group.reason,
        request_summary=first.found.request_summary,
        pods=[each.pod.name for each in group.pods],
        helps=list(first.found.helps),
    )
