"""This plugin's own Node object.

Its labels choose the resources, its annotations are what was published.
"""

from collections.abc import Collection, Mapping

from gpucore.node.devices import SHARES, Resource
from gpucore.wire import names as wire_names
from gpucore.wire.digits import number
from gpucore.wire.lists import Kind
from gpucore.wire.nodes import Node
from gpudeviceplugin.state import Signal

MOST_OVERSELL = 16


class NodeWatch:
    """The sink of a reflector on one Node."""

    def __init__(self, changed: Signal) -> None:
        self.node: Node | None = None
        self._changed = changed

    def listed(self, items: tuple[Node, ...]) -> None:
        """The node, or nothing while it is not registered."""
        self.node = items[0] if items else None
        self._changed.fire()

    def happened(self, kind: Kind, item: Node, raw: bytes) -> None:  # noqa: ARG002 - a sink's shape
        """The node came, changed or went."""
        self.node = None if kind is Kind.DELETED else item
        self._changed.fire()


def resources_of(labels: Mapping[str, str]) -> Collection[Resource]:
    """What a node with these labels offers: shares, whole cards, or both."""
    wanted: list[Resource] = []
    if labels.get(wire_names.LABEL_SHARE) == "true":
        wanted += SHARES
    if labels.get(wire_names.LABEL_TOPOLOGY) == "true":
        wanted.append(Resource.GPU)
    return wanted


def oversell_of(labels: Mapping[str, str]) -> int:
    """How many times over memory is offered; anything but a small number means once."""
    text = labels.get(wire_names.LABEL_OVERSELL, "1")
    return min(number(text, below=1 << 16) or 1, MOST_OVERSELL)
