"""Used against requested GPU memory of each workload, as ``gpushare recommend`` computes it."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from gpucore.accounting.node_info import NodeInfo
from gpucore.sizing.evidence import SizingRules
from gpucore.sizing.recommendation import Recommendation
from gpucore.sizing.workloads import workload_of
from gpucore.wire.pod.controllers import controller_of
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.cluster.usage_histories import ReadHistories
from gpuinspect.queries.measured import NO_HISTORY, histories_of_plugins, unread_note
from gpuinspect.queries.memory_in_use import RIGHT
from gpuinspect.queries.plugin_pods import plugins_in
from gpuinspect.queries.recommend import RecommendScope, recommendations, sizes_in, unit_in
from gpukube.plugin_pods import plugin_addresses

if TYPE_CHECKING:
    from gpukube.blocking import BlockingClient

NO_PLUGIN: Final = "no memory was measured: no device plugin of this version runs"
NO_PODS: Final = "no memory was measured: the pods of the device plugin cannot be listed"
IN_A_SNAPSHOT: Final = (
    "no memory was measured: the snapshot has no histories of workloads (kind UsageHistoryList)"
)
_GIB: Final = 1 << 30
_MIB_PER_GIB: Final = 1024


class SizedWorkload(msgspec.Struct, frozen=True):
    """One container of a workload.

    Attributes:
        found: what it requests, what it used, and what it should request.
        running: number of its pods that run now.
    """

    found: Recommendation
    running: int

    @property
    def requested(self) -> float:
        """GiB that a pod requests."""
        return self.found.current.request * self.found.unit.mib / _MIB_PER_GIB

    @property
    def waste_of_pod(self) -> float:
        """GiB that a pod requests beyond the most that was ever used."""
        return max(self.requested - self.found.peak_bytes / _GIB, 0.0)

    @property
    def waste(self) -> float:
        """GiB that all running pods request beyond that."""
        return self.waste_of_pod * self.running


class WorkloadSizes(msgspec.Struct, frozen=True):
    """Every container that was measured within a week of the newest sample.

    Attributes:
        items: most waste first.
        note: why there are none, or what could not be read; empty otherwise.
    """

    items: tuple[SizedWorkload, ...] = ()
    note: str = ""


def read_histories(kube: "BlockingClient", snapshot: Snapshot) -> ReadHistories:
    """The histories of the plugins of a cluster, with the rights of the caller."""
    return histories_of_plugins(kube, plugins_in(snapshot))


def workload_sizes(
    histories: ReadHistories, snapshot: Snapshot, node_infos: Iterable[NodeInfo], *, of_file: bool
) -> WorkloadSizes:
    """Sizes of what was measured.

    Args:
        histories: of the workloads.
        snapshot: the cluster, whose running pods are counted.
        node_infos: its nodes.
        of_file: the histories are those of a snapshot in a file.

    Raises:
        WireError: a pod is none of the Kubernetes API.
    """
    infos = tuple(node_infos)
    rules = SizingRules(gpu_sizes=sizes_in(infos))
    found = recommendations(histories.items, RecommendScope(), unit_in(infos), rules)
    running = _running(snapshot, {each.key.namespace for each in found})
    items = [
        SizedWorkload(each, running[each.key.namespace, each.key.kind, each.key.name])
        for each in found
    ]
    items.sort(key=lambda each: (-each.waste, -each.waste_of_pod, each.found.key))
    return WorkloadSizes(tuple(items), _note(histories, snapshot, of_file=of_file))


def _running(snapshot: Snapshot, namespaces: set[str]) -> Counter[tuple[str, str, str]]:
    """Number of pods that run by namespace, kind and name of the workload."""
    return Counter(
        (pod.namespace, *workload_of(pod, controller_of(raw)))
        for pod, raw in zip(snapshot.pods, snapshot.all("Pod"), strict=True)
        if pod.namespace in namespaces and pod.node and not pod.finished
    )


def _note(histories: ReadHistories, snapshot: Snapshot, *, of_file: bool) -> str:
    if of_file:
        return "" if histories.items else IN_A_SNAPSHOT
    if histories.forbidden:
        return f"no memory was measured: {RIGHT.format(histories.forbidden)}"
    if histories.items or histories.unread:
        return unread_note(histories)
    if not plugin_addresses(plugins_in(snapshot)):
        return NO_PODS if "Pod" in snapshot.missing else NO_PLUGIN
    return NO_HISTORY
