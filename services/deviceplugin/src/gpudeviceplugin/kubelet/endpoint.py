"""The socket of one resource: serve it, register it with kubelet, remove it.

kubelet deletes every socket in its directory when it starts, so after that all of this happens
anew. Each start has a socket of a new name: since 1.37 kubelet answers "already connected" to a
plugin at the socket of one whose end it has not seen, and then never looks for that end.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import grpc.aio
import structlog

from gpucore.node.allocation.device_ids import Resource
from gpucore.wire.names import DEFAULT_NAMES
from gpudeviceplugin import telemetry
from gpudeviceplugin.cancelling import to_its_end
from gpudeviceplugin.kubelet.servicer import Servicer
from gpudeviceplugin.proto import deviceplugin_pb2 as api
from gpudeviceplugin.rpc import caller, handler
from gpudeviceplugin.sockets import connect_error, is_served, remove, remove_dead, socket_in

log = structlog.get_logger()

_SERVICES: Final = api.DESCRIPTOR.services_by_name
VERSION: Final = "v1beta1"
KUBELET_SOCKET: Final = "kubelet.sock"
REGISTER_SECONDS: Final = 5.0
STOP_SECONDS: Final = 1.0
LIST_SECONDS: Final = 2.0
"""Longest wait after a registration for kubelet to fetch the device list."""
UNWATCHED_SECONDS: Final = 30.0
"""Time without a stream of devices after which kubelet has dropped the registration."""
OUTLIVED_SECONDS: Final = 2 * STOP_SECONDS
"""Time in which the streams of another plugin end, whose socket is gone."""
_DIGITS: Final = 8
"""Random hexadecimal digits in the name of a socket."""
# kubelet names every available device in a question, so it may be as long as the list it was sent.
RECEIVE_LIMIT_BYTES: Final = 16 * 1024 * 1024


class RegistrationError(Exception):
    """kubelet did not take the registration."""


class Endpoint:
    """The plugin socket of one resource.

    Attributes:
        socket: on which kubelet calls this plugin; another one after each start.
    """

    def __init__(
        self, resource: Resource, full_name: str, servicer: Servicer, directory: Path
    ) -> None:
        self.resource = resource
        self._full_name = full_name
        self._servicer = servicer
        self._directory = directory
        self._server: grpc.aio.Server | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._beside_another = False
        self._alone_since: float | None = None
        domain = full_name.partition("/")[0]
        of_domain = "" if domain == DEFAULT_NAMES.domain else f"{domain}-"
        self._prefix = f"gpushare-{of_domain}{resource.split('.')[0]}"
        self.socket = self._unused()

    def _unused(self) -> Path:
        """A socket that kubelet has never connected to."""
        return socket_in(self._directory, f"{self._prefix}-{uuid4().hex[:_DIGITS]}.sock")

    def _of_resource(self) -> Iterator[Path]:
        """The sockets of this resource that have their full name, other plugins' too."""
        for suffix in ("", "-" + "[0-9a-f]" * _DIGITS):
            yield from self._directory.glob(f"{self._prefix}{suffix}.sock")

    def dropped(self) -> bool:
        """Kubelet runs, and has dropped the registration: it has no devices until told again.

        It has not watched them for long, or another plugin has ended meanwhile: before 1.37 it
        takes the end of any plugin of a resource for that of the last one that registered. Where
        another plugin serves the resource, kubelet has the devices of that one.
        """
        if not self._alone():
            self._alone_since = None
            return False
        now = asyncio.get_running_loop().time()
        if self._alone_since is None:
            self._alone_since = now
        outlived = self._beside_another and now - self._alone_since >= OUTLIVED_SECONDS
        unwatched = self._servicer.unwatched_seconds >= UNWATCHED_SECONDS
        kubelet = self._directory / KUBELET_SOCKET
        return (outlived or unwatched) and connect_error(kubelet) is None

    def _alone(self) -> bool:
        """No other plugin serves the resource."""
        return all(each == self.socket or not is_served(each) for each in self._of_resource())

    async def start(self) -> None:
        """Serve a socket and register it; what fails or is cancelled leaves nothing served.

        Raises:
            RegistrationError: kubelet does not answer or does not want it, or there can be no
                socket.
        """
        await self.stop()
        remove_dead(self._of_resource())
        self.socket = self._unused()
        self._server = server = self._bound()
        try:
            await to_its_end(server.start())  # half a start cannot be stopped
            self._servicer.begin()
            self._beside_another, self._alone_since = not self._alone(), None
            await self._register()
            await self._servicer.listed(LIST_SECONDS)
        except BaseException:
            await to_its_end(self.stop())
            raise

    def _bound(self) -> grpc.aio.Server:
        """A server at the socket."""
        options = [("grpc.max_receive_message_length", RECEIVE_LIMIT_BYTES)]
        server = grpc.aio.server(options=options)
        server.add_generic_rpc_handlers([handler(self._servicer, _SERVICES["DevicePlugin"])])
        try:
            server.add_insecure_port(f"unix:{self.socket}")
        except (OSError, RuntimeError) as error:
            raise RegistrationError(f"{self._full_name}: cannot listen: {error}") from error
        return server

    async def _register(self) -> None:
        request = api.RegisterRequest(
            version=VERSION,
            endpoint=self.socket.name,
            resource_name=self._full_name,
            options=self._servicer.options,
        )
        try:
            async with kubelet_channel(self._directory / KUBELET_SOCKET) as channel:
                stub = caller(channel, _SERVICES["Registration"])
                await stub.Register(request, timeout=REGISTER_SECONDS)
        except grpc.aio.AioRpcError as error:
            telemetry.REGISTRATIONS.labels(self.resource, "failed").inc()
            raise RegistrationError(f"{self._full_name}: {error.details()}") from error
        telemetry.REGISTRATIONS.labels(self.resource, "ok").inc()
        log.info("registered", resource=self._full_name, socket=str(self.socket))

    async def stop(self) -> None:
        """Serve no more; kubelet keeps what it has handed out and waits for a new plugin."""
        server, self._server = self._server, None
        if server is not None:
            self._servicer.end()
            self._stopping = asyncio.create_task(server.stop(STOP_SECONDS))
        if self._stopping is not None:
            await asyncio.shield(self._stopping)  # half a stop leaves a broken server

    async def withdraw(self) -> None:
        """Advertise no devices, then stop: the node no longer offers this resource."""
        self._servicer.withdraw()
        await self.stop()
        remove(self.socket)


def kubelet_channel(socket: Path, *, receive_limit: int = RECEIVE_LIMIT_BYTES) -> grpc.aio.Channel:
    """A channel to a socket of kubelet, with the authority localhost that kubelet requires."""
    options = [
        ("grpc.default_authority", "localhost"),
        ("grpc.max_receive_message_length", receive_limit),
    ]
    return grpc.aio.insecure_channel(f"unix:{socket}", options=options)


def socket_identity(socket: Path) -> tuple[int, int] | None:
    """The identity of a socket, which differs between kubelet processes; ``None`` without one."""
    try:
        found = socket.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns
