"""The DRA driver of a node: publishes its GPUs as devices, and prepares claims for kubelet.

It is imported where claims are enabled: without its modules, the plugin takes 0.8 MiB less on every
GPU node.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final

from gpucore.model.constraints import NO_EXECUTE, NO_SCHEDULE
from gpucore.node.claims.prepare import ClaimPreparation, claim_node
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
from gpudeviceplugin.memory import keep_small
from gpudeviceplugin.settings import DevicePluginSettings
from gpudeviceplugin.state import NodeState
from gpukube.client import HttpKubeClient
from gpukube.watch.informer import Informer

NOT_OFFERED: Final = "this node does not offer its GPUs as claims: see its label gpushare/api"


class ClaimDriver:
    """The parts that publish and prepare, and the connections between them.

    Args:
        enforce: what must hold before a container of a claim starts; ``None``: nothing.
    """

    def __init__(
        self,
        settings: DevicePluginSettings,
        state: NodeState,
        watch: NodeWatch,
        kube: HttpKubeClient,
        *,
        enforce: Enforcer | None,
    ) -> None:
        self._name, self._state = settings.node_name, state
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
            slices_of(settings.node_name),
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

    @property
    def registered(self) -> bool:
        """Kubelet has accepted the driver."""
        return self._endpoint.registered.is_set()

    async def run(self, choose_api: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Publish and prepare until cancelled; what was prepared before is restored first.

        Args:
            choose_api: runs beside it, and needs to know the restored claims.

        Raises:
            OSError: a directory of kubelet or of CDI files cannot be used.
        """
        await self._preparer.restore()
        async with asyncio.TaskGroup() as group:
            for part in (
                choose_api,
                self._slices.run,
                self._publisher.run,
                self._endpoint.run,
                partial(keep_small, self._endpoint.registered),
            ):
                group.create_task(part())


def home_of(settings: DevicePluginSettings) -> Path:
    """Directory of the driver, below kubelet's directory ``plugins``."""
    return settings.plugins_dir / CLAIM_DRIVER
