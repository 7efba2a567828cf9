"""Follows by which API the node should offer its GPUs; changes it when no share is in the way."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from gpucore.node.claims.offer import requested, settled
from gpucore.wire.errors import WireError
from gpucore.wire.names import API, API_DEVICES
from gpudeviceplugin.cluster.node_watch import NodeWatch
from gpudeviceplugin.state import NodeState
from gpukube.errors import KubeError

if TYPE_CHECKING:
    from gpudeviceplugin.dra.support import DryRuns

log = structlog.get_logger()

LOOK_SECONDS: Final = 2.0
"""Seconds between checks whether pods of the device plugin remain, since no event reports it."""
SETTLED_SECONDS: Final = 60.0
"""The same where the node offers what is requested: a change of the request is an event."""
PROBE_SECONDS: Final = 300.0
"""Seconds between requests to an API server without consumable capacity."""
RETRY_SECONDS: Final = 5.0


class ApiSwitch:
    """The API of one node.

    Args:
        default: ``devices``, ``claims`` or ``auto``, for a node without the label.
        enabled: claims can be prepared here.
        on_refused: is called with the sentence why a request is not followed.

    Attributes:
        why: that sentence; empty where the request is followed.
    """

    def __init__(
        self,
        state: NodeState,
        watch: NodeWatch,
        kube: "DryRuns",
        *,
        default: str,
        enabled: bool,
        on_refused: Callable[[str], None],
    ) -> None:
        self._state, self._watch, self._kube = state, watch, kube
        self._default, self._enabled = default, enabled
        self._on_refused = on_refused
        self._supported: bool | None = None
        self.why = ""
        state.api, state.api_chosen = "", False  # not known yet

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            if self._enabled:
                group.create_task(self._probe())

    async def _follow(self) -> None:
        while True:
            seen = self._state.outlook_changed.count
            self.decide()
            seconds = SETTLED_SECONDS if self._settled() else LOOK_SECONDS
            await self._state.outlook_changed.beyond_or_after(seen, seconds)

    def _settled(self) -> bool:
        """The node offers what is requested, and it is known who holds devices."""
        return bool(self._state.api) and not self.why and self._state.certain.is_set()

    def decide(self) -> None:
        """Compare what is requested with what is in use, and take over what can be."""
        node, state = self._watch.node, self._state
        if node is None:
            return
        wanted = requested(
            node.labels, self._default, enabled=self._enabled, supported=self._supported
        )
        held = [gpu.index for gpu in state.inventory.gpus if state.granted(gpu.index)]
        known = state.certain.is_set()
        offer = settled(wanted, held if known or held else None, state.claims.names)
        if offer.why and offer.why != self.why:
            log.warning("the API of the node stays as it is", offered=offer.api, why=offer.why)
            self._on_refused(offer.why)
        self.why = offer.why
        if offer.api != state.api:
            log.info("the node offers its GPUs", api=offer.api or "not yet")
        state.offer(offer.api, chosen=bool(offer.api or offer.why))

    async def _probe(self) -> None:
        """Test the API server from when a setting or label needs claims until it supports them."""
        while not self._supported:
            seen = self._state.outlook_changed.count
            if self._needed():
                await self._ask()
                await asyncio.sleep(RETRY_SECONDS if self._supported is None else PROBE_SECONDS)
            else:
                await self._state.outlook_changed.beyond_or_after(seen, PROBE_SECONDS)

    def _needed(self) -> bool:
        node = self._watch.node
        return node is not None and node.labels.get(API, self._default) != API_DEVICES

    async def _ask(self) -> None:
        from gpudeviceplugin.dra.support import (  # noqa: PLC0415 - needed with claims only
            has_consumable_capacity,
        )

        node = self._watch.node
        if node is None:
            return
        try:
            supported = await has_consumable_capacity(self._kube, node.name)
        except (KubeError, WireError) as error:
            log.warning("cannot find out whether the cluster has claims", why=str(error))
            return
        if supported != self._supported:
            log.info("the API server was queried for consumable capacity", supported=supported)
            self._supported = supported
            self._state.outlook_changed.fire()
