"""This plugin's own Node object.

Its labels choose the resources, its annotations are what was published.
"""

from collections.abc import Collection, Iterable, Mapping

from gpucore.node.allocation.device_ids import SHARES, Resource
from gpucore.wire import names as wire_names
from gpucore.wire.node.spec import Node
from gpudeviceplugin.signals import Signal


class NodeWatch:
    """The event handler of the informer of one Node."""

    def __init__(self, changed: Signal) -> None:
        self.node: Node | None = None
        self._changed = changed

    def on_replace(self, items: Iterable[Node]) -> None:
        """Take the node, or nothing while it is not registered."""
        self.node = next(iter(items), None)
        self._changed.fire()

    def on_update(self, item: Node, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        """Take the node as it is now."""
        self.node = item
        self._changed.fire()

    def on_delete(self, item: Node) -> None:  # noqa: ARG002 - the protocol's
        """The node was deleted."""
        self.node = None
        self._changed.fire()


def resources_of(labels: Mapping[str, str]) -> Collection[Resource]:
    """The resources that a node with these labels offers: shares, exclusive GPUs, or both."""
    wanted: list[Resource] = []
    if labels.get(wire_names.LABEL_SHARE) == "true":
        wanted += SHARES
    if labels.get(wire_names.LABEL_TOPOLOGY) == "true":
        wanted.append(Resource.GPU)
    return wanted
