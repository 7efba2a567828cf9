"""Sizes of workloads from their histories, as ``gpushare recommend`` computes them."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo, gpu_sizes
from gpucore.sizing.evidence import SizingRules
from gpucore.wire.pod.controllers import controller_of, workload_of
from gpuinspect.cluster.release import plugins_in
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.cluster.usage_histories import HistorySource, ReadHistories
from gpuinspect.queries.measured import (
    NO_HISTORY,
    histories_of_plugins,
    no_series,
    of_prometheus,
    unread_note,
)
from gpuinspect.queries.recommend import RecommendScope, recommendations, unit_in
from gpuinspect.queries.workload_sizes import SizedWorkload, WorkloadSizes
from gpuinspect.terminal import ages
from gpukube.plugin_pods import plugin_addresses
from gpukube.plugins import RIGHT

if TYPE_CHECKING:
    from gpukube.blocking import BlockingClient

NO_PLUGIN: Final = "no memory was measured: no device plugin of this version runs"
NO_PODS: Final = "no memory was measured: the pods of the device plugin cannot be listed"
IN_A_SNAPSHOT: Final = (
    "no memory was measured: the snapshot has no histories of workloads (kind UsageHistoryList)"
)
DAYS: Final = 7
"""That Prometheus is looked back."""
Histories = Callable[[Snapshot], ReadHistories]


def read_histories(kube: "BlockingClient", snapshot: Snapshot) -> ReadHistories:
    """The histories of the plugins of a cluster, with the rights of the caller."""
    return histories_of_plugins(kube, plugins_in(snapshot))


def series_of_week(url: str, seconds: float, _snapshot: Snapshot) -> ReadHistories:
    """The histories that Prometheus has of the last seven days.

    Args:
        seconds: timeout of each request.

    Raises:
        PrometheusError: Prometheus does not respond or refuses, or has too many pods.
    """
    return of_prometheus(url, namespace="", days=DAYS, seconds=seconds)


def sizes_of(
    read: Histories, *, of_file: bool = False
) -> Callable[[Snapshot, Ledger], WorkloadSizes]:
    """Reads the histories of a cluster and computes the sizes of its workloads.

    Args:
        read: the histories of the cluster in a snapshot.
        of_file: the snapshot is a file.
    """

    def measure(snapshot: Snapshot, ledger: Ledger) -> WorkloadSizes:
        infos = ledger.nodes().values()
        return workload_sizes(read(snapshot), snapshot, infos, of_file=of_file)

    return measure


def workload_sizes(
    histories: ReadHistories, snapshot: Snapshot, node_infos: Iterable[NodeInfo], *, of_file: bool
) -> WorkloadSizes:
    """Sizes of what was measured.

    Args:
        snapshot: the cluster, whose running pods are counted.
        of_file: the histories are those of a snapshot in a file.

    Raises:
        WireError: a pod is none of the Kubernetes API.
    """
    infos = tuple(node_infos)
    unit = unit_in(infos)
    rules = SizingRules(gpu_sizes=gpu_sizes(infos, unit))
    scope = RecommendScope(now=ages.now().timestamp())
    found = recommendations(histories.items, scope, unit, rules)
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
        for pod, raw in snapshot.raw_pods()
        if pod.namespace in namespaces and pod.node and not pod.finished
    )


def _note(histories: ReadHistories, snapshot: Snapshot, *, of_file: bool) -> str:
    if histories.source is HistorySource.PROMETHEUS:
        return "" if histories.items else no_series("any namespace", f"{DAYS} days")
    if of_file:
        return "" if histories.items else IN_A_SNAPSHOT
    if histories.forbidden:
        return f"no memory was measured: {RIGHT.format(histories.forbidden)}"
    if histories.items or histories.unread:
        return unread_note(histories)
    if not plugin_addresses(plugins_in(snapshot)):
        return NO_PODS if "Pod" in snapshot.missing else NO_PLUGIN
    return NO_HISTORY
