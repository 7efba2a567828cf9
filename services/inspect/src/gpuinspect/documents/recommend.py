"""JSON and YAML of ``gpushare recommend``, also with ``--whatif``, and of the sizes of workloads.

Versions as in :mod:`gpuinspect.documents.inspect`. The dashboard serves the sizes of workloads,
used against requested memory, at ``/api/v1/sizes``.
"""

from collections.abc import Sequence

import msgspec

from gpucore.explain.sizing import sizing_sentence
from gpucore.sizing.evidence import SizingRules
from gpucore.sizing.recommendation import Recommendation
from gpucore.sizing.share_size import ContainerSize
from gpucore.wire.documents import API_VERSION, Document
from gpuinspect.cluster.usage_histories import ReadHistories
from gpuinspect.queries.repacked import HOURS_A_MONTH, SizesEffect
from gpuinspect.queries.workload_sizes import SizedWorkload, WorkloadSizes


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


class RecommendationList(Document, frozen=True):
    """The answer of ``gpushare recommend -o json``.

    ``gaps`` is what could not be read, and the units of nodes that count in different ones.

    ``source`` is ``plugins``, ``prometheus``, ``file`` or ``snapshot``. ``stepSeconds`` is the time
    between two samples of Prometheus, and 0 for the other sources, which have every sample.
    """

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


class SizedWorkloadDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One container of a workload; waste is in GiB.

    ``runningPods`` is the number of its pods that run now. ``wastePerPodGiB`` is what a pod
    requests beyond the most that was ever used, ``wasteGiB`` that of all running pods.
    """

    recommendation: RecommendationDoc
    running_pods: int
    waste_per_pod: float = msgspec.field(name="wastePerPodGiB")
    waste: float = msgspec.field(name="wasteGiB")


class WorkloadSizeList(Document, frozen=True):
    """Used against requested memory of each workload, most waste first.

    ``unit`` is that of requests and limits. ``note`` is why there are no items, or what could not
    be read; empty where nothing is missing. ``error`` is why the cluster cannot be read any more,
    so that the document is stale; empty while reads succeed. ``reading`` is true until the first
    read has ended.
    """

    unit: str
    note: str
    error: str
    reading: bool
    items: tuple[SizedWorkloadDoc, ...]


def workload_size_list(sizes: WorkloadSizes | None, unit: str, *, error: str) -> WorkloadSizeList:
    """The document of what was read; of nothing while it is being read.

    Args:
        unit: of requests where there are no items.
        error: why the cluster cannot be read; empty while reads succeed.
    """
    known = sizes or WorkloadSizes()
    units = {str(each.found.unit) for each in known.items}
    return WorkloadSizeList(
        api_version=API_VERSION,
        kind="WorkloadSizeList",
        unit=units.pop() if units else unit,
        note=known.note,
        error=error,
        reading=sizes is None,
        items=tuple(_item(each) for each in known.items),
    )


def _item(each: SizedWorkload) -> SizedWorkloadDoc:
    return SizedWorkloadDoc(
        recommendation=recommendation_doc(each.found),
        running_pods=each.running,
        waste_per_pod=round(each.waste_of_pod, 3),
        waste=round(each.waste, 3),
    )


class SizesEffectDoc(Document, frozen=True):
    """The answer of ``gpushare recommend --whatif -o json``.

    ``gpusInUse`` is now, ``gpusSameSizes`` and ``gpusRecommended`` after all pods were placed anew.
    ``fitting`` are the pending pods that fit with the recommended sizes. ``peaksTogether`` is
    ``null``: the histories have amounts without times. ``cost`` is that of the freed GPUs in a
    month of ``hoursPerMonth`` hours.
    """

    gpus: int
    gpus_in_use: int
    gpus_same_sizes: int
    gpus_recommended: int
    gpus_freed: int
    pods_resized: int
    pods_pending: int
    fitting_now: int
    fitting_same_sizes: int
    fitting: list[str]
    unplaced: list[str]
    gpus_overcommitted: int
    peaks_together: list[str] | None
    price: float
    hours_per_month: int
    cost: float
    notes: list[str]


def sizes_effect_doc(effect: SizesEffect, *, price: float, notes: list[str]) -> SizesEffectDoc:
    """The document of the effect of the recommended sizes."""
    return SizesEffectDoc(
        api_version=API_VERSION,
        kind="SizesEffect",
        gpus=effect.gpus,
        gpus_in_use=effect.in_use,
        gpus_same_sizes=effect.same_sizes,
        gpus_recommended=effect.recommended_sizes,
        gpus_freed=effect.freed,
        pods_resized=effect.resized,
        pods_pending=effect.waiting,
        fitting_now=effect.fitting_now,
        fitting_same_sizes=effect.fitting_same,
        fitting=list(effect.fitting),
        unplaced=list(effect.unplaced),
        gpus_overcommitted=effect.overcommitted,
        peaks_together=None,
        price=price,
        hours_per_month=HOURS_A_MONTH,
        cost=effect.monthly(price),
        notes=notes,
    )
