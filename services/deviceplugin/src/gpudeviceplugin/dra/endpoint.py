"""The sockets of the driver: one that kubelet calls, and one by which it registers the driver.

During a rolling update two plugins serve one driver, so the names of both sockets have the UID of
the plugin's pod. A plugin that was killed leaves its sockets behind; the next one removes them.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import grpc.aio
import structlog

from gpucore.node.claims.prepare import ClaimPreparation
from gpucore.wire.names import CLAIM_DRIVER
from gpudeviceplugin.cancelling import to_its_end
from gpudeviceplugin.dra.health import HealthServicer
from gpudeviceplugin.dra.preparing import ClaimPreparer
from gpudeviceplugin.dra.registration import RegistrationServicer
from gpudeviceplugin.dra.services import dra_v1, dra_v1beta1
from gpudeviceplugin.proto import dra_health_v1_pb2, dra_health_v1alpha1_pb2
from gpudeviceplugin.proto.dra_health_v1_pb2_grpc import (
    add_DRAResourceHealthServicer_to_server as add_health_v1,
)
from gpudeviceplugin.proto.dra_health_v1alpha1_pb2_grpc import (
    add_DRAResourceHealthServicer_to_server as add_health_v1alpha1,
)
from gpudeviceplugin.proto.dra_v1_pb2_grpc import add_DRAPluginServicer_to_server as add_dra_v1
from gpudeviceplugin.proto.dra_v1beta1_pb2_grpc import (
    add_DRAPluginServicer_to_server as add_dra_v1beta1,
)
from gpudeviceplugin.proto.pluginregistration_pb2_grpc import add_RegistrationServicer_to_server
from gpudeviceplugin.signals import Signal

log = structlog.get_logger()

STOP_SECONDS: Final = 5.0
"""Longest wait at the end for calls of kubelet that are being answered."""
PRIVATE: Final = 0o700


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
        driver: str = CLAIM_DRIVER,
        instance: str = "",
    ) -> None:
        suffix = f"-{instance}" if instance else ""
        self._registry, self._home, self._driver = registry, home, driver
        self.registry_socket = registry / f"{driver}{suffix}-reg.sock"
        self.socket = home / f"dra{suffix}.sock"
        self._preparer = preparer
        self._node, self._changed = node, changed
        self._registration = RegistrationServicer(driver, str(self.socket))
        self._servers: list[grpc.aio.Server] = []
        self._health: list[HealthServicer] = []

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
            await self._preparer.remove_deleted()
            await asyncio.Event().wait()
        finally:
            await to_its_end(self.stop())

    async def start(self) -> None:
        """Restore the files of prepared claims, serve, and have kubelet register the driver.

        Raises:
            OSError: a directory cannot be used.
        """
        await self._preparer.restore()
        for directory in (self._registry, self._home):
            directory.mkdir(parents=True, exist_ok=True)
        _remove_dead(self._registry.glob(f"{self._driver}*-reg.sock"))
        _remove_dead(self._home.glob("dra*.sock"))
        for path in (self.socket, self.registry_socket):
            path.unlink(missing_ok=True)
        try:
            await self._serve(self.socket, self._add_services)
            await self._serve(self.registry_socket, self._add_registration)
        except BaseException:
            await to_its_end(self.stop())
            raise

    async def stop(self) -> None:
        """Deregister first, so that kubelet never calls a socket without a server."""
        self.registry_socket.unlink(missing_ok=True)
        for health in self._health:
            health.end()
        servers, self._servers = self._servers, []
        for server in reversed(servers):
            await server.stop(STOP_SECONDS)
        self.socket.unlink(missing_ok=True)
        self.registered.clear()

    async def _serve(self, path: Path, add: Callable[[grpc.aio.Server], None]) -> None:
        server = grpc.aio.server()
        add(server)
        server.add_insecure_port(f"unix:{path}")
        self._servers.append(server)
        await to_its_end(server.start())

    def _add_services(self, server: grpc.aio.Server) -> None:
        node, changed = self._node, self._changed
        v1 = HealthServicer(node, changed, dra_health_v1_pb2)
        v1alpha1 = HealthServicer(node, changed, dra_health_v1alpha1_pb2)
        self._health = [v1, v1alpha1]
        services: list[tuple[Callable[..., Any], object]] = [
            (add_dra_v1, dra_v1(self._preparer)),
            (add_dra_v1beta1, dra_v1beta1(self._preparer)),
            (add_health_v1, v1),
            (add_health_v1alpha1, v1alpha1),
        ]
        for add, servicer in services:
            add(servicer, server)

    def _add_registration(self, server: grpc.aio.Server) -> None:
        add: Callable[..., Any] = add_RegistrationServicer_to_server
        add(self._registration, server)


def _remove_dead(paths: Any) -> None:
    """Remove sockets without a server."""
    for path in paths:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(os.fspath(path))
            except ConnectionRefusedError:
                log.info("removing the socket of a plugin that has ended", socket=str(path))
                path.unlink(missing_ok=True)
            except OSError as error:
                log.debug("socket left alone", socket=str(path), why=str(error))
