"""One socket of the plugin, step by step: what kubelet can see of it, and when."""

import asyncio
import errno
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import AsyncMock, Mock

import grpc.aio
import pytest
from prometheus_client import REGISTRY

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.grant import GrantPolicy
from gpucore.wire.names import DEFAULT_NAMES
from gpudeviceplugin.kubelet.endpoint import (
    KUBELET_SOCKET,
    LIST_SECONDS,
    OUTLIVED_SECONDS,
    REGISTER_SECONDS,
    STOP_SECONDS,
    UNWATCHED_SECONDS,
    Endpoint,
    RegistrationError,
    kubelet_channel,
    socket_identity,
)
from gpudeviceplugin.kubelet.servicer import Servicer
from gpudeviceplugin.proto import deviceplugin_pb2 as api
from gpudeviceplugin.sockets import LONGEST_SOCKET, connect_error
from gpudeviceplugin.state import NodeState

MODULE = "gpudeviceplugin.kubelet.endpoint"
NAME = "aliyun.com/gpu-core.percentage"


class KubeletRefusedError(grpc.aio.AioRpcError):
    """Kubelet's answer to a registration."""

    def __init__(self, details: str = "not wanted") -> None:
        empty = grpc.aio.Metadata()
        super().__init__(grpc.StatusCode.INVALID_ARGUMENT, empty, empty, details=details)


class World:
    """Server, servicer and kubelet in one; what is done to them, in order.

    Attributes:
        refuses: kubelet takes no registration.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.effects: list[Any] = []
        self.requests: list[api.RegisterRequest] = []
        self.refuses = False
        self.unwatched_seconds = 0.0
        self.endpoint = Endpoint(Resource.CORE, NAME, self, directory)  # type: ignore[arg-type]
        self.options = api.DevicePluginOptions(get_preferred_allocation_available=True)
        self.server_options: Any = None

    def server(self, *, options: Any) -> "Server":
        """As ``grpc.aio.server``."""
        self.server_options = dict(options)
        return Server(self)

    def begin(self) -> None:
        """As the servicer's."""
        self.effects.append("begin")

    def end(self) -> None:
        """As the servicer's."""
        self.effects.append("end")

    def withdraw(self) -> None:
        """As the servicer's."""
        self.effects.append("offer nothing")

    async def listed(self, seconds: float) -> bool:
        """As the servicer's."""
        self.effects.append(("listed", seconds))
        return True

    def channel(self, socket: Path) -> Self:
        """As a channel to kubelet."""
        self.effects.append(f"connect {socket.name}")
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.effects.append("disconnect")

    async def register(self, request: api.RegisterRequest, *, timeout: float) -> None:
        """As kubelet's."""
        self.effects.append(("register", timeout))
        self.requests.append(request)
        assert self.endpoint.socket.exists()
        if self.refuses:
            raise KubeletRefusedError
        if request.endpoint in [each.endpoint for each in self.requests[:-1]]:
            raise KubeletRefusedError(f"device plugin already connected: {request.endpoint}")


