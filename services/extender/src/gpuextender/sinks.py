"""Where reflectors put what they follow: into the state, each kind in its own words."""

from collections.abc import Iterable

from gpucore.units import NodeName
from gpucore.wire.names import UNHEALTHY_KEY
from gpucore.wire.nodes import Node, kept_by_plugin, unhealthy_node
from gpucore.wire.pods import Pod
from gpuextender.configmaps import ConfigMap
from gpuextender.state import State


class NodeSink:
    """Nodes into the state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def replace(self, items: Iterable[Node]) -> None:
        self._state.relist_nodes(items)

    def changed(self, item: Node) -> None:
        self._state.node_changed(item)

    def gone(self, item: Node) -> None:
        self._state.node_gone(item.name)


class PodSink:
    """Pods into the state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def replace(self, items: Iterable[Pod]) -> None:
        self._state.relist_pods(items)

    def changed(self, item: Pod) -> None:
        self._state.pod_changed(item)

    def gone(self, item: Pod) -> None:
        self._state.pod_gone(item)


class ConfigMapSink:
    """The legacy lists of unhealthy cards into the state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._named: set[NodeName] = set()

    def replace(self, items: Iterable[ConfigMap]) -> None:
        vanished, self._named = self._named, set()
        for item in items:
            self.changed(item)
        for node in vanished - self._named:
            self._state.unhealthy_changed(node, "")

    def changed(self, item: ConfigMap) -> None:
        node = unhealthy_node(item.name)
        if node is not None:
            self._named.add(node)
            said = "" if kept_by_plugin(item.labels) else item.data.get(UNHEALTHY_KEY, "")
            self._state.unhealthy_changed(node, said)

    def gone(self, item: ConfigMap) -> None:
        node = unhealthy_node(item.name)
        if node is not None:
            self._named.discard(node)
            self._state.unhealthy_changed(node, "")
