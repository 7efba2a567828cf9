"""kubelet's device manager: plugins register, containers are allocated devices.

The plugin is the real one behind its real sockets. What is allocated is in the file of
:mod:`chaos.grants` before the container starts, as in kubelet's checkpoint.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import grpc.aio

from chaos.grants import ContainerGrant, GrantedPod, NodeGrants
from hardware import protocol

CALL_SECONDS: Final = 10.0
_SERVICE: Final = "/v1beta1.DevicePlugin"


class AdmissionRefusedError(Exception):
    """The pod cannot be admitted; the text is that of the event."""


class NodeDeviceManager:
    """Devices of one node and the containers that have them.

    Args:
        root: directory of the sockets and of the file of grants.
        changed: is called when a plugin offers other devices than before.

    Attributes:
        grants: of this node; kept in ``file``.
        healthy: device IDs that may be allocated, by resource.
        known: number of devices of each resource, healthy or not.
        registrations: number of plugins that registered since the start.
    """

    def __init__(self, root: Path, changed: Callable[[], None]) -> None:
        self.directory = root / "device-plugins"
        self.file = root / "grants.json"
        self.grants = NodeGrants.read(self.file)
        self.healthy: dict[str, set[str]] = {name: set() for name in self.grants.resources}
        self.known: dict[str, int] = dict.fromkeys(self.grants.resources, 0)
        self.registrations = 0
        self._changed = changed
        self._plugins: dict[str, grpc.aio.Channel] = {}
        self._followers: set[asyncio.Task[None]] = set()

    async def register(self, request: Any, _context: Any) -> Any:
        """A plugin registers: follow its devices."""
        resource = request.resource_name
        old = self._plugins.get(resource)
        channel = grpc.aio.insecure_channel(f"unix:{self.directory / request.endpoint}")
        self._plugins[resource] = channel
        self.registrations += 1
        if resource not in self.grants.resources:
            self.grants.resources.append(resource)
            self.grants.write(self.file)
        follower = asyncio.create_task(self._follow(resource, channel))
        self._followers.add(follower)
        follower.add_done_callback(self._followers.discard)
        if old is not None:
            await old.close()
        return protocol.message("Empty")()

    async def _follow(self, resource: str, channel: grpc.aio.Channel) -> None:
        """Until the stream ends, with the plugin or a newer registration."""
        call = channel.unary_stream(
            f"{_SERVICE}/ListAndWatch",
            request_serializer=protocol.message("Empty").SerializeToString,
            response_deserializer=protocol.message("ListAndWatchResponse").FromString,
        )
        with suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            async for answer in call(protocol.message("Empty")()):
                self.known[resource] = len(answer.devices)
                self._offer(resource, {one.ID for one in answer.devices if one.health == "Healthy"})
        if self._plugins.get(resource) is channel:
            self._offer(resource, set())

    def _offer(self, resource: str, devices: set[str]) -> None:
        self.healthy[resource] = devices
        self._changed()

    async def admit(self, uid: str, pod: dict[str, Any]) -> GrantedPod:
        """Allocate devices for every container of a pod; what it holds already stays.

        Raises:
            AdmissionRefusedError: devices are missing, or the plugin refused.
        """
        meta = pod["metadata"]
        granted = self.grants.pods.setdefault(uid, GrantedPod(meta["namespace"], meta["name"]))
        for container in pod["spec"]["containers"]:
            limits = container.get("resources", {}).get("limits", {})
            for resource, amount in limits.items():
                if resource in self.healthy:
                    await self._allocate(uid, granted, container["name"], resource, int(amount))
        return granted

    async def _allocate(
        self, uid: str, pod: GrantedPod, container: str, resource: str, amount: int
    ) -> None:
        held = pod.containers.get(container)
        if held is not None and resource in held.ids:
            return  # allocated before this kubelet started
        free = sorted(self.healthy[resource] - self.grants.in_use(resource))
        if len(free) < amount:
            raise AdmissionRefusedError(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {amount}, Available: {len(free)}"
            )
        wanted = {"available_deviceIDs": free, "allocation_size": amount}
        answer = await self._ask(resource, "GetPreferredAllocation", "PreferredAllocation", wanted)
        ids = [one for one in answer.deviceIDs if one in set(free)][:amount] or free[:amount]
        given = await self._ask(resource, "Allocate", "Allocate", {"devicesIDs": ids})
        if self.grants.pods.get(uid) is not pod:
            raise AdmissionRefusedError("the pod was deleted meanwhile")
        row = pod.containers.setdefault(container, ContainerGrant())
        row.ids[resource] = ids
        row.envs |= dict(given.envs)
        self.grants.write(self.file)

    async def _ask(self, resource: str, method: str, words: str, container: dict[str, Any]) -> Any:
        call = self._plugins[resource].unary_unary(
            f"{_SERVICE}/{method}",
            request_serializer=protocol.message(f"{words}Request").SerializeToString,
            response_deserializer=protocol.message(f"{words}Response").FromString,
        )
        request = protocol.message(f"{words}Request")(container_requests=[container])
        try:
            answer = await call(request, timeout=CALL_SECONDS)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError) as error:
            raise AdmissionRefusedError(f"{method} of {resource}: {_details(error)}") from error
        return answer.container_responses[0]

    def release(self, uid: str) -> None:
        """The containers of the pod have ended."""
        if self.grants.pods.pop(uid, None) is not None:
            self.grants.write(self.file)

    async def pod_resources(self, _request: Any, _context: Any) -> Any:
        """The PodResources List: which containers hold which devices."""
        answer = protocol.message("ListPodResourcesResponse", protocol.POD_RESOURCES)()
        for pod in self.grants.pods.values():
            row = answer.pod_resources.add(name=pod.name, namespace=pod.namespace)
            for name, container in pod.containers.items():
                one = row.containers.add(name=name)
                for resource, ids in container.ids.items():
                    one.devices.add(resource_name=resource, device_ids=ids)
        return answer


def _details(error: BaseException) -> str:
    found = error.details() if isinstance(error, grpc.aio.AioRpcError) else None
    return found or str(error)
