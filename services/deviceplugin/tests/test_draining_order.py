"""What a drain does in which order, and when a registration counts, by recording fakes."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import grpc.aio
import pytest

from gpucore.node.allocation.device_ids import Resource
from gpudeviceplugin.kubelet.draining import Drain
from gpudeviceplugin.kubelet.endpoint import KUBELET_SOCKET, Endpoint
from gpudeviceplugin.kubelet.servicer import Servicer
from gpudeviceplugin.proto import deviceplugin_pb2 as api
from gpudeviceplugin.rpc import caller, handler
from gpudeviceplugin.signals import Signal
from gpudeviceplugin.state import NodeState
from gpukube.errors import UnreachableError

pytestmark = pytest.mark.slow

BOUND = SimpleNamespace(namespace="default", name="p")


class Node:
    """A node state and a publisher in one: it records what a drain does."""

    def __init__(self) -> None:
        self.serving = True
        self.calls: list[str] = []
        self.waiting: list[Any] = []
        self.pods_changed = Signal()
        self.matcher = SimpleNamespace(queue=self)
        self.notified = asyncio.Event()
        self.listed = asyncio.Event()
        self.error: Exception | None = None

    def unserved(self) -> list[Any]:
        self.calls.append(f"waiting {len(self.waiting)}")
        if self.waiting:
            self.listed.set()
        return self.waiting

    async def withdraw(self) -> None:
        self.calls.append("withdraw")
        self.notified.set()
        if self.error is not None:
            raise self.error

    def drain(self, settle_seconds: float) -> asyncio.Task[None]:
        """Begin to drain this node."""
        return asyncio.create_task(Drain(self, self, settle_seconds=settle_seconds).run())  # type: ignore[arg-type]


async def test_a_pod_that_is_bound_while_schedulers_learn_is_waited_for() -> None:
    """It arrives after the news was sent, and the drain ends once it has its devices."""
    node = Node()
    drain = node.drain(settle_seconds=0.2)
    await node.notified.wait()
    node.waiting = [BOUND]
    async with asyncio.timeout(60):
        await node.listed.wait()
    assert not drain.done()
    node.waiting = []
    node.pods_changed.fire()
    async with asyncio.timeout(60):
        await drain
    assert node.calls[0] == "withdraw"
    assert node.calls[-1] == "waiting 0"


async def test_a_pod_that_kubelet_never_allocates_for_does_not_hold_up_the_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The wait is bounded."""
    monkeypatch.setattr("gpudeviceplugin.kubelet.draining.WAITING_SECONDS", 0.05)
    node = Node()
    node.waiting = [BOUND]
    async with asyncio.timeout(60):
        await node.drain(settle_seconds=0.0)


@pytest.mark.parametrize("serving", [True, False])
async def test_a_plugin_that_nobody_can_need_stops_at_once(serving: bool) -> None:
    """It does not serve, or schedulers cannot be notified."""
    node = Node()
    node.serving, node.error = serving, UnreachableError("no answer")
    async with asyncio.timeout(60):
        await node.drain(settle_seconds=3600)
    assert node.calls == (["withdraw"] if serving else [])


class SlowKubelet:
    """It takes a registration and fetches the device list when it is instructed to."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.registered = asyncio.Event()
        self._server = grpc.aio.server()
        registration = api.DESCRIPTOR.services_by_name["Registration"]
        self._server.add_generic_rpc_handlers([handler(self, registration)])
        self._server.add_insecure_port(f"unix:{directory / KUBELET_SOCKET}")

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)

    async def Register(self, request: api.RegisterRequest, context: Any) -> api.Empty:  # noqa: N802
        self.registered.set()
        return api.Empty()


async def test_a_registration_counts_once_kubelet_was_sent_the_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubelet admits no pod between the registration and its first device list."""
    monkeypatch.setattr("gpudeviceplugin.kubelet.endpoint.LIST_SECONDS", 30.0)
    state = NodeState(SimpleNamespace(mps=None))  # type: ignore[arg-type]
    servicer = Servicer(state, Resource.MEM, patience_seconds=0, numa_hints=False)
    endpoint = Endpoint(Resource.MEM, "aliyun.com/gpu-mem", servicer, tmp_path)
    async with SlowKubelet(tmp_path) as kubelet, asyncio.timeout(60):
        starting = asyncio.create_task(endpoint.start())
        await kubelet.registered.wait()
        await asyncio.wait({starting}, timeout=0.1)
        assert not starting.done()
        async with grpc.aio.insecure_channel(f"unix:{endpoint.socket}") as channel:
            plugin = caller(channel, api.DESCRIPTOR.services_by_name["DevicePlugin"])
            stream = plugin.ListAndWatch(api.Empty())
            await stream.read()
            await starting
            stream.cancel()
        await endpoint.stop()
