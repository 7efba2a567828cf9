"""The parts that offer GPUs as claims, and the connections between them."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gpucore.node.claims.prepare import ClaimPreparation, claim_node
from gpucore.wire.claim.devices import NO_EXECUTE, NO_SCHEDULE
from gpucore.wire.claim.resource_slices import ResourceSlice
from gpucore.wire.names import API_CLAIMS, CLAIM_DRIVER
from gpudeviceplugin.cluster.informers import SILENCE_SECONDS, Relists
from gpudeviceplugin.cluster.node_watch import NodeWatch
from gpudeviceplugin.dra.checkpoint import ClaimFiles
from gpudeviceplugin.dra.endpoint import DraEndpoint
from gpudeviceplugin.dra.holding import ClaimHolder
from gpudeviceplugin.dra.preparing import ClaimPreparer, Enforcer
from gpudeviceplugin.dra.publisher import SlicePublisher
from gpudeviceplugin.dra.slices import SliceWatch, slices_of
from gpudeviceplugin.dra.switch import ApiSwitch
from gpudeviceplugin.memory import keep_small
from gpudeviceplugin.settings import DevicePluginSettings
from gpudeviceplugin.state import NodeState
from gpukube.client import HttpKubeClient
from gpukube.watch.informer import Informer

NOT_OFFERED = "this node does not offer its GPUs as claims: see its label gpushare/api"


class ClaimBackEnd:
    """Publishes the node's GPUs as devices, and prepares claims for kubelet.

    Args:
        enforce: what must hold before a container of a claim starts; ``None``: nothing.
        on_refused: is called with the sentence why the node keeps its API.

    Attributes:
        switch: decides by which API the GPUs are offered, also where claims are disabled.
    """

    def __init__(
        self,
        settings: DevicePluginSettings,
        state: NodeState,
        watch: NodeWatch,
        kube: HttpKubeClient,
        *,
        enforce: Enforcer | None,
        on_refused: Callable[[str], None],
    ) -> None:
        self._enabled = settings.claims_enabled
        self._name, self._state = settings.node_name, state
        state.api = ""  # not known yet
        self.switch = ApiSwitch(
            state,
            watch,
            kube,
            default=settings.api,
            enabled=self._enabled,
            on_refused=on_refused,
        )
        slices = SliceWatch(state.outlook_changed)
        evicts = settings.unhealthy_claims == "evict"
        self._publisher = SlicePublisher(
            state,
            watch,
            slices,
            kube,
            policy=settings.policy,
            unhealthy=NO_EXECUTE if evicts else NO_SCHEDULE,
        )
        self._slices: Informer[ResourceSlice] = Informer(
            kube,
            slices_of(settings.node_name, CLAIM_DRIVER),
            slices,
            silence=SILENCE_SECONDS,
            observer=Relists(),
        )
        self._preparer = self._preparing(settings, kube, enforce)
        self._endpoint = self._serving(settings)

    def _preparing(
        self, settings: DevicePluginSettings, kube: HttpKubeClient, enforce: Enforcer | None
    ) -> ClaimPreparer:
        files = ClaimFiles(home_of(settings), settings.cdi_dir)
        return ClaimPreparer(
            kube,
            files,
            self._node,
            holder=ClaimHolder(self._state),
            refusal=self._refusal,
            enforce=enforce,
        )

    def _serving(self, settings: DevicePluginSettings) -> DraEndpoint:
        return DraEndpoint(
            registry=settings.plugins_registry,
            home=home_of(settings),
            preparer=self._preparer,
            node=self._node,
            changed=self._state.outlook_changed,
            instance=settings.pod_uid,
        )

    def _node(self) -> ClaimPreparation:
        return claim_node(self._state.inventory, self._state.policy, self._name)

    def _refusal(self) -> str:
        return "" if self._state.api == API_CLAIMS else NOT_OFFERED

    def missing(self) -> str:
        """Why this node does not offer claims; empty where it does, or where it should not."""
        if not self._state.api:
            return self.switch.why or "it is not known yet by which API to offer the GPUs"
        if self._state.api == API_CLAIMS and not self._endpoint.registered.is_set():
            return "kubelet has not accepted the DRA driver yet"
        return ""

    async def run(self) -> None:
        """Do everything until cancelled.

        Raises:
            OSError: a directory of kubelet or of CDI files cannot be used.
        """
        if not self._enabled:
            await self.switch.run()
            return
        await self._preparer.restore()
        async with asyncio.TaskGroup() as group:
            for part in (
                self.switch.run,
                self._slices.run,
                self._publisher.run,
                self._endpoint.run,
                partial(keep_small, self._endpoint.registered),
            ):
                group.create_task(part())


def home_of(settings: DevicePluginSettings) -> Path:
    """Directory of the driver, below kubelet's directory ``plugins``."""
    return settings.plugins_dir / CLAIM_DRIVER