class Server:
    """A gRPC server whose socket is a file."""

    def __init__(self, world: World) -> None:
        self.world = world

    def add_generic_rpc_handlers(self, services: Any) -> None:
        """As the server's: the methods come from the servicer, which is another object here."""

    def add_insecure_port(self, address: str) -> None:
        """As that of a server."""
        self.path = Path(address.removeprefix("unix:"))
        assert not self.path.exists(), "somebody else's socket"

    async def start(self) -> None:
        """As that of a server."""
        self.world.effects.append("start")
        self.path.write_text("")

    async def stop(self, grace: float) -> None:
        """As that of a server."""
        self.world.effects.append(("stop", grace))
        await asyncio.sleep(0)
        self.path.unlink(missing_ok=True)
        self.world.effects.append("stopped")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A directory of kubelet without any socket of ours."""
    made = World(tmp_path)
    monkeypatch.setattr(f"{MODULE}.grpc.aio.server", made.server)
    monkeypatch.setattr(f"{MODULE}.handler", lambda *_: None)
    monkeypatch.setattr(f"{MODULE}.kubelet_channel", made.channel)
    monkeypatch.setattr(
        f"{MODULE}.caller",
        lambda channel, _service: type("Stub", (), {"Register": staticmethod(channel.register)}),
    )
    return made


@contextmanager
def served(path: Path, queued: int) -> Iterator[None]:
    """A process that listens at the socket, with so many clients that it has not accepted."""
    with socket.socket(socket.AF_UNIX) as other, ExitStack() as clients:
        other.bind(str(path))
        other.listen(0)
        for _ in range(queued):
            clients.enter_context(socket.socket(socket.AF_UNIX)).connect(str(path))
        yield


STARTED = [
    "start",
    "begin",
    f"connect {KUBELET_SOCKET}",
    ("register", REGISTER_SECONDS),
    "disconnect",
    ("listed", LIST_SECONDS),
]
STOPPED = ["end", ("stop", STOP_SECONDS), "stopped"]


def registrations(outcome: str) -> float:
    """How many were counted."""
    labels = {"resource": "gpu-core.percentage", "outcome": outcome}
    name = "gpushare_plugin_registrations_total"
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_the_socket_is_served_before_kubelet_is_notified_of_it(world: World) -> None:
    """Kubelet calls back at once; the start is over when it was sent the devices."""
    before = registrations("ok")
    await world.endpoint.start()
    assert world.effects == STARTED
    (request,) = world.requests
    assert (request.version, request.endpoint) == ("v1beta1", world.endpoint.socket.name)
    assert request.resource_name == NAME
    assert request.options.get_preferred_allocation_available
    assert world.server_options["grpc.max_receive_message_length"] >= 4 * 1024 * 1024
    assert registrations("ok") == before + 1
    await world.endpoint.stop()
    assert world.effects == [*STARTED, *STOPPED]


@pytest.mark.parametrize("name", ["gpushare-gpu-core.sock", "gpushare-gpu-core-0123abcd.sock"])
async def test_the_socket_of_a_plugin_that_has_ended_is_removed(world: World, name: str) -> None:
    """That of a version of fixed names also; kubelet removes them only when it starts."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(world.directory / name))
    await world.endpoint.start()
    assert list(world.directory.glob("*.sock")) == [world.endpoint.socket]


@pytest.mark.parametrize(
    "name", ["gpushare-gpu-mem-0123abcd.sock", "gpushare-gpu-core-other.sock", "nvidia-gpu.sock"]
)
async def test_sockets_of_others_stay(world: World, name: str) -> None:
    """Another resource of ours has its own start; the rest are not ours."""
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(world.directory / name))
    await world.endpoint.start()
    assert (world.directory / name).exists()


