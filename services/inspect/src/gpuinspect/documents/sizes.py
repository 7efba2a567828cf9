"""JSON of used against requested memory, which the dashboard serves at ``/api/v1/sizes``."""

import msgspec

from gpucore.wire.documents import API_VERSION
from gpuinspect.documents.recommend import RecommendationDoc, recommendation_doc
from gpuinspect.queries.workload_sizes import SizedWorkload, WorkloadSizes


class SizedWorkloadDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One container of a workload; waste is in GiB.

    ``runningPods`` is the number of its pods that run now. ``wastePerPodGiB`` is what a pod
    requests beyond the most that was ever used, ``wasteGiB`` that of all running pods.
    """

    recommendation: RecommendationDoc
    running_pods: int
    waste_per_pod: float = msgspec.field(name="wastePerPodGiB")
    waste: float = msgspec.field(name="wasteGiB")


class WorkloadSizeList(msgspec.Struct, frozen=True, rename="camel"):
    """Used against requested memory of each workload, most waste first.

    ``unit`` is that of requests and limits. ``note`` is why there are no items, or what could not
    be read; empty where nothing is missing. ``reading`` is true until the first read has ended.
    """

    api_version: str
    kind: str
    unit: str
    note: str
    reading: bool
    items: tuple[SizedWorkloadDoc, ...]


def workload_size_list(sizes: WorkloadSizes | None, unit: str) -> WorkloadSizeList:
    """The document of what was read; of nothing while it is being read.

    Args:
        sizes: of the workloads.
        unit: of requests where there are no items.
    """
    known = sizes or WorkloadSizes()
    units = {str(each.found.unit) for each in known.items}
    return WorkloadSizeList(
        api_version=API_VERSION,
        kind="WorkloadSizeList",
        unit=units.pop() if units else unit,
        note=known.note,
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
