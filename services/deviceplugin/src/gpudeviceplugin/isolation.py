"""Follows what is asked of the cards' isolation, and lets their daemons follow it.

What is asked is decided in :mod:`gpucore.node.modes`: setting, label, word for one card; a card in
use keeps its mode, and after a restart goes on with the one that was published. Until the Node has
been seen nothing is known, and nothing is offered: a card must not be published as open first and
as isolated a moment later.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from gpucore.model import Inventory, Rung
from gpucore.node.modes import Wish, ignores_limits, incapable, published, settled, wish
from gpucore.wire.nodes import Node
from gpudeviceplugin.mps.fleet import Fleet
from gpudeviceplugin.nodewatch import NodeWatch
from gpudeviceplugin.state import NodeState, nobody

log = structlog.get_logger()

LOOK_SECONDS: Final = 2.0


class Isolation:
    """The rung of every card.

    Args:
        state: of the node.
        watch: of its Node object.
        fleet: the MPS daemons; ``None`` where no card can have one.
        default: of cards of which neither label nor annotation says anything.

    Attributes:
        known: the rungs are what they should be.
    """

    def __init__(
        self, state: NodeState, watch: NodeWatch, fleet: Fleet | None, *, default: Rung
    ) -> None:
        self._state = state
        self._watch = watch
        self._fleet = fleet
        self._default = default
        self._inventory = Inventory(gpus=())
        self._unable: Mapping[str, str] = {}
        self._rungs: dict[str, Rung] = {}
        self._faults: tuple[str, ...] = ()
        self.known = fleet is None
        self.on_change: Callable[[], None] = nobody
        self.on_faults: Callable[[tuple[str, ...]], None] = nobody

    def equip(self, inventory: Inventory, capabilities: Mapping[str, tuple[int, int]]) -> None:
        """These are the cards, with their compute capabilities by uuid."""
        self._inventory = inventory
        reasons = {
            gpu.uuid: incapable(gpu, capabilities.get(gpu.uuid, (0, 0))) for gpu in inventory.gpus
        }
        self._unable = {uuid: why for uuid, why in reasons.items() if why}
        self._look(trusted=False)

    def rung(self, uuid: str) -> Rung:
        """What enforces shares on a card."""
        return self._rungs.get(uuid, Rung.NONE)

    def usable(self, uuid: str) -> bool:
        """What enforces shares on the card works."""
        if self._fleet is None or self.rung(uuid) is Rung.NONE:
            return True
        return self._fleet.serving(uuid)

    async def run(self, truth: asyncio.Event) -> None:
        """Follow until cancelled; before kubelet's ``truth`` is known no card counts as empty."""
        while self._fleet is not None:
            seen = self._state.outlook_changed.count
            if self._look(trusted=truth.is_set()):
                self.on_change()
            await self._state.outlook_changed.beyond_or_after(seen, LOOK_SECONDS)

    def _look(self, *, trusted: bool) -> bool:
        """Decide anew; true when a card changed its rung."""
        node = self._watch.node
        if self._fleet is None or node is None or not self._inventory.gpus:
            return False
        asked = self._wish(node)
        if not self.known:
            self._rungs = published(node)
        rungs = settled(self._rungs, asked.rungs, self._busy(trusted=trusted))
        changed = rungs != self._rungs or not self.known
        self._rungs, self.known = rungs, True
        self._fleet.want([uuid for uuid, rung in rungs.items() if rung is Rung.MPS])
        self._tell(asked, rungs)
        return changed

    def _wish(self, node: Node) -> Wish:
        return wish(
            self._inventory.gpus,
            default=self._default,
            labels=node.labels,
            annotations=node.annotations,
            unable=self._unable,
        )

    def _busy(self, *, trusted: bool) -> set[str]:
        """Cards in use, and those of which nobody could say so yet."""
        told = {gpu.uuid for gpu in self._state.inventory.gpus} if trusted else set[str]()
        return {
            gpu.uuid
            for gpu in self._inventory.gpus
            if gpu.uuid not in told or self._state.in_use(gpu.index)
        }

    def _tell(self, asked: Wish, rungs: Mapping[str, Rung]) -> None:
        """What cannot be had (yet), once."""
        faults = [*asked.faults]
        for gpu in self._inventory.gpus:
            if rungs[gpu.uuid] is not asked.rungs[gpu.uuid]:
                now, later = rungs[gpu.uuid].value, asked.rungs[gpu.uuid].value
                faults.append(f"card {gpu.index} stays {now} until it is empty, then it is {later}")
        if Rung.MPS in rungs.values() and ignores_limits(self._inventory.driver):
            driver = self._inventory.driver
            faults.append(f"driver {driver} is older than 495: MPS limits threads, but no memory")
        if tuple(faults) != self._faults:
            news = tuple(fault for fault in faults if fault not in self._faults)
            self._faults = tuple(faults)
            self.on_faults(news)
