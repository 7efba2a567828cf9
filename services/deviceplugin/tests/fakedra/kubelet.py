"""kubelet's plugin manager: finds sockets in its directory and calls the drivers behind them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from gpudeviceplugin.proto import (
    dra_health_v1_pb2,
    dra_health_v1_pb2_grpc,
    dra_health_v1alpha1_pb2,
    dra_health_v1alpha1_pb2_grpc,
    dra_v1_pb2,
    dra_v1_pb2_grpc,
    dra_v1beta1_pb2,
    dra_v1beta1_pb2_grpc,
    pluginregistration_pb2,
    pluginregistration_pb2_grpc,
)

MESSAGES = {"v1": dra_v1_pb2, "v1beta1": dra_v1beta1_pb2}
STUBS = {"v1": dra_v1_pb2_grpc.DRAPluginStub, "v1beta1": dra_v1beta1_pb2_grpc.DRAPluginStub}
HEALTH = {
    "v1": (dra_health_v1_pb2, dra_health_v1_pb2_grpc.DRAResourceHealthStub),
    "v1alpha1": (dra_health_v1alpha1_pb2, dra_health_v1alpha1_pb2_grpc.DRAResourceHealthStub),
}
SECONDS = 60.0


class DraKubelet:
    """One kubelet; make another one for a restart.

    Attributes:
        drivers: what registered drivers reported of themselves, by name.
    """

    def __init__(self, registry: Path, *, version: str = "v1") -> None:
        self._registry = registry
        self._version = version
        self.messages = MESSAGES[version]
        self.drivers: dict[str, Any] = {}

    async def register(self, *, accept: bool = True) -> None:
        """Look at the directory as kubelet does when it starts."""
        for path in sorted(self._registry.iterdir()):
            async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
                stub = pluginregistration_pb2_grpc.RegistrationStub(channel)
                info = await stub.GetInfo(pluginregistration_pb2.InfoRequest(), timeout=SECONDS)
                status = pluginregistration_pb2.RegistrationStatus(
                    plugin_registered=accept, error="" if accept else "not wanted"
                )
                await stub.NotifyRegistrationStatus(status, timeout=SECONDS)
            if accept:
                assert f"{self._version}.DRAPlugin" in info.supported_versions
                self.drivers[info.name] = info

    async def prepare(self, *uids: str) -> Any:
        """NodePrepareResources of the claims ``team/c-<uid>``; the answers by UID."""
        request = self.messages.NodePrepareResourcesRequest(claims=self._claims(uids))
        return (await self._call("NodePrepareResources", request)).claims

    async def unprepare(self, *uids: str) -> Any:
        """NodeUnprepareResources; the answers by UID."""
        request = self.messages.NodeUnprepareResourcesRequest(claims=self._claims(uids))
        return (await self._call("NodeUnprepareResources", request)).claims

    def _claims(self, uids: tuple[str, ...]) -> list[Any]:
        return [
            self.messages.Claim(namespace="team", uid=uid, name=f"c-{uid}"[:253]) for uid in uids
        ]

    async def _call(self, method: str, request: Any) -> Any:
        (info,) = self.drivers.values()
        async with grpc.aio.insecure_channel(f"unix:{info.endpoint}") as channel:
            return await getattr(STUBS[self._version](channel), method)(request, timeout=SECONDS)

    def health(self, version: str) -> tuple[grpc.aio.Channel, Any]:
        """A channel, and the health stream on it."""
        (info,) = self.drivers.values()
        messages, stub = HEALTH[version]
        channel = grpc.aio.insecure_channel(f"unix:{info.endpoint}")
        return channel, stub(channel).NodeWatchResources(messages.NodeWatchResourcesRequest())


@asynccontextmanager
async def single_calls(kubelet: DraKubelet) -> AsyncIterator[Callable[[str], Awaitable[Any]]]:
    """Prepares single claims over one connection, as kubelet keeps it."""
    (info,) = kubelet.drivers.values()
    messages = kubelet.messages
    async with grpc.aio.insecure_channel(f"unix:{info.endpoint}") as channel:
        stub = STUBS["v1"](channel)

        async def prepare(uid: str) -> Any:
            claim = messages.Claim(namespace="team", uid=uid, name=f"c-{uid}")
            request = messages.NodePrepareResourcesRequest(claims=[claim])
            return (await stub.NodePrepareResources(request, timeout=SECONDS)).claims[uid]

        yield prepare
