"""The sockets of the driver: one that kubelet calls, and one by which it registers the driver.

During a rolling update two plugins serve one driver, so the names of both sockets have the UID of
the plugin's pod. A plugin that was killed leaves its sockets behind; the next one removes them.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import grpc.aio
import structlog

from gpucore.node.claims.prepare import ClaimPreparation
from gpucore.wire.names import CLAIM_DRIVER
from gpudeviceplugin.cancelling import to_its_end
from gpudeviceplugin.dra.health import HealthServicer
from gpudeviceplugin.dra.preparing import ClaimPreparer
from gpudeviceplugin.dra.registration import HEALTH, RegistrationServicer
from gpudeviceplugin.dra.services import DraServicer
from gpudeviceplugin.proto import dra_health_v1_pb2, dra_v1_pb2, pluginregistration_pb2
from gpudeviceplugin.rpc import handler
from gpudeviceplugin.signals import Signal
from gpudeviceplugin.sockets import remove_dead, socket_in

log = structlog.get_logger()

LOOK_SECONDS: Final = 10.0
"""Seconds between looks whether the sockets are there."""
STOP_SECONDS: Final = 5.0
"""Longest wait at the end for calls of kubelet that are being answered."""
SHORT: Final = "gpushare-"
"""Begin of the name of a registration socket whose full name makes a path that is too long."""
_HEALTH: Final = dra_health_v1_pb2.DESCRIPTOR.services_by_name["DRAResourceHealth"]
_DRA: Final = dra_v1_pb2.DESCRIPTOR.services_by_name["DRAPlugin"]
_REGISTRATION: Final = pluginregistration_pb2.DESCRIPTOR.services_by_name["Registration"]


class DraEndpoint:
    """The driver as kubelet sees it.

    Args:
        registry: kubelet's directory ``plugins_registry``.
        home: directory of the driver below kubelet's directory ``plugins``.
        instance: UID of the plugin's pod; empty where there is never more than one plugin.
        changed: GPUs or their health changed.
    """

    def __init__(
        self,
        *,
        registry: Path,
        home: Path,
        preparer: ClaimPreparer,
        node: Callable[[], ClaimPreparation],
        changed: Signal,
        instance: str = "",
    ) -> None:
        suffix = f"-{instance}" if instance else ""
        self._registry, self._home = registry, home
        self.registry_socket = socket_in(registry, f"{CLAIM_DRIVER}{suffix}-reg.sock", short=SHORT)
        self.socket = socket_in(home, f"dra{suffix}.sock", short="dra-")
        self._preparer = preparer
        self._make_health = partial(HealthServicer, node, changed)
        self._health = self._make_health()
        self._registration = RegistrationServicer(str(self.socket))
        self._servers: list[grpc.aio.Server] = []

    @property
    def registered(self) -> asyncio.Event:
        """Kubelet has accepted the driver."""
        return self._registration.registered

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            OSError: a directory cannot be used.
        """
        await self.start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_sockets())
                await self._preparer.remove_deleted()
                await self._preparer.follow()
        finally:
            await to_its_end(self.stop())

    async def _keep_sockets(self) -> None:
        """Serve anew where somebody removed a socket: kubelet deregisters the driver then.

        A failure is tried again: the end of the plugin would be that of its MPS daemons.
        """
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not (self.socket.exists() and self.registry_socket.exists()):
                log.warning("a socket was removed; serving anew", socket=str(self.socket))
                try:
                    await to_its_end(self.stop())
                    await self.start()
                except (OSError, RuntimeError) as error:
                    log.warning("cannot serve the driver; trying again", why=str(error))

    async def start(self) -> None:
        """Restore the files of prepared claims, serve, and have kubelet register the driver.

        Raises:
            OSError: a directory cannot be used.
        """
        await self._preparer.restore()
        for directory in (self._registry, self._home):
            directory.mkdir(parents=True, exist_ok=True)
        remove_dead(self._registry.glob(f"{CLAIM_DRIVER}*-reg.sock"))
        remove_dead(self._registry.glob(f"{SHORT}*.sock"))
        remove_dead(self._home.glob("dra*.sock"))
        for path in (self.socket, self.registry_socket):
            path.unlink(missing_ok=True)
        try:
            self._health = self._make_health()
            await self._serve(
                self.socket,
                handler(DraServicer(self._preparer), _DRA),
                *(handler(self._health, _HEALTH, name=name) for name in HEALTH),
            )
            await self._serve(self.registry_socket, handler(self._registration, _REGISTRATION))
        except BaseException:
            await to_its_end(self.stop())
            raise

    async def stop(self) -> None:
        """Deregister first, so that kubelet never calls a socket without a server."""
        self.registry_socket.unlink(missing_ok=True)
        self._health.end()
        servers, self._servers = self._servers, []
        for server in reversed(servers):
            await server.stop(STOP_SECONDS)
        self.socket.unlink(missing_ok=True)
        self.registered.clear()

    async def _serve(self, path: Path, *services: grpc.GenericRpcHandler) -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(services)
        server.add_insecure_port(f"unix:{path}")
        self._servers.append(server)
        await to_its_end(server.start())
