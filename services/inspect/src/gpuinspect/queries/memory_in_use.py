"""GPU memory in use without Prometheus: what the replies of the device plugins mean."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from gpucore.sizing.usage_documents import USAGE, NodeUsage
from gpucore.units import GIB_BYTES, counted
from gpuinspect.cluster.release import plugins_in
from gpuinspect.cluster.snapshots import Snapshot
from gpukube.plugin_pods import plugin_addresses
from gpukube.plugins import RIGHT, PluginReplies, read_plugins

if TYPE_CHECKING:
    from gpukube.blocking import BlockingClient

NO_PLUGIN: Final = (
    "memory in use is unknown: no device plugin of this version runs; give --prometheus URL"
)
NO_PODS: Final = (
    "memory in use is unknown: the pods of the device plugin cannot be listed; "
    "give --prometheus URL"
)
NO_PROCESSES: Final = (
    "{} in use on {} is of no known pod: on a GPU of several pods, only "
    "devicePlugin.hostProcesses=true or isolation mode driver shows which of them uses memory"
)
IN_A_SNAPSHOT: Final = (
    "memory in use is unknown: a snapshot does not have it; give --prometheus URL"
)


class Figures(msgspec.Struct, frozen=True):
    """Memory in use, in bytes, from Prometheus or the device plugins.

    Attributes:
        pods: by ``namespace/name``.
        gpus: by UUID.
    """

    pods: Mapping[str, float] = {}
    gpus: Mapping[str, float] = {}


NO_FIGURES: Final = Figures()


class MemoryInUse(msgspec.Struct, frozen=True):
    """Memory in use, and why it is not all known.

    Attributes:
        figures: ``None`` where nothing could be read.
        note: a sentence for people; empty where nothing is missing.
    """

    figures: Figures | None = None
    note: str = ""

    @property
    def known(self) -> Figures:
        """The figures; none where nothing could be read."""
        return self.figures or NO_FIGURES


def memory_in_use(kube: "BlockingClient", snapshot: Snapshot) -> MemoryInUse:
    """Memory in use as the plugins report it, with the rights of the caller.

    Args:
        snapshot: its pods, those of the plugins among them.
    """
    plugins = plugin_addresses(plugins_in(snapshot))
    if not plugins:
        return MemoryInUse(note=NO_PODS if "Pod" in snapshot.missing else NO_PLUGIN)
    found = read_plugins(kube, plugins, USAGE)
    if not found.nodes:
        return MemoryInUse(note=missing(found))
    nodes = {f"{pod.namespace}/{pod.name}": pod.node for pod in snapshot.pods if not pod.finished}
    usages = found.nodes.values()
    figures = Figures(_of_pods(found.nodes, nodes), _of_gpus(usages))
    return MemoryInUse(figures, missing(found) or _unattributed(usages))


def _of_gpus(usages: Iterable[NodeUsage]) -> dict[str, float]:
    """Bytes by UUID of the GPU; a UUID that two nodes report counts for neither."""
    found = [gpu for usage in usages for gpu in usage.gpus]
    times = Counter(gpu.uuid for gpu in found)
    return {gpu.uuid: float(gpu.used_bytes) for gpu in found if times[gpu.uuid] == 1}


def _of_pods(usages: Mapping[str, NodeUsage], nodes: Mapping[str, str]) -> dict[str, float]:
    """Bytes by ``namespace/name`` of the pod.

    Args:
        usages: by node.
        nodes: the node of each pod by ``namespace/name``; a plugin counts for those of its own.
    """
    found: dict[str, float] = {}
    for node, usage in usages.items():
        for pod in (pod for gpu in usage.gpus for pod in gpu.pods):
            key = f"{pod.namespace}/{pod.name}"
            if nodes.get(key) == node:
                found[key] = found.get(key, 0.0) + pod.used_bytes
    return found


def _unattributed(usages: Iterable[NodeUsage]) -> str:
    """What to do where memory in use is of no pod, although pods hold the GPU."""
    gpus = [gpu for usage in usages for gpu in usage.gpus if gpu.unattributed_bytes]
    if not gpus or any(pod.used_bytes for gpu in gpus for pod in gpu.pods):
        return ""  # processes are visible: these are of no pod
    size = sum(gpu.unattributed_bytes for gpu in gpus) / GIB_BYTES
    number = counted(len(gpus), "GPU")
    return NO_PROCESSES.format(f"{size:.1f} GiB", number)


def missing(found: PluginReplies[NodeUsage]) -> str:
    """Why memory in use is not all known; empty where it is."""
    if found.forbidden:
        return (
            f"memory in use is unknown: {RIGHT.format(found.forbidden)}; or give --prometheus URL"
        )
    if not found.failures:
        return ""
    number, node = len(found.failures), min(found.failures)
    nodes = f"node {node}" if number == 1 else f"{number} nodes"
    return (
        f"memory in use of {nodes} is unknown: the device plugin of {node} cannot be read: "
        f"{found.failures[node]}"
    )
