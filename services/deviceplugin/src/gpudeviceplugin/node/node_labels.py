"""Watches the node's labels, which configure what the plugin advertises.

No devices are offered before the plugin has found GPUs and, for a bounded time, before kubelet has
reported its allocations: a restarted plugin must not mistake running pods for pending ones.
"""

import asyncio
from contextlib import suppress
from typing import Final

from gpucore.wire import names as wire_names
from gpucore.wire.node.spec import Node, oversell_of
from gpudeviceplugin.cluster.node_watch import NodeWatch, resources_of
from gpudeviceplugin.isolation.cdi import CdiFiles
from gpudeviceplugin.kubelet.registration import Registrar
from gpudeviceplugin.state import NodeState

PATIENCE_SECONDS: Final = 3.0


class LabelFollower:
    """The configuration that the labels of one node select."""

    def __init__(
        self, state: NodeState, watch: NodeWatch, registrar: Registrar, cdi: CdiFiles
    ) -> None:
        self._state = state
        self._watch = watch
        self._registrar = registrar
        self._cdi = cdi

    async def run(self, *known: asyncio.Event) -> None:
        """Follow the labels until cancelled; first wait a bounded time for the ``known`` events."""
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
        offered = self._state.inventory.gpus and self._state.api == wire_names.API_DEVICES
        self._registrar.want(resources_of(node.labels) if offered else ())
