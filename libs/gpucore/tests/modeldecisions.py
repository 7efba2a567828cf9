"""Decisions in the small model are the core's own: its ledger, its filter, its policy.

What a scheduler believes is fed to a real ledger as events; the answer for a belief is remembered.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec
from corebuilders import NAMES, bound, make_gpus, pod, pod_request, share_node
from modelstate import Object, Spot, View, World

from gpucore.accounting.ledger import Ledger
from gpucore.model import Placement
from gpucore.scheduling.filter import filter_nodes
from gpucore.scheduling.policy import place
from gpucore.units import GpuIndex, NodeName
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod

Belief = tuple[tuple[int, View], ...]
"""For each pod its size and what the scheduler believes."""


class Option(NamedTuple):
    """A decision that a scheduler may take now."""

    position: int
    spot: Spot


class Decider:
    """Remembers what the core decides for each belief."""

    def __init__(self, world: World, make: Callable[..., Ledger] = Ledger) -> None:
        self._make = make
        self._inventories = {name: make_gpus(*sizes) for name, sizes in world.nodes.items()}
        self._nodes: list[Node] = [share_node(n, inv) for n, inv in self._inventories.items()]
        self._names = [NodeName(name) for name in world.nodes]
        self._known: dict[Belief, tuple[Option, ...]] = {}
        self._counted: dict[Belief, dict[Spot, int]] = {}

    def options(self, belief: Belief) -> tuple[Option, ...]:
        """Every decision open to a scheduler that believes this; it may take any node that fits."""
        known = self._known.get(belief)
        if known is None:
            known = self._known[belief] = tuple(self._decided(belief))
        return known

    def _decided(self, belief: Belief) -> list[Option]:
        book = self.ledger(belief)
        options = []
        for position, (size, view) in enumerate(belief):
            if view.seen or book.allocation(self._pod(position, size).uid) is not None:
                continue
            wanted = pod_request(self._pod(position, size))
            for name in filter_nodes(book, wanted, self._names)[0]:
                node_info = book.node(name)
                placement = place(node_info, wanted) if node_info else None
                if isinstance(placement, Placement):
                    options.append(Option(position, Spot(name, next(iter(placement.mem)))))
        return options

    def counted(self, belief: Belief) -> dict[Spot, int]:
        """What the ledger of a scheduler that believes this counts on each GPU."""
        known = self._counted.get(belief)
        if known is None:
            book = self.ledger(belief)
            known = self._counted[belief] = {
                Spot(name, index): gpu.used
                for name, node_info in book.nodes().items()
                for index, gpu in node_info.devices.items()
            }
        return known

    def ledger(self, belief: Belief) -> Ledger:
        """A ledger that lived through what this scheduler saw and did."""
        book = self._make(NAMES)
        book.relist_nodes(self._nodes)
        for position, (size, view) in enumerate(belief):
            pending = self._pod(position, size)
            for seen in view.seen:
                self._deliver(book, pending, seen)
            if view.assumed is not None:
                book.assume(pending, _placement(pending, size, view.assumed), now_ns=1)
                book.pod_changed(pending)
        return book

    def _deliver(self, book: Ledger, pending: Pod, seen: Object) -> None:
        if seen.phase == "gone" or seen.spot is None:
            book.pod_gone(pending.uid)
            return
        size = pod_request(pending).mem
        inventory = self._inventories[seen.spot.node]
        written = bound(
            pending, _placement(pending, size, seen.spot), inventory, assigned=seen.assigned
        )
        book.pod_changed(
            msgspec.structs.replace(
                written,
                phase="Failed" if seen.phase == "failed" else "Running",
                terminating=seen.phase == "terminating",
            )
        )

    @staticmethod
    def _pod(position: int, size: int) -> Pod:
        return pod(str(position), size)


def _placement(pending: Pod, size: int, spot: Spot) -> Placement:
    units = {GpuIndex(spot.gpu): size}
    return Placement(NodeName(spot.node), units, {}, {0: units})
