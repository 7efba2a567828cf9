"""Pods with GPUs, and what the device plugins measured of them."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from gpucore.sizing.idle_eviction import MeasuredPod
from gpucore.sizing.usage_documents import USAGE, NodeUsage
from gpucore.wire.names import Names
from gpucore.wire.pod.controllers import controller_of
from gpuinspect.cluster.collect import CLAIM_LISTS, live
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.release import plugins_in
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.errors import InspectError
from gpuinspect.idle.outcomes import MeasuredPods
from gpuinspect.queries.idle import holders, latest
from gpuinspect.queries.memory_in_use import NO_PLUGIN, missing
from gpuinspect.queries.shares import view_of_gpus
from gpukube.plugin_pods import plugin_addresses
from gpukube.plugins import PluginReplies, read_plugins

if TYPE_CHECKING:  # the import takes a while and a snapshot needs no client
    from gpukube.blocking import BlockingClient

NEEDED: Final = frozenset(one.kind for one in CLAIM_LISTS)
"""Lists without which a GPU could seem unused that a claim holds."""


class IdleSelection(msgspec.Struct, frozen=True):
    """Which pods, and whose word counts.

    Attributes:
        namespace: of the pods; empty for all.
        plugin_namespace: of the device plugins. Pods of other namespaces that look like one are
            not read: any tenant can create them.
        matches: whether pods of a node with these labels are meant.
    """

    namespace: str
    plugin_namespace: str
    matches: Callable[[Mapping[str, str]], bool]


def measured_pods(kube: "BlockingClient", names: Names, chosen: IdleSelection) -> MeasuredPods:
    """The pods as they are now.

    Raises:
        InspectError: what holds GPUs is not all known.
        KubeError: nodes or pods cannot be listed.
    """
    snapshot = live(kube, CLAIM_LISTS)
    nodes = tuple(node for node in snapshot.nodes if chosen.matches(node.labels))
    snapshot = msgspec.structs.replace(snapshot, nodes=nodes)
    for kind in NEEDED & snapshot.missing.keys():
        raise InspectError(f"allocations are unknown: {snapshot.missing[kind]}")
    plugins = [
        each
        for each in plugin_addresses(plugins_in(snapshot))
        if each.namespace == chosen.plugin_namespace
    ]
    replies = read_plugins(kube, plugins, USAGE)
    note = missing(replies) if plugins else f"{NO_PLUGIN} in namespace {chosen.plugin_namespace}"
    pods = tuple(_measured(snapshot, replies, names, chosen))
    return MeasuredPods(pods, {each.node: each for each in plugins}, note)


def measured_again(kube: "BlockingClient", pod: MeasuredPod, found: MeasuredPods) -> MeasuredPod:
    """The pod with what the plugin of its node reports now; the object is that of the first read.

    That it has not changed since is a precondition of whatever is done to it.
    """
    plugin = found.plugins.get(pod.pod.node)
    replies = read_plugins(kube, [plugin] if plugin else [], USAGE)
    usage = replies.nodes.get(pod.pod.node)
    since = _idle_since(pod, usage) if usage else None
    measured_at = usage.measured_at if usage else 0.0
    return msgspec.structs.replace(pod, idle_since=since, measured_at=measured_at)


def _idle_since(pod: MeasuredPod, usage: NodeUsage) -> float | None:
    """As at the first read, of as many GPUs."""
    rows = [
        row
        for gpu in usage.gpus
        for row in gpu.pods
        if (row.namespace, row.name) == (pod.namespace, pod.name)
    ]
    if len(rows) < pod.gpus:
        return None
    return latest([row.idle_since for row in rows])


def _measured(
    snapshot: Snapshot, replies: PluginReplies[NodeUsage], names: Names, chosen: IdleSelection
) -> Iterator[MeasuredPod]:
    pairs = snapshot.raw_pods()
    pods = {
        str(pod.uid): (pod, raw) for pod, raw in pairs if chosen.namespace in {"", pod.namespace}
    }
    view = view_of_gpus(ledger_of(snapshot, names), snapshot.nodes)
    for node, held, times in holders(view, replies):
        if held.uid in pods:
            pod, raw = pods[held.uid]
            usage = replies.nodes.get(node.name)
            at = usage.measured_at if usage else 0.0
            gpus = len(held.gpus)
            yield MeasuredPod(pod, controller_of(raw), times.no_memory_since, at, gpus)
