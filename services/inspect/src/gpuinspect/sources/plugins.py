"""GPU memory in use from the device plugins, read through the API server's proxy to their pods.

A reply is data of unknown origin: bounded in size and time, and a plugin counts for its own node
only.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from gpucore.sizing.usage_documents import MOST_BYTES, NodeUsage, decode_usage
from gpucore.wire.errors import WireError
from gpukube.errors import ForbiddenError, KubeError

if TYPE_CHECKING:  # the import takes a while and a snapshot needs no client
    from gpukube.blocking import BlockingClient

SECONDS: Final = 2.0
"""For all plugins together."""
AT_ONCE: Final = 12
MOST_PLUGINS: Final = 2000


class PluginAddress(msgspec.Struct, frozen=True, order=True):
    """Where the plugin of a node serves its metrics; ``scheme`` is ``http`` or ``https``."""

    node: str
    namespace: str
    pod: str
    port: int
    scheme: str = "http"

    @property
    def path(self) -> str:
        """Path of the document at the API server."""
        secure = "https:" if self.scheme == "https" else ""
        where = f"/api/v1/namespaces/{self.namespace}/pods/{secure}{self.pod}:{self.port}"
        return f"{where}/proxy/usage"


class PluginUsage(msgspec.Struct, frozen=True):
    """What the plugins reported.

    Attributes:
        nodes: their documents by node.
        failures: why a plugin has none, by node.
        forbidden: the namespace in which the caller lacks the right; empty where there is none.
    """

    nodes: Mapping[str, NodeUsage] = {}
    failures: Mapping[str, str] = {}
    forbidden: str = ""

    def gpus(self) -> dict[str, float]:
        """Bytes by UUID of the GPU; a UUID that two nodes report counts for neither."""
        found = [gpu for node in self.nodes.values() for gpu in node.gpus]
        times = Counter(gpu.uuid for gpu in found)
        return {gpu.uuid: float(gpu.used_bytes) for gpu in found if times[gpu.uuid] == 1}

    def pods(self, nodes: Mapping[str, str]) -> dict[str, float]:
        """Bytes by ``namespace/name`` of the pod.

        Args:
            nodes: the node of each pod by ``namespace/name``; a plugin counts for those of its own.
        """
        found: dict[str, float] = {}
        for node, usage in self.nodes.items():
            for pod in (pod for gpu in usage.gpus for pod in gpu.pods):
                key = f"{pod.namespace}/{pod.name}"
                if nodes.get(key) == node:
                    found[key] = found.get(key, 0.0) + pod.used_bytes
        return found


class _Reading:
    """One round over all plugins."""

    def __init__(self, kube: "BlockingClient", seconds: float) -> None:
        self._kube, self._until = kube, time.monotonic() + seconds
        self.nodes: dict[str, NodeUsage] = {}
        self.failures: dict[str, str] = {}
        self.forbidden = ""

    def read(self, where: PluginAddress) -> None:
        """Read one plugin, unless the time is over or the right is missing."""
        left = self._until - time.monotonic()
        if self.forbidden or left <= 0:
            self.failures[where.node] = "it was not read in time"
            return
        try:
            raw = self._kube.get_small(where.path, most_bytes=MOST_BYTES, seconds=left)
            usage = decode_usage(raw)
        except ForbiddenError:
            self.forbidden = where.namespace
        except (KubeError, WireError) as error:
            self.failures[where.node] = str(error)
        else:
            if usage.node == where.node:
                self.nodes[where.node] = usage
            else:
                self.failures[where.node] = "it reports another node than its own"


def read_plugins(
    kube: "BlockingClient", plugins: Sequence[PluginAddress], seconds: float = SECONDS
) -> PluginUsage:
    """Memory in use of all nodes whose plugin replies in time.

    Args:
        kube: the API server, with the rights of the caller.
        plugins: where the plugins serve it.
        seconds: for all of them together.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - the import takes a while

    reading = _Reading(kube, seconds)
    asked = _each_node_once(plugins)[:MOST_PLUGINS]
    with ThreadPoolExecutor(max_workers=AT_ONCE) as threads:
        list(threads.map(reading.read, asked))
    return PluginUsage(reading.nodes, reading.failures, reading.forbidden)


def _each_node_once(plugins: Iterable[PluginAddress]) -> list[PluginAddress]:
    """One plugin a node, all of one namespace: any tenant can create a pod with the same labels.

    The namespace is the one with the most of them, which is that of the DaemonSet.
    """
    found = list(plugins)
    counts = Counter(each.namespace for each in found)
    if not counts:
        return []
    chosen = min(counts, key=lambda namespace: (-counts[namespace], namespace))
    by_node = {each.node: each for each in sorted(found, reverse=True) if each.namespace == chosen}
    return [by_node[node] for node in sorted(by_node)]
