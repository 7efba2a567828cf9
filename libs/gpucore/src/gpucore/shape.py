"""What a node is, apart from who holds it: cards, offers, limits, policy.

Heartbeats change a node object every few seconds and its shape almost never; comparing shapes keeps
those events cheap. Labels that say nothing sensible are faults to report, never an error.
"""

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Final

import msgspec

from gpucore.cards import CardAccount
from gpucore.model import Gpu, Inventory
from gpucore.topology.codec import joined
from gpucore.topology.links import Matrix
from gpucore.units import GpuIndex, GpuUuid, MemoryUnit
from gpucore.wire import names as wire_names
from gpucore.wire.digits import number
from gpucore.wire.names import Names
from gpucore.wire.nodes import Node, inventory_of
from gpucore.wire.quantity import amount

MACHINES: Final = 1024
"""Kinds of machines whose links are kept read."""


class NodeShape(msgspec.Struct, frozen=True, dict=True):
    """What accounting and placement need to know of a node.

    Attributes:
        present: the node exists.
        inventory: its cards; ``None`` where nothing says how many there are.
        offers_shares: kubelet knows the resource of memory units here.
        offers_cards: kubelet knows the resource of whole cards here.
        policy: name that its label asks for; empty for the default.
        max_pods: pods a card takes; 0 any number.
        oversell: how many times a card's memory may be given out.
        unhealthy: cards that the legacy ConfigMap withdraws.
        node_type: which sets of cards are configured for it; empty for none.
        topology: links as the 2019 plugin wrote them, where the inventory has none.
        faults: labels that say nothing sensible, in words.
    """

    present: bool = True
    inventory: Inventory | None = None
    offers_shares: bool = False
    offers_cards: bool = False
    policy: str = ""
    max_pods: int = 0
    oversell: int = 1
    unhealthy: frozenset[GpuIndex] = frozenset()
    node_type: str = ""
    topology: str = ""
    faults: tuple[str, ...] = ()

    @property
    def unit(self) -> MemoryUnit | None:
        """The size of a unit; ``None`` where nobody has said."""
        return self.inventory.unit if self.inventory else None

    @property
    def largest_card(self) -> int:
        """Units of the largest card, oversell included."""
        gpus = self.inventory.gpus if self.inventory else ()
        return max((gpu.units for gpu in gpus), default=0) * self.oversell

    @cached_property
    def matrix(self) -> Matrix:
        """How its cards are joined; read when somebody first asks for several cards."""
        if self.inventory is None:
            return Matrix(gpus=())
        cards = tuple((gpu.index, gpu.numa) for gpu in self.inventory.gpus)
        return _matrix(cards, tuple(self.inventory.links.items()), self.topology)

    def open_cards(self) -> dict[GpuIndex, CardAccount]:
        """Empty books of every card, in order of index."""
        gpus = self.inventory.gpus if self.inventory else ()
        return {
            gpu.index: CardAccount.of(
                gpu,
                oversell=self.oversell,
                healthy=gpu.healthy and gpu.index not in self.unhealthy,
                max_pods=self.max_pods,
            )
            for gpu in gpus
        }

    def counted(self, amount: int, unit: MemoryUnit | None) -> int:
        """``amount`` of ``unit`` in units of this node, rounded up where they do not divide."""
        mine = self.unit
        if unit is None or mine is None or unit == mine:
            return amount
        return mine.units_for(amount * unit.mib)


ABSENT = NodeShape(present=False)


@lru_cache(MACHINES)
def _matrix(
    cards: tuple[tuple[GpuIndex, int], ...],
    links: tuple[tuple[str, tuple[str, ...]], ...],
    text: str,
) -> Matrix:
    """The matrix of all nodes whose cards (index and NUMA node) are joined alike: one reading."""
    gpus = tuple(Gpu(index, GpuUuid(""), 0, numa=numa) for index, numa in cards)
    return joined(Inventory(gpus=gpus, links=dict(links)), text)


def shape_of(node: Node, names: Names, unhealthy: frozenset[GpuIndex]) -> NodeShape:
    """The shape that a node object says.

    Raises:
        WireError: a capacity is no Kubernetes quantity (the API server accepts no such node).
    """
    faults: list[str] = []
    inventory = inventory_of(node, names)
    silent = inventory is not None and not inventory.links
    return NodeShape(
        inventory=inventory,
        offers_shares=amount(node.capacity.get(names.gpu_mem, "0")) > 0,
        offers_cards=amount(node.capacity.get(names.gpu, "0")) > 0,
        policy=_policy(node.labels, faults),
        max_pods=_positive(node.labels, wire_names.LABEL_MAX_POD, 0, faults),
        oversell=_positive(node.labels, wire_names.LABEL_OVERSELL, 1, faults),
        unhealthy=unhealthy,
        node_type=node.annotations.get(wire_names.NODE_TYPE, ""),
        topology=node.annotations.get(wire_names.NODE_TOPOLOGY, "") if silent else "",
        faults=tuple(faults),
    )


def _policy(labels: Mapping[str, str], faults: list[str]) -> str:
    name = labels.get(wire_names.LABEL_PLACEMENT, "")
    if not name or name in wire_names.POLICY_NAMES:
        return name
    faults.append(f"label {wire_names.LABEL_PLACEMENT} names no policy")
    return ""


def _positive(labels: Mapping[str, str], key: str, default: int, faults: list[str]) -> int:
    text = labels.get(key)
    if text is None:
        return default
    value = number(text, below=1 << 10)
    if value:
        return value
    faults.append(f"label {key} is no number from 1 to 1023")
    return default
