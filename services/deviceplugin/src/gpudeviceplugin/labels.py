"""Follows the node's labels: they say what is offered and how it is handed out.

Nothing is offered before there are cards and, within reason, before kubelet has said who holds
what: a plugin that restarts must not take pods that have their devices for pods that still wait.
"""

import asyncio
from contextlib import suppress
from typing import Final

from gpucore.wire import names as wire_names
from gpucore.wire.nodes import Node
from gpudeviceplugin.cdi import CdiFiles
from gpudeviceplugin.nodewatch import NodeWatch, oversell_of, resources_of
from gpudeviceplugin.register import Registrar
from gpudeviceplugin.state import NodeState

PATIENCE_SECONDS: Final = 3.0


class LabelFollower:
    """What the labels of one node ask for."""

    def __init__(
        self, state: NodeState, watch: NodeWatch, registrar: Registrar, cdi: CdiFiles
    ) -> None:
        self._state = state
        self._watch = watch
        self._registrar = registrar
        self._cdi = cdi

    async def run(self, *known: asyncio.Event) -> None:
        """Follow until cancelled; first wait a bounded moment for what should be ``known``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                for event in known:
                    await event.wait()
        while True:
            seen = self._state.outlook_changed.count
            if self._watch.node is not None:
                self._follow(self._watch.node)
            await self._state.outlook_changed.beyond(seen)

    def _follow(self, node: Node) -> None:
        self._state.follow(
            cgpu_disable=node.labels.get(wire_names.LABEL_CGPU_DISABLE) == "true",
            oversell=oversell_of(node.labels),
            cdi=self._cdi.used_on(node),
        )
        self._registrar.want(resources_of(node.labels) if self._state.inventory.gpus else ())