async def test_a_socket_that_cannot_be_removed_ends_no_plugin(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node remounts a disk with errors read-only; MPS daemons must outlast that."""

    def read_only(self: Path, *, missing_ok: bool) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(self))

    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(world.directory / "gpushare-gpu-core-0123abcd.sock"))
    monkeypatch.setattr(Path, "unlink", read_only)
    await world.endpoint.start()
    assert world.requests
    monkeypatch.setattr(Server, "stop", AsyncMock())  # that of gRPC leaves the socket there
    await world.endpoint.withdraw()


async def test_a_directory_with_the_name_of_a_socket_stops_no_registration(world: World) -> None:
    """A hostPath volume makes one where a pod names a socket that does not exist yet."""
    directory = world.directory / "gpushare-gpu-core.sock"
    directory.mkdir()
    await world.endpoint.start()
    assert directory.is_dir()
    assert world.requests


async def test_a_second_start_ends_the_server_before(world: World) -> None:
    """Its streams end before the new ones begin."""
    await world.endpoint.start()
    await world.endpoint.start()
    assert world.effects == [*STARTED, *STOPPED, *STARTED]
    assert world.endpoint.socket.exists()


async def test_a_registration_that_kubelet_refuses_leaves_nothing_served(world: World) -> None:
    """It is counted, and its error has kubelet's words and the resource."""
    world.refuses = True
    before = (registrations("ok"), registrations("failed"))
    with pytest.raises(RegistrationError, match=f"{NAME}: not wanted"):
        await world.endpoint.start()
    assert (registrations("ok"), registrations("failed")) == (before[0], before[1] + 1)
    assert world.effects[-3:] == STOPPED
    assert ("listed", LIST_SECONDS) not in world.effects
    assert not world.endpoint.socket.exists()


@pytest.mark.parametrize("queued", [0, 1], ids=["accepting", "busy"])
async def test_a_socket_that_another_plugin_serves_stays_its_own(world: World, queued: int) -> None:
    """Kubelet is connected to that plugin until it ends."""
    theirs = world.directory / "gpushare-gpu-core-0123abcd.sock"
    with served(theirs, queued):
        await world.endpoint.start()
        assert theirs.exists()
    assert [each.endpoint for each in world.requests] == [world.endpoint.socket.name]


async def test_no_two_starts_register_the_same_socket(world: World) -> None:
    """Kubelet 1.37 that has not seen the end of the stream at the first one would refuse it."""
    await world.endpoint.start()
    await world.endpoint.start()
    first, second = (each.endpoint for each in world.requests)
    assert first != second
    assert list(world.directory.glob("*.sock")) == [world.endpoint.socket]


async def test_no_two_processes_register_the_same_socket(world: World) -> None:
    """The one before may end at the moment of the start, and before kubelet sees it."""
    before = Endpoint(Resource.CORE, NAME, world, world.directory)  # type: ignore[arg-type]
    assert before.socket.name != world.endpoint.socket.name


async def test_a_resource_that_goes_offers_nothing_before_its_socket_closes(
    world: World,
) -> None:
    """Kubelet would keep the devices of a socket that only went away."""
    await world.endpoint.start()
    world.effects.clear()
    await world.endpoint.withdraw()
    assert world.effects == ["offer nothing", *STOPPED]
    assert not world.endpoint.socket.exists()


async def test_a_stop_without_a_start_is_none(world: World) -> None:
    """And a second stop does nothing either."""
    await world.endpoint.stop()
    await world.endpoint.start()
    await world.endpoint.stop()
    world.effects.clear()
    await world.endpoint.stop()
    assert world.effects == []


@pytest.mark.parametrize("resource", Resource)
async def test_every_resource_has_a_short_socket_of_its_own(
    tmp_path: Path, resource: Resource
) -> None:
    """Without the part after the dot."""
    name = resource.full_name(DEFAULT_NAMES)
    socket = Endpoint(resource, name, None, tmp_path).socket  # type: ignore[arg-type]
    names = {
        Resource.MEM: "gpushare-gpu-mem",
        Resource.CORE: "gpushare-gpu-core",
        Resource.GPU: "gpushare-gpu",
    }
    assert re.fullmatch(names[resource] + "-[0-9a-f]{8}.sock", socket.name)
    assert socket.parent == tmp_path


@pytest.mark.parametrize("resource", Resource)
async def test_a_socket_fits_in_every_directory_in_which_that_of_kubelet_fits(
    resource: Resource,
) -> None:
    """A long root directory of kubelet; the names differ, and end alike."""
    directory = Path("/" + "k" * (LONGEST_SOCKET - len("/kubelet.sock/")))
    sockets = {
        str(Endpoint(each, "x", None, directory).socket)  # type: ignore[arg-type]
        for each in Resource
    }
    mine = Endpoint(resource, "x", None, directory).socket  # type: ignore[arg-type]
    assert len(sockets) == len(Resource)
    assert (len(str(mine)), mine.suffix) == (LONGEST_SOCKET, ".sock")


async def test_kubelet_is_called_localhost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket path as the authority is refused by its server."""
    made: list[Any] = []
    monkeypatch.setattr(
        f"{MODULE}.grpc.aio.insecure_channel", lambda *a, options: made.append((a, dict(options)))
    )
    kubelet_channel(Path("/k/kubelet.sock"), receive_limit=7)
    options = {"grpc.default_authority": "localhost", "grpc.max_receive_message_length": 7}
    assert made == [(("unix:/k/kubelet.sock",), options)]


def test_a_socket_that_was_made_anew_is_another_one_though_its_number_was_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems give the inode of a removed file to the next one."""
    found = [SimpleNamespace(st_ino=7, st_ctime_ns=now) for now in (1, 1, 2)]
    monkeypatch.setattr(Path, "stat", lambda _self: found.pop(0))
    first, same, other = (socket_identity(tmp_path / "kubelet.sock") for _ in range(3))
    assert first == same != other


async def test_a_socket_that_cannot_be_made_is_a_failed_registration(tmp_path: Path) -> None:
    """It is tried again a second later: kubelet may be creating its directory anew."""
    state = NodeState(GrantPolicy())
    servicer = Servicer(state, Resource.CORE, patience_seconds=0, numa_hints=False)
    endpoint = Endpoint(Resource.CORE, NAME, servicer, tmp_path / "missing")
    with pytest.raises(RegistrationError, match=f"^{NAME}: cannot listen: "):
        await endpoint.start()
    await endpoint.stop()


async def test_a_registration_counts_as_dropped_while_kubelet_runs_and_does_not_watch(
    world: World,
) -> None:
    """A kubelet that is away has left its socket behind, and comes back as another one.

    Two plugins of an update do not take the registration from each other.
    """
    path = world.directory / KUBELET_SOCKET
    await world.endpoint.start()
    with socket.socket(socket.AF_UNIX) as kubelet:
        kubelet.bind(str(path))
        world.unwatched_seconds = UNWATCHED_SECONDS
        assert not world.endpoint.dropped()
        kubelet.listen()
        assert world.endpoint.dropped()
        world.unwatched_seconds = UNWATCHED_SECONDS - 1
        assert not world.endpoint.dropped()
        world.unwatched_seconds = UNWATCHED_SECONDS
        other = world.directory / "gpushare-gpu-core-0123abcd.sock"
        with served(other, 0):
            assert not world.endpoint.dropped()
        assert world.endpoint.dropped(), "the other plugin has ended"
        with served(world.directory / "gpushare-gpu-mem-0123abcd.sock", 0):
            assert world.endpoint.dropped(), "it serves another resource"
        other = Endpoint(Resource.CORE, "a.org/gpu-core.percentage", world, world.directory)  # type: ignore[arg-type]
        with served(other.socket, 0):
            assert world.endpoint.dropped(), "it serves a resource of another domain"


@pytest.mark.usefixtures("clock")
async def test_a_registration_beside_another_plugin_is_dropped_with_its_end(world: World) -> None:
    """Before 1.37 kubelet takes the end of that plugin's streams for the end of this one.

    They may last a moment longer than its socket.
    """
    with socket.socket(socket.AF_UNIX) as kubelet:
        kubelet.bind(str(world.directory / KUBELET_SOCKET))
        kubelet.listen()
        with served(world.directory / "gpushare-gpu-core-0123abcd.sock", 0):
            await world.endpoint.start()
            assert not world.endpoint.dropped()
        assert not world.endpoint.dropped()
        await asyncio.sleep(OUTLIVED_SECONDS)
        assert world.endpoint.dropped()
        await world.endpoint.start()
        assert not world.endpoint.dropped()
        await asyncio.sleep(OUTLIVED_SECONDS)
        assert not world.endpoint.dropped(), "it is alone since it registered"


def test_a_process_without_a_free_file_descriptor_finds_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look at kubelet's socket is repeated; an error would end the plugin."""
    full = OSError(errno.EMFILE, "Too many open files")
    monkeypatch.setattr("gpudeviceplugin.sockets.socket.socket", Mock(side_effect=full))
    assert connect_error(tmp_path / KUBELET_SOCKET) is full
