"""kubelet's plugin manager: finds sockets in its directory and calls the drivers behind them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from gpudeviceplugin.proto import dra_health_v1_pb2, pluginregistration_pb2
from gpudeviceplugin.proto import dra_v1_pb2 as messages
from gpudeviceplugin.rpc import caller

REGISTRATION = pluginregistration_pb2.DESCRIPTOR.services_by_name["Registration"]
DRA = messages.DESCRIPTOR.services_by_name["DRAPlugin"]
HEALTH = dra_health_v1_pb2.DESCRIPTOR.services_by_name["DRAResourceHealth"]
SECONDS = 60.0


class DraKubelet:
    """One kubelet; make another one for a restart.

    Attributes:
        drivers: what registered drivers reported of themselves, by name.
    """

    def __init__(self, registry: Path) -> None:
        self._registry = registry
        self.drivers: dict[str, Any] = {}

    async def register(self, *, accept: bool = True) -> None:
        """Look at the directory as kubelet does when it starts."""
        for path in sorted(self._registry.iterdir()):
            async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
                stub = caller(channel, REGISTRATION)
                info = await stub.GetInfo(pluginregistration_pb2.InfoRequest(), timeout=SECONDS)
                status = pluginregistration_pb2.RegistrationStatus(
                    plugin_registered=accept, error="" if accept else "not wanted"
                )
                await stub.NotifyRegistrationStatus(status, timeout=SECONDS)
            if accept:
                assert "v1.DRAPlugin" in info.supported_versions
                self.drivers[info.name] = info

    async def prepare(self, *uids: str) -> Any:
        """NodePrepareResources of the claims ``team/c-<uid>``; the answers by UID."""
        request = messages.NodePrepareResourcesRequest(claims=self._claims(uids))
        return (await self._call("NodePrepareResources", request)).claims

    async def unprepare(self, *uids: str) -> Any:
        """NodeUnprepareResources; the answers by UID."""
        request = messages.NodeUnprepareResourcesRequest(claims=self._claims(uids))
        return (await self._call("NodeUnprepareResources", request)).claims

    def _claims(self, uids: tuple[str, ...]) -> list[Any]:
        return [messages.Claim(namespace="team", uid=uid, name=f"c-{uid}"[:253]) for uid in uids]

    async def _call(self, method: str, request: Any) -> Any:
        (info,) = self.drivers.values()
        async with grpc.aio.insecure_channel(f"unix:{info.endpoint}") as channel:
            return await getattr(caller(channel, DRA), method)(request, timeout=SECONDS)

    def health(self, version: str) -> tuple[grpc.aio.Channel, Any]:
        """A channel, and the health stream on it."""
        (info,) = self.drivers.values()
        channel = grpc.aio.insecure_channel(f"unix:{info.endpoint}")
        health = caller(channel, HEALTH, name=f"{version}.DRAResourceHealth")
        return channel, health.NodeWatchResources(dra_health_v1_pb2.NodeWatchResourcesRequest())


@asynccontextmanager
async def single_calls(kubelet: DraKubelet) -> AsyncIterator[Callable[[str], Awaitable[Any]]]:
    """Prepares single claims over one connection, as kubelet keeps it."""
    (info,) = kubelet.drivers.values()
    async with grpc.aio.insecure_channel(f"unix:{info.endpoint}") as channel:
        stub = caller(channel, DRA)

        async def prepare(uid: str) -> Any:
            claim = messages.Claim(namespace="team", uid=uid, name=f"c-{uid}")
            request = messages.NodePrepareResourcesRequest(claims=[claim])
            return (await stub.NodePrepareResources(request, timeout=SECONDS)).claims[uid]

        yield prepare
