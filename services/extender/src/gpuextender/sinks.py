"""Event handlers of the informers: they enter each kind of object into the state."""

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

    def on_replace(self, items: Iterable[Node]) -> None:
        self._state.relist_nodes(items)

    def on_update(self, item: Node, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        self._state.node_changed(item)

    def on_delete(self, item: Node) -> None:
        self._state.node_gone(item.name)


class PodSink:
    """Pods into the state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def on_replace(self, items: Iterable[Pod]) -> None:
        self._state.relist_pods(items)

    def on_update(self, item: Pod, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        self._state.pod_changed(item)

    def on_delete(self, item: Pod) -> None:
        self._state.pod_gone(item)


class ConfigMapSink:
    """The legacy lists of unhealthy cards into the state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._named: set[NodeName] = set()

    def on_replace(self, items: Iterable[ConfigMap]) -> None:
        vanished, self._named = self._named, set()
        for item in items:
            self.on_update(item, b"")
        for node in vanished - self._named:
            self._state.unhealthy_changed(node, "")

    def on_update(self, item: ConfigMap, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        node = unhealthy_node(item.name)
        if node is not None:
            self._named.add(node)
            said = "" if kept_by_plugin(item.labels) else item.data.get(UNHEALTHY_KEY, "")
            self._state.unhealthy_changed(node, said)

    def on_delete(self, item: ConfigMap) -> None:
        node = unhealthy_node(item.name)
        if node is not None:
            self._named.discard(node)
            self._state.unhealthy_changed(node, "")
