"""The half of kubelet that talks gRPC: the device manager and PodResources.

It accepts registrations, watches the plugins' device lists, admits pods in order and lists the
holders of devices. The API server's view of a kubelet is ``e2e/environments/fakenodeagent.py``.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import grpc.aio
from google.protobuf.descriptor import ServiceDescriptor

from fakekubelet.devices import AdmissionError, DeviceManager, Ids, Plugin
from gpucore.wire.names import MIRROR_POD
from gpudeviceplugin.proto import deviceplugin_pb2 as api
from gpudeviceplugin.proto import podresources_pb2 as truth
from gpudeviceplugin.rpc import caller, handler
from gpukube.testing.apiserver import FakeApiServer

CALL_SECONDS = 60.0
START_SECONDS = 30.0
RETRY_SECONDS = 0.2
LIST_LIMIT = 4 * 1024 * 1024

SERVICES = api.DESCRIPTOR.services_by_name


class GrpcPlugin(Plugin):
    """A plugin behind its socket."""

    def __init__(self, socket: Path, options: api.DevicePluginOptions) -> None:
        self.socket = socket
        self.wants_preference = options.get_preferred_allocation_available
        self.wants_start = options.pre_start_required
        limits = [("grpc.max_receive_message_length", LIST_LIMIT)]
        self.channel = grpc.aio.insecure_channel(f"unix:{socket}", options=limits)
        self.stub = caller(self.channel, SERVICES["DevicePlugin"])

    async def preferred(self, available: Ids, must: Ids, size: int) -> list[str]:
        container_request = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=list(available),
            must_include_deviceIDs=list(must),
            allocation_size=size,
        )
        request = api.PreferredAllocationRequest(container_requests=[container_request])
        try:
            answer = await self.stub.GetPreferredAllocation(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise AdmissionError(f"GetPreferredAllocation: {error.details()}") from error
        return list(answer.container_responses[0].deviceIDs)

    async def call_allocate(self, ids: Ids) -> dict[str, str]:
        container_request = api.ContainerAllocateRequest(devicesIDs=list(ids))
        request = api.AllocateRequest(container_requests=[container_request])
        try:
            answer = await self.stub.Allocate(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise AdmissionError(f"Allocate: {error.details()}") from error
        self.cdi = tuple(each.name for each in answer.container_responses[0].cdi_devices)
        return dict(answer.container_responses[0].envs)

    async def call_start(self, ids: Ids) -> str:
        request = api.PreStartContainerRequest(devicesIDs=list(ids))
        try:
            await self.stub.PreStartContainer(request, timeout=START_SECONDS)
        except grpc.aio.AioRpcError as error:
            return f"device plugin PreStartContainer rpc failed with err: {error.details()}"
        return ""


class FakeKubelet:
    """One node's kubelet.

    Attributes:
        registrations: resource names, in the order in which they registered. As kubelet of 1.37 it
            takes none at a socket whose stream it has not seen end.
        rejected: sentence for every pod that was turned away, by name.
        skip: names of pods that it turns away before it looks at devices.
        refusing: it takes no registration.
        late: it does not see that a stream of devices ends.
        by_resource: as kubelet before 1.37 it takes the end of any plugin of a resource for that
            of the last one that registered.
        on_sync: is called before the first container of an admitted pod is started; the cgroup of
            the pod exists from then on.
        refused_starts: last message of a plugin that refused a start, by the pod's name.
        unstartable: message of the runtime for every pod, by name, that it cannot start.
    """

    def __init__(
        self, root: Path, cluster: FakeApiServer, *, node: str = "n1", seed: int = 0
    ) -> None:
        self.directory = root / "device-plugins"
        self.pod_resources = root / "pod-resources.sock"
        self._cluster = cluster
        self._node = node
        self._seed = seed
        self.directory.mkdir(exist_ok=True)
        self.manager = self._manager()
        self.registrations: list[str] = []
        self.rejected: dict[str, str] = {}
        self.skip: set[str] = set()
        self.unstartable: dict[str, str] = {}
        self.refusing = False
        self.late = False
        self.by_resource = False
        self.on_sync: Callable[[dict[str, Any]], None] | None = None
        self.refused_starts: dict[str, str] = {}
        self._servers: list[grpc.aio.Server] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._seen: set[str] = set()
        self._connected: set[str] = set()
        self.changed = asyncio.Condition()

    def _manager(self) -> DeviceManager:
        checkpoint = self.directory / "kubelet_internal_checkpoint"
        return DeviceManager(checkpoint, seed=self._seed)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(
        self, *, after_offered: str = "", listing: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Come up: every socket in the directory goes, as the real one does it.

        PodResources is served first, and lists no pods before they are read from the API server;
        ``listing`` is awaited then. With ``after_offered`` pods wait until a plugin has offered
        that resource.
        """
        self._servers = [
            await self._serve(
                self.pod_resources, truth.DESCRIPTOR.services_by_name["PodResourcesLister"]
            )
        ]
        if listing is not None:
            await listing()
        for socket in self.directory.glob("*.sock"):
            socket.unlink()
        self.manager = self._manager()
        self._servers.append(
            await self._serve(self.directory / "kubelet.sock", SERVICES["Registration"])
        )
        self._tasks = []
        if after_offered:
            await self.wait_for(lambda: self.manager.healthy.get(after_offered))
        self._tasks.append(asyncio.create_task(self._admit_all()))

    async def _serve(self, socket: Path, service: ServiceDescriptor) -> grpc.aio.Server:
        socket.unlink(missing_ok=True)  # noqa: ASYNC240 - one entry
        server = grpc.aio.server()
        server.add_generic_rpc_handlers([handler(self, service)])
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        return server

    async def stop(self) -> None:
        """Stop; pods keep running. No plugin can register while connections are closed."""
        for server in self._servers:
            await server.stop(None)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for plugin in self.manager.plugins.values():
            if isinstance(plugin, GrpcPlugin):
                await plugin.channel.close()
        self._servers, self._tasks, self._seen, self._connected = [], [], set(), set()

    async def restart(self, *, lose_checkpoint: bool = False) -> None:
        """Go down and come up again, with the checkpoint or without it."""
        await self.stop()
        if lose_checkpoint:
            self.manager.checkpoint.unlink()
        await self.start()

    async def Register(self, request: api.RegisterRequest, context: Any) -> api.Empty:  # noqa: N802
        """A plugin came: call it back and follow its devices."""
        assert request.version == "v1beta1"
        if self.refusing:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not wanted")
        if request.endpoint in self._connected:
            sentence = f"device plugin already connected: {request.endpoint}"
            await context.abort(grpc.StatusCode.UNKNOWN, sentence)
        self._connected.add(request.endpoint)
        old = self.manager.plugins.get(request.resource_name)
        plugin = GrpcPlugin(self.directory / request.endpoint, request.options)
        self.manager.plugins[request.resource_name] = plugin
        self._tasks.append(asyncio.create_task(self._follow(request.resource_name, plugin)))
        self.registrations.append(request.resource_name)
        if isinstance(old, GrpcPlugin) and not self.by_resource:
            await old.channel.close()
        return api.Empty()

    async def _follow(self, resource: str, plugin: GrpcPlugin) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            async for answer in plugin.stub.ListAndWatch(api.Empty()):
                healthy = {each.ID for each in answer.devices if each.health == "Healthy"}
                self.manager.healthy[resource] = healthy
                await self._tell()
        if not self.late:
            self._connected.discard(plugin.socket.name)
        last = self.manager.plugins.get(resource)
        if last is plugin or self.by_resource:
            self.manager.healthy[resource] = set()
            await self._tell()

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def wait_for(self, predicate: Any, *, seconds: float = 60.0) -> None:
        """Until something is true of this kubelet."""
        async with asyncio.timeout(seconds), self.changed:
            await self.changed.wait_for(predicate)

    async def _admit_all(self) -> None:
        """Pods one at a time: first those that are there, by creation, then as they come."""
        store = self._cluster.pods
        upto = store.version
        for item in sorted(filter(self._mine, store.objects.values()), key=_creation):
            await self._admit(item)
        while True:
            since, upto = upto, store.version
            for _, kind, item in store.events_since(since, self._mine):
                if kind == "ADDED":
                    await self._until_offered(item)
                    await self._admit(item)
            await store.wait_beyond(upto)

    async def _until_offered(self, pod: dict[str, Any]) -> None:
        """A scheduler binds a pod to a node that has what the pod requests, not before.

        Without that kubelet would admit the pod, and give it nothing of a resource it has never
        heard of.
        """
        spec = pod["spec"]
        containers = (*spec.get("initContainers", ()), *spec["containers"])
        requested = {name for each in containers for name in each["resources"]["limits"]}
        await self.wait_for(lambda: requested <= self.manager.healthy.keys())

    def _mine(self, item: dict[str, Any]) -> bool:
        return bool(item["spec"].get("nodeName") == self._node)

    async def _admit(self, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        if meta["uid"] in self._seen or pod["status"]["phase"] in {"Succeeded", "Failed"}:
            return
        if MIRROR_POD in meta["annotations"]:
            return  # it admits the static pods of its files
        self._seen.add(meta["uid"])
        if pod["status"]["phase"] == "Running":
            return  # after a restart: "container detected running, nothing to do"
        if meta["name"] in self.skip:
            self._set_phase(pod, "Failed")
            await self._tell()
            return
        try:
            await self.manager.admit(pod, self._active())
        except AdmissionError as error:
            self.rejected[meta["name"]] = str(error)
            self._set_phase(pod, "Failed")
        else:
            if self.on_sync is not None:
                self.on_sync(pod)
            if any(plugin.wants_start for plugin in self.manager.plugins.values()):
                self._tasks.append(asyncio.create_task(self._sync(pod)))
            else:
                self._start(pod)
        await self._tell()

    async def _sync(self, pod: dict[str, Any]) -> None:
        """Start the pod; where a plugin refuses, again and again while the pod is there."""
        while message := await self.manager.before_start(pod):
            self.refused_starts[pod["metadata"]["name"]] = message
            failure = {"reason": "CreateContainerConfigError", "message": message}
            self._set_phase(pod, "Pending", containerStatuses=[{"state": {"waiting": failure}}])
            await self._tell()
            await asyncio.sleep(RETRY_SECONDS)
            if pod["metadata"]["uid"] not in self._active():
                return
        self._start(pod)
        await self._tell()

    def _start(self, pod: dict[str, Any]) -> None:
        message = self.unstartable.get(pod["metadata"]["name"])
        if message is not None:
            failure = {"state": {"waiting": {"reason": "RunContainerError", "message": message}}}
            self._set_phase(pod, "Pending", containerStatuses=[failure])
        else:
            self._set_phase(pod, "Running", containerStatuses=[{"state": {"running": {}}}])

    def _set_phase(self, pod: dict[str, Any], phase: str, **more: Any) -> None:
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        current = self._cluster.pods.objects.get(key)
        if current is not None and current["metadata"]["uid"] == pod["metadata"]["uid"]:
            self._cluster.pods.put(current | {"status": {"phase": phase, **more}})

    def _active(self) -> list[str]:
        ended = {"Succeeded", "Failed"}
        return [
            item["metadata"]["uid"]
            for item in self._cluster.pods.objects.values()
            if item["status"]["phase"] not in ended
        ]

    def admitted(self, name: str) -> bool:
        """Whether the pod of this name runs here."""
        pod = self._cluster.pods.objects.get(("default", name))
        return pod is not None and pod["status"]["phase"] == "Running"

    def devices(self, name: str, resource: str = "aliyun.com/gpu-mem") -> dict[str, Ids]:
        """Ids of each container of a pod."""
        uid = self._cluster.pods.objects["default", name]["metadata"]["uid"]
        rows = self.manager.pods.get(uid, {})
        return {container: held[resource] for container, held in rows.items() if resource in held}

    def cdi(self, name: str, container: str = "c0") -> list[str]:
        """CDI devices that the container of a pod was given."""
        uid: str = self._cluster.pods.objects["default", name]["metadata"]["uid"]
        return self.manager.cdi[uid, container]

    def envs(self, name: str, container: str = "c0") -> dict[str, str]:
        """Environment that a container was given."""
        uid = self._cluster.pods.objects["default", name]["metadata"]["uid"]
        return self.manager.envs[uid, container]

    async def List(self, request: Any, context: Any) -> truth.ListPodResourcesResponse:  # noqa: N802
        """As kubelet answers: containers and sidecars, ended pods too while they exist."""
        answer = truth.ListPodResourcesResponse()
        for item in self._cluster.pods.objects.values():
            meta = item["metadata"]
            if meta["uid"] not in self._seen:
                continue
            pod = answer.pod_resources.add(name=meta["name"], namespace=meta["namespace"])
            sidecars = [
                each
                for each in item["spec"].get("initContainers", [])
                if each.get("restartPolicy") == "Always"
            ]
            for container in (*sidecars, *item["spec"]["containers"]):
                row = pod.containers.add(name=container["name"])
                held = self.manager.pods.get(meta["uid"], {}).get(container["name"], {})
                for resource, ids in held.items():
                    row.devices.add(resource_name=resource, device_ids=sorted(ids))
        return answer


def _creation(item: dict[str, Any]) -> str:
    return str(item["metadata"]["creationTimestamp"])
