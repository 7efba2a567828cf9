"""What was measured of workloads, and the nodes whose unit and GPUs their sizes are counted in."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from gpucore.accounting.node_info import NodeInfo
from gpucore.sizing.history_documents import HISTORIES
from gpucore.units import counted
from gpucore.wire.names import Names
from gpuinspect.cluster import snapshots
from gpuinspect.cluster.collect import NODES, ClusterSource, ListRequest, listed, live
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.release import plugins_in
from gpuinspect.cluster.schedulers import placing_lists
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.cluster.usage_histories import (
    HistorySource,
    ReadHistories,
    by_workload,
    of_snapshot,
)
from gpuinspect.sources.prometheus_histories import prometheus_histories
from gpuinspect.terminal import ages
from gpukube.errors import ForbiddenError
from gpukube.plugin_pods import SELECTOR, plugin_addresses
from gpukube.plugins import read_plugins

if TYPE_CHECKING:
    from gpukube.blocking import BlockingClient

NO_HISTORY: Final = (
    "no memory was measured yet: the device plugin measures the pods of its node from its start on,"
    " and a recommendation needs 1 day and 3 starts of pods, or 7 days and 20 samples; it can tell"
    " pods on one GPU apart only with devicePlugin.hostProcesses=true or in isolation mode driver"
)
_PLUGIN_PODS: Final = ListRequest("Pod", "/api/v1/pods", {"labelSelector": SELECTOR})


class MeasuredCluster(msgspec.Struct, frozen=True):
    """What was read.

    Attributes:
        node_infos: the nodes; empty where only a file of histories was read.
        snapshot: of all pods, where these were wanted.
    """

    histories: ReadHistories
    node_infos: tuple[NodeInfo, ...] = ()
    snapshot: Snapshot | None = None


def measured(
    source: ClusterSource, names: Names, known: ReadHistories | None, *, pods: bool = False
) -> MeasuredCluster:
    """Histories of a snapshot or the plugins of a cluster, unless they are given, and its nodes.

    Args:
        source: a cluster or snapshot; not read where a file of histories is all that is needed.
        known: histories of a file or of Prometheus.
        pods: all pods are needed too.

    Raises:
        InspectError: a file cannot be read.
        KubeError: the pods of the device plugins cannot be listed.
        ConfigError: no credentials are found.
    """
    if source.snapshot is not None:
        snapshot = snapshots.read(source.snapshot)
        return MeasuredCluster(
            known or of_snapshot(snapshot, ages.now().timestamp()),
            _node_infos(snapshot, names),
            snapshot,
        )
    if known is not None and known.source is HistorySource.FILE and not pods:
        return MeasuredCluster(known)
    with source.connect() as kube:
        if pods:
            snapshot = live(kube, placing_lists())
            histories = known or histories_of_plugins(kube, plugins_in(snapshot))
            return MeasuredCluster(histories, _node_infos(snapshot, names), snapshot)
        found = known or histories_of_plugins(kube, listed(kube, _PLUGIN_PODS))
        return MeasuredCluster(found, _node_infos(_nodes(kube), names))


def of_prometheus(url: str, *, namespace: str, days: float, seconds: float) -> ReadHistories:
    """Those that Prometheus scraped from the device plugins.

    Args:
        namespace: empty for all.
        seconds: timeout of each request.

    Raises:
        PrometheusError: Prometheus does not respond or refuses, or has too many pods.
    """
    found = prometheus_histories(url, namespace=namespace, days=days, seconds=seconds)
    return ReadHistories(
        by_workload(found.items, now=0.0),
        source=HistorySource.PROMETHEUS,
        step_seconds=found.step_seconds,
    )


def no_series(scope: str, window: str) -> str:
    """Why Prometheus has no history, and what to do.

    Args:
        scope: the namespaces that were read, in words.
        window: the time that was looked back, as it was given.
    """
    return (
        f"Prometheus has no series gpushare_recorded_bytes of {scope} in {window}: it must scrape"
        " the device plugins as job gpushare-device-plugin (chart value monitoring.enabled), which"
        " record pods with devicePlugin.record.enabled; without a URL of Prometheus, the plugins"
        " are read directly"
    )


def unread_note(histories: ReadHistories) -> str:
    """Nodes whose plugin did not answer, with the first reason; empty where there are none."""
    if not histories.unread:
        return ""
    node, why = histories.unread[0]
    return f"nothing was read of {counted(len(histories.unread), 'node')}, such as {node}: {why}"


def histories_of_plugins(kube: "BlockingClient", plugins: Iterable[msgspec.Raw]) -> ReadHistories:
    """The histories of all nodes; a plugin that does not reply is noted."""
    found = read_plugins(kube, plugin_addresses(plugins), HISTORIES)
    all_nodes = (item for node in found.nodes.values() for item in node.items)
    items = by_workload(all_nodes, ages.now().timestamp())
    return ReadHistories(items, tuple(sorted(found.failures.items())), found.forbidden)


def _nodes(kube: "BlockingClient") -> Snapshot:
    """The nodes; none where the credentials may not list them."""
    try:
        return snapshots.gather([("Node", raw) for raw in listed(kube, NODES)])
    except ForbiddenError:
        return snapshots.gather([])


def _node_infos(snapshot: Snapshot, names: Names) -> tuple[NodeInfo, ...]:
    nodes = msgspec.structs.replace(snapshot, pods=(), raw={})
    return tuple(ledger_of(nodes, names).nodes().values())
