"""kubelet's device manager where no kubelet runs: plugins register, devices are allocated.

It does what decides about the devices of a container: it keeps the set of healthy devices, calls
GetPreferredAllocation and Allocate, and lists the holders in PodResources. It starts no container;
:meth:`FakeDeviceManager.admit` returns what one would be given.
"""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import grpc

from hardware import protocol

CALL_SECONDS: Final = 60.0
_SERVICE: Final = "/v1beta1.DevicePlugin"


class DeviceRefusedError(Exception):
    """The pod would be turned away, with this sentence."""


class Given(NamedTuple):
    """What a container is given: environment, and host directories by their path inside."""

    envs: dict[str, str]
    mounts: dict[str, str]


class Taken(NamedTuple):
    """Device ids that a container of a pod holds."""

    pod: str
    container: str
    resource: str
    ids: tuple[str, ...]


class FakeDeviceManager:
    """The device manager of one node; use as a context.

    Attributes:
        directory: where plugins find it and put their sockets.
        pod_resources: its other socket.
        devices: health of every device id, by resource; changes are reported by ``changed``.
    """

    def __init__(self, root: Path) -> None:
        self.directory = root / "device-plugins"
        self.directory.mkdir()
        self.pod_resources = root / "pod-resources.sock"
        self.devices: dict[str, dict[str, str]] = {}
        self.changed = threading.Condition()
        self._taken: list[Taken] = []
        self._plugins: dict[str, grpc.Channel] = {}
        self._followers: list[threading.Thread] = []
        self._servers: list[grpc.Server] = []

    def __enter__(self) -> Self:
        empty = protocol.message("Empty")
        register = grpc.unary_unary_rpc_method_handler(
            self._register,
            request_deserializer=protocol.message("RegisterRequest").FromString,
            response_serializer=empty.SerializeToString,
        )
        listing = grpc.unary_unary_rpc_method_handler(
            self._list,
            request_deserializer=protocol.message(
                "ListPodResourcesRequest", protocol.POD_RESOURCES
            ).FromString,
            response_serializer=protocol.message(
                "ListPodResourcesResponse", protocol.POD_RESOURCES
            ).SerializeToString,
        )
        self._serve(self.pod_resources, "v1.PodResourcesLister", {"List": listing})
        self._serve(self.directory / "kubelet.sock", "v1beta1.Registration", {"Register": register})
        return self

    def __exit__(self, *_: object) -> None:
        for channel in self._plugins.values():
            channel.close()
        for server in self._servers:
            server.stop(None).wait(CALL_SECONDS)
        for thread in self._followers:
            thread.join(CALL_SECONDS)

    def _serve(self, socket: Path, service: str, methods: dict[str, Any]) -> None:
        server = grpc.server(ThreadPoolExecutor(max_workers=4))
        handler = grpc.method_handlers_generic_handler(service, methods)
        server.add_generic_rpc_handlers((handler,))
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        self._servers.append(server)

    def _register(self, request: Any, _context: Any) -> Any:
        """A plugin came: call it back and follow its devices."""
        channel = grpc.insecure_channel(f"unix:{self.directory / request.endpoint}")
        old = self._plugins.get(request.resource_name)
        self._plugins[request.resource_name] = channel
        if old is not None:
            old.close()
        follower = threading.Thread(target=self._follow, args=(request.resource_name, channel))
        self._followers.append(follower)
        follower.start()
        return protocol.message("Empty")()

    def _follow(self, resource: str, channel: grpc.Channel) -> None:
        """Until the stream ends: with the plugin, a newer registration, or this kubelet."""
        call = channel.unary_stream(
            f"{_SERVICE}/ListAndWatch",
            request_serializer=protocol.message("Empty").SerializeToString,
            response_deserializer=protocol.message("ListAndWatchResponse").FromString,
        )
        with suppress(grpc.RpcError, ValueError):
            for answer in call(protocol.message("Empty")()):
                self._offer(resource, {each.ID: each.health for each in answer.devices})
        if self._plugins.get(resource) is channel:
            self._offer(resource, {})

    def _offer(self, resource: str, devices: dict[str, str]) -> None:
        with self.changed:
            self.devices[resource] = devices
            self.changed.notify_all()

    def healthy(self, resource: str) -> set[str]:
        """Device ids of a resource that may be handed out."""
        with self.changed:
            offered = self.devices.get(resource, {})
            return {one for one, health in offered.items() if health == "Healthy"}

    def admit(self, pod: str, resource: str, amount: int, *, container: str = "main") -> Given:
        """Take devices for the one container of ``namespace/name`` and ask what it is given.

        Raises:
            DeviceRefusedError: too few are free, or the plugin refuses.
        """
        busy = {one for each in self._taken if each.resource == resource for one in each.ids}
        free = sorted(self.healthy(resource) - busy)
        if len(free) < amount:
            raise DeviceRefusedError(f"{resource}: {amount} requested, {len(free)} available")
        wanted = {"available_deviceIDs": free, "allocation_size": amount}
        answer = self._ask(resource, "GetPreferredAllocation", "PreferredAllocation", wanted)
        ids = tuple(answer.deviceIDs) or tuple(free[:amount])
        given = self._ask(resource, "Allocate", "Allocate", {"devicesIDs": ids})
        self._taken.append(Taken(pod, container, resource, ids))
        mounts = {mount.container_path: mount.host_path for mount in given.mounts}
        return Given(dict(given.envs), mounts)

    def _ask(self, resource: str, method: str, words: str, container: Mapping[str, Any]) -> Any:
        call = self._plugins[resource].unary_unary(
            f"{_SERVICE}/{method}",
            request_serializer=protocol.message(f"{words}Request").SerializeToString,
            response_deserializer=protocol.message(f"{words}Response").FromString,
        )
        request = protocol.message(f"{words}Request")(container_requests=[container])
        try:
            return call(request, timeout=CALL_SECONDS).container_responses[0]
        except grpc.RpcError as error:
            raise DeviceRefusedError(f"{method} of {resource}: {error}") from error

    def release(self, pod: str) -> None:
        """The pod has ended."""
        self._taken = [each for each in self._taken if each.pod != pod]

    def _list(self, _request: Any, _context: Any) -> Any:
        answer = protocol.message("ListPodResourcesResponse", protocol.POD_RESOURCES)()
        for each in list(self._taken):
            namespace, _, name = each.pod.partition("/")
            devices = {"resource_name": each.resource, "device_ids": each.ids}
            answer.pod_resources.add(
                name=name,
                namespace=namespace,
                containers=[{"name": each.container, "devices": [devices]}],
            )
        return answer
