"""Documents of the device plugins, read through the API server's proxy to their pods.

A reply is data of unknown origin: bounded in size and time, and a plugin counts for its own node
only.
"""

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Generic

import msgspec

from gpucore.wire.documents import DocT, PluginDocument
from gpucore.wire.errors import WireError
from gpukube.errors import ForbiddenError, KubeError
from gpukube.plugin_pods import PluginAddress, plugin_namespace

if TYPE_CHECKING:  # the import takes a while and a snapshot needs no client
    from gpukube.blocking import BlockingClient

AT_ONCE: Final = 12
MOST_PLUGINS: Final = 2000
NOT_IN_TIME: Final = "it was not read in time"
NOT_RUNNING: Final = "its plugin's pod is not running"
RIGHT: Final = "the right to get pods/proxy in namespace {} is missing"


class PluginReplies(msgspec.Struct, Generic[DocT], frozen=True):
    """What the plugins replied.

    Attributes:
        nodes: their documents by node.
        failures: why a plugin has none, by node.
        forbidden: the namespace in which the caller lacks the right; empty where there is none.
    """

    nodes: Mapping[str, DocT]
    failures: Mapping[str, str]
    forbidden: str = ""


class _Reading(Generic[DocT]):
    """One round over all plugins."""

    def __init__(self, kube: "BlockingClient", document: PluginDocument[DocT]) -> None:
        self._kube, self._document = kube, document
        self._until = time.monotonic() + document.seconds
        self.nodes: dict[str, DocT] = {}
        self.failures: dict[str, str] = {}
        self.forbidden = ""

    def read(self, where: PluginAddress) -> None:
        """Read one plugin that runs, unless the time is over or the right is missing."""
        if not where.running:
            self.failures[where.node] = NOT_RUNNING
            return
        if self.forbidden:
            self.failures[where.node] = RIGHT.format(self.forbidden)
            return
        left = self._until - time.monotonic()
        if left <= 0:
            self.failures[where.node] = NOT_IN_TIME
            return
        try:
            found = self._document.decode(self._raw(where, left))
        except ForbiddenError as error:
            self.forbidden = where.namespace
            self.failures[where.node] = str(error)
        except (KubeError, WireError) as error:
            self.failures[where.node] = str(error)
        else:
            self._keep(where, found)

    def _raw(self, where: PluginAddress, seconds: float) -> bytes:
        path = where.path(self._document.path)
        return self._kube.get_small(path, most_bytes=self._document.most_bytes, seconds=seconds)

    def _keep(self, where: PluginAddress, found: DocT) -> None:
        if found.node == where.node:
            self.nodes[where.node] = found
        else:
            self.failures[where.node] = f"it reports another node than its own, {found.node!r}"


def read_plugins(
    kube: "BlockingClient", plugins: Iterable[PluginAddress], document: PluginDocument[DocT]
) -> PluginReplies[DocT]:
    """A document of every node whose plugin replies in time.

    A node whose plugin does not run is a failure as well.

    Args:
        kube: the API server, with the rights of the caller.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - the import takes a while

    reading = _Reading(kube, document)
    chosen = _each_node_once(plugins)
    with ThreadPoolExecutor(max_workers=AT_ONCE) as threads:
        list(threads.map(reading.read, chosen[:MOST_PLUGINS]))
    beyond = f"only {MOST_PLUGINS} nodes are read"
    failures = {**reading.failures, **{each.node: beyond for each in chosen[MOST_PLUGINS:]}}
    return PluginReplies(reading.nodes, failures, reading.forbidden)


def _each_node_once(plugins: Iterable[PluginAddress]) -> list[PluginAddress]:
    """One plugin a node, all of one namespace: any tenant can create a pod with the same labels."""
    found = list(plugins)
    chosen = plugin_namespace(found)
    by_node = {each.node: each for each in sorted(found, reverse=True) if each.namespace == chosen}
    return [by_node[node] for node in sorted(by_node)]
