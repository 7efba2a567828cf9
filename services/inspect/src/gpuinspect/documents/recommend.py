"""JSON and YAML of ``gpushare recommend``; versions as in :mod:`gpuinspect.documents.inspect`."""

from collections.abc import Sequence

import msgspec

from gpucore.explain.sizing import sizing_sentence
from gpucore.sizing.evidence import SizingRules
from gpucore.sizing.recommendation import Recommendation
from gpucore.sizing.share_size import ContainerSize
from gpucore.wire.documents import API_VERSION
from gpuinspect.cluster.usage_histories import ReadHistories


class ContainerSizeDoc(msgspec.Struct, frozen=True):
    """Units of the request and of the burst limit; ``burst`` is 0 where there is none."""

    request: int
    burst: int


class RecommendationDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One container of a workload.

    ``claims`` is true where the memory is that of ResourceClaims. ``smP95Percent`` is the SM
    utilization that 95 % of the samples did not exceed, and ``null`` where it is unknown.
    ``recommended`` is ``null`` where
    there is no recommendation. ``advice`` is ``raise``, ``shrink``, ``right`` or ``none``;
    ``reason`` names the rule that decided, ``text`` states it.
    """

    namespace: str
    kind: str
    name: str
    container: str
    current: ContainerSizeDoc
    recommended: ContainerSizeDoc | None
    advice: str
    reason: str
    confidence: str
    text: str
    median_bytes: int
    p95_bytes: int
    peak_bytes: int
    days: float
    starts: int
    pods: int
    out_of_memory: int
    capped: bool
    claims: bool
    sm_p95_percent: int | None


class RecommendationList(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of ``gpushare recommend -o json``; ``gaps`` is what could not be read.

    ``source`` is ``plugins``, ``prometheus``, ``file`` or ``snapshot``. ``stepSeconds`` is the time
    between two samples of Prometheus, and 0 for the other sources, which have every sample.
    """

    api_version: str
    kind: str
    unit: str
    percentile: float
    margin_percent: int
    gaps: list[str]
    items: list[RecommendationDoc]
    source: str
    step_seconds: int


def recommendation_list(
    found: Sequence[Recommendation],
    histories: ReadHistories,
    *,
    unit: str,
    rules: SizingRules,
    gaps: Sequence[str],
) -> RecommendationList:
    """The document of the recommendations from these histories."""
    return RecommendationList(
        api_version=API_VERSION,
        kind="RecommendationList",
        unit=unit,
        percentile=rules.percentile,
        margin_percent=rules.margin,
        gaps=list(gaps),
        items=[recommendation_doc(each) for each in found],
        source=str(histories.source),
        step_seconds=histories.step_seconds,
    )


def recommendation_doc(found: Recommendation) -> RecommendationDoc:
    """The document of one recommendation."""
    key = found.key
    return RecommendationDoc(
        namespace=key.namespace,
        kind=key.kind,
        name=key.name,
        container=key.container,
        current=_size(found.current),
        recommended=None if found.size is None else _size(found.size),
        advice=str(found.advice),
        reason=str(found.reason),
        confidence=str(found.confidence),
        text=sizing_sentence(found),
        median_bytes=found.median_bytes,
        p95_bytes=found.p95_bytes,
        peak_bytes=found.peak_bytes,
        days=round(found.days, 3),
        starts=found.starts,
        pods=found.pods,
        out_of_memory=found.out_of_memory,
        capped=found.capped,
        claims=found.claims,
        sm_p95_percent=found.sm_p95_percent,
    )


def _size(size: ContainerSize) -> ContainerSizeDoc:
    return ContainerSizeDoc(size.request, size.burst)
