"""What is made of kubelet's answer about the devices of its pods."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import grpc.aio
import pytest

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.wire.names import DEFAULT_NAMES
from gpudeviceplugin.kubelet.pod_resources import (
    LIST_SECONDS,
    RECEIVE_LIMIT_BYTES,
    PodResourcesClient,
    PodResourcesError,
)
from gpudeviceplugin.proto import podresources_pb2 as api

MODULE = "gpudeviceplugin.kubelet.pod_resources"
MEM, CORE = "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"


class Unavailable(grpc.aio.AioRpcError):
    """Kubelet is away."""

    def __init__(self) -> None:
        empty = grpc.aio.Metadata()
        super().__init__(grpc.StatusCode.UNAVAILABLE, empty, empty, details="no such socket")


class Kubelet:
    """Its PodResources service, without a socket."""

    def __init__(self) -> None:
        self.answer = api.ListPodResourcesResponse()
        self.calls: list[Any] = []
        self.away = False

    def channel(self, socket: Path, *, receive_limit: int) -> Self:
        """As a channel to it."""
        self.calls.append((socket, receive_limit))
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.calls.append("closed")

    async def list(
        self, request: api.ListPodResourcesRequest, *, timeout: float
    ) -> api.ListPodResourcesResponse:
        """As its answer."""
        self.calls.append(timeout)
        if self.away:
            raise Unavailable
        return self.answer

    def row(self, pod: str, container: str, **devices: Any) -> None:
        """A container of a pod of namespace ``team``."""
        found = next((each for each in self.answer.pod_resources if each.name == pod), None)
        found = found or self.answer.pod_resources.add(name=pod, namespace="team")
        row = found.containers.add(name=container)
        for resource, ids in devices.get("of", ()):
            row.devices.add(resource_name=resource, device_ids=ids)


@pytest.fixture
def kubelet(monkeypatch: pytest.MonkeyPatch) -> Kubelet:
    """One that answers."""
    made = Kubelet()
    monkeypatch.setattr(f"{MODULE}.kubelet_channel", made.channel)
    stub = type("Stub", (), {"List": staticmethod(made.list)})
    monkeypatch.setattr(f"{MODULE}.caller", lambda *_: stub)
    return made


def client(
    socket: Path, *, kubelet_restarted: Callable[[], None] = lambda: None
) -> PodResourcesClient:
    """As the plugin makes it."""
    return PodResourcesClient(socket, DEFAULT_NAMES, kubelet_restarted=kubelet_restarted)


async def test_ids_are_reported_by_pod_container_and_resource(kubelet: Kubelet) -> None:
    """Kubelet reports one resource in parts, and those of other plugins as well."""
    kubelet.row("p", "c0", of=[(MEM, ["a", "b"]), (CORE, ["x"]), (MEM, ["c"]), ("cpu", ["0"])])
    kubelet.row("p", "c1", of=[("nvidia.com/gpu", ["GPU-0"])])
    kubelet.row("q", "c0")
    held = await client(Path("/k.sock")).list()
    row = {Resource.MEM: ("a", "b", "c"), Resource.CORE: ("x",)}
    assert held == [Held("team", "p", {"c0": row}), Held("team", "q", {})]


async def test_the_answer_may_be_long_and_must_come_in_time(kubelet: Kubelet) -> None:
    """A node with many pods has more than gRPC takes by default."""
    await client(Path("/k.sock")).list()
    assert kubelet.calls == [(Path("/k.sock"), RECEIVE_LIMIT_BYTES), LIST_SECONDS, "closed"]


async def test_a_kubelet_that_does_not_answer_is_an_error_with_its_socket(
    kubelet: Kubelet,
) -> None:
    """And the connection is closed."""
    kubelet.away = True
    with pytest.raises(PodResourcesError, match=r"/k\.sock: no such socket"):
        await client(Path("/k.sock")).list()
    assert kubelet.calls[-1] == "closed"


async def test_a_restart_is_reported_once_before_the_first_reply_of_the_new_kubelet(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    """It lists no pods yet, and the socket that plugins register at may be missing still."""
    restarts: list[int] = []
    socket = tmp_path / "kubelet.sock"
    socket.touch()
    reader = client(socket, kubelet_restarted=lambda: restarts.append(len(kubelet.calls)))
    await reader.list()
    await reader.list()
    assert restarts == []
    socket.rename(tmp_path / "old")
    socket.touch()
    await reader.list()
    await reader.list()
    assert restarts == [9], "after the third of four calls, which are three entries each"


async def test_a_reply_during_which_kubelet_restarted_is_not_used(
    kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer may be from either of the two kubelet processes."""
    socket = tmp_path / "kubelet.sock"
    socket.touch()
    answer = kubelet.list

    async def replaced(*args: Any, **kwargs: Any) -> api.ListPodResourcesResponse:
        socket.rename(tmp_path / "old")
        socket.touch()
        return await answer(*args, **kwargs)

    stub = type("Stub", (), {"List": staticmethod(replaced)})
    monkeypatch.setattr(f"{MODULE}.caller", lambda *_: stub)
    with pytest.raises(PodResourcesError, match="kubelet restarted during the call"):
        await client(socket).list()
