"""The device plugin API of one resource; all calls are served from memory.

The only I/O in an RPC is a small file in memory: Allocate writes the CDI file of a grant that had
none yet. Two calls may wait, for a bounded time: GetPreferredAllocation for a pod that the watch
has yet to deliver, and PreStartContainer for the driver's memory limit of the pod.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, Final

import grpc.aio
import structlog

from gpucore.model import Gpu
from gpucore.node.allocation.allocation_error import AllocationError, AllocationErrorCode
from gpucore.node.allocation.device_ids import MESSAGE_LIMIT, Resource
from gpucore.node.allocation.matcher import Granted, PreferenceRequest
from gpucore.node.grant import Grant, grant
from gpucore.wire.names import START_TURN_WORDS
from gpudeviceplugin import telemetry
from gpudeviceplugin.proto import deviceplugin_pb2 as api
from gpudeviceplugin.state import NodeState

log = structlog.get_logger()

LIMIT_MISSING: Final = "LimitMissing"
WAITS_FOR_TURN: Final = "WaitsForTurn"
"""Codes of a refused start, in the metric of refusals."""

StartCheck = Callable[[tuple[str, ...]], Awaitable[str]]
"""Takes the device IDs of a container; returns why it must not start, empty if it may."""

Context = grpc.aio.ServicerContext[Any, Any]


class Servicer:
    """One resource of the node.

    Args:
        patience_seconds: seconds that GetPreferredAllocation waits for a pod.
        before_start: is called before each container with this resource starts; ``None``: kubelet
            does not call the plugin then.
    """

    def __init__(
        self,
        state: NodeState,
        resource: Resource,
        *,
        patience_seconds: float,
        numa_hints: bool,
        before_start: StartCheck | None = None,
    ) -> None:
        self._state = state
        self._resource = resource
        self._patience_seconds = patience_seconds
        self._numa_hints = numa_hints
        self._before_start = before_start
        self._withdrawn = False
        self._ended = False
        self._listed = asyncio.Event()
        self._streams = 0
        self._since = float("inf")
        for code in AllocationErrorCode:  # a series that begins with refusals has no increase
            telemetry.REFUSALS.labels(resource, code)

    @property
    def unwatched_seconds(self) -> float:
        """Seconds since kubelet last watched the devices, or was told that it can; 0 meanwhile."""
        now = asyncio.get_running_loop().time()
        return 0.0 if self._streams else max(now - self._since, 0.0)

    @property
    def options(self) -> api.DevicePluginOptions:
        """The optional calls that kubelet should make, sent with the registration."""
        return api.DevicePluginOptions(
            get_preferred_allocation_available=True,
            pre_start_required=self._before_start is not None,
        )

    def begin(self) -> None:
        """Streams stay open from now on."""
        self._ended = False
        self._listed.clear()
        self._since = asyncio.get_running_loop().time()

    async def listed(self, seconds: float) -> bool:
        """Wait until kubelet was sent the devices; false on a timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._listed.wait()
        return self._listed.is_set()

    def end(self) -> None:
        """Finish all streams, so that the server can stop at once."""
        self._ended = True
        self._state.inventory_changed.fire()

    def withdraw(self) -> None:
        """Advertise no devices from now on."""
        self._withdrawn = True

    async def GetDevicePluginOptions(  # noqa: N802 - the protocol's name
        self, _request: api.Empty, _context: Context
    ) -> api.DevicePluginOptions:
        """The optional calls that this plugin implements."""
        return self.options

    async def ListAndWatch(  # noqa: N802 - the protocol's name
        self, _request: api.Empty, _context: Context
    ) -> AsyncIterator[api.ListAndWatchResponse]:
        """The devices, again after every change of them."""
        self._streams += 1
        try:
            async with aclosing(self._changes()) as changes:
                async for devices in changes:
                    telemetry.DEVICES.labels(self._resource).set(len(devices.devices))
                    yield devices
                    self._listed.set()
        finally:
            self._streams -= 1
            self._since = asyncio.get_running_loop().time()

    async def _changes(self) -> AsyncGenerator[api.ListAndWatchResponse, None]:
        sent = None
        while True:
            seen = self._state.inventory_changed.count
            devices = self.devices()
            if devices != sent:
                sent = devices
                yield devices
            elif self._ended:
                return
            else:
                await self._state.inventory_changed.beyond(seen)

    def devices(self) -> api.ListAndWatchResponse:
        """All devices of the resource with their health."""
        if self._withdrawn:
            return api.ListAndWatchResponse()
        table = self._state.matcher.tables[self._resource]
        devices = api.ListAndWatchResponse(
            devices=[
                api.Device(ID=one, health=_health(gpu), topology=self._topology(gpu))
                for gpu in self._state.inventory.gpus
                for one in table.ids[gpu.index]
            ]
        )
        size = devices.ByteSize()
        if size > MESSAGE_LIMIT:  # an oversold node can get here; kubelet would read nothing at all
            log.error("too many devices for kubelet; none is advertised", bytes=size)
            return api.ListAndWatchResponse()
        return devices

    def _topology(self, gpu: Gpu) -> api.TopologyInfo | None:
        if not self._numa_hints or gpu.numa < 0:
            return None
        return api.TopologyInfo(nodes=[api.NUMANode(ID=gpu.numa)])

    async def GetPreferredAllocation(  # noqa: N802 - the protocol's name
        self, request: api.PreferredAllocationRequest, context: Context
    ) -> api.PreferredAllocationResponse:
        """Ids of the GPU that the pod kubelet means was given."""
        response = api.PreferredAllocationResponse()
        with telemetry.timed("GetPreferredAllocation", self._resource):
            for container in request.container_requests:
                question = PreferenceRequest(
                    resource=self._resource,
                    available=frozenset(container.available_deviceIDs),
                    required=tuple(container.must_include_deviceIDs),
                    amount=container.allocation_size,
                )
                answer = await self._advise(question)
                if isinstance(answer, AllocationError):
                    await self._refuse(answer, context)
                else:
                    response.container_responses.add(deviceIDs=answer)
        return response

    async def _advise(self, question: PreferenceRequest) -> tuple[str, ...] | AllocationError:
        arrivals = self._state.pods_changed
        deadline = asyncio.get_running_loop().time() + self._patience_seconds
        seen = arrivals.count
        while (answer := self._state.matcher.prefer(question)) is None:
            self._state.on_unknown_pod()
            try:
                async with asyncio.timeout_at(deadline):
                    await arrivals.beyond(seen)
            except TimeoutError:
                log.info(
                    "no known pod matches this call",
                    resource=self._resource,
                    amount=question.amount,
                )
                return self._state.matcher.adopt(question)
            seen = arrivals.count
        return answer

    async def Allocate(  # noqa: N802 - the protocol's name
        self, request: api.AllocateRequest, context: Context
    ) -> api.AllocateResponse:
        """Environment, mounts and CDI devices for the GPUs that the ids name."""
        response = api.AllocateResponse()
        with telemetry.timed("Allocate", self._resource):
            await self._state.stop_sweep()  # a grant must reach kubelet soon after it is made
            for container in request.container_requests:
                answer = self._state.grant(self._resource, tuple(container.devicesIDs))
                if isinstance(answer, AllocationError):
                    await self._refuse(answer, context)
                else:
                    granted = self._grant(answer)
                    await self._deliver(granted, context)
                    response.container_responses.append(_spoken(granted))
        return response

    def _grant(self, granted: Granted) -> Grant:
        turn = granted.turn
        pod = f"{turn.pod.namespace}/{turn.pod.name}" if turn else ""
        telemetry.ALLOCATIONS.labels(self._resource, str(turn is not None).lower()).inc()
        log.info("granted", resource=self._resource, gpus=dict(granted.gpus), pod=pod)
        return grant(
            self._resource,
            granted.gpus,
            self._state.inventory,
            self._state.policy,
            core_follows=bool(turn and turn.step.request.core),
            bursts=bool(turn and turn.pod.bursts),
        )

    async def _deliver(self, granted: Grant, context: Context) -> None:
        """Have the CDI file before kubelet names it; a share without its limits is refused."""
        if granted.share is None:
            return
        try:
            self._state.deliver(granted.share)
        except OSError as error:
            why = f"cannot write the CDI file that limits the container: {error}"
            await self._refuse(AllocationError(AllocationErrorCode.NO_CDI_FILE, why), context)

    async def _refuse(self, denial: AllocationError, context: Context) -> None:
        telemetry.REFUSALS.labels(self._resource, denial.code).inc()
        log.warning(
            "refused",
            resource=self._resource,
            code=denial.code,
            why=denial.sentence,
            pods=denial.pods,
        )
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, denial.sentence)

    async def PreStartContainer(  # noqa: N802 - the protocol's name
        self, request: api.PreStartContainerRequest, context: Context
    ) -> api.PreStartContainerResponse:
        """Lets a container start once the memory limit of its pod is in force.

        kubelet retries a start that is refused, and records the sentence in an event on the pod.
        """
        if self._before_start is not None:
            with telemetry.timed("PreStartContainer", self._resource):
                why = await self._before_start(tuple(request.devicesIDs))
            if why:
                code = WAITS_FOR_TURN if why.startswith(START_TURN_WORDS) else LIMIT_MISSING
                telemetry.REFUSALS.labels(self._resource, code).inc()
                log.warning("start refused", resource=self._resource, why=why)
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, why)
        return api.PreStartContainerResponse()


def _health(gpu: Gpu) -> str:
    return "Healthy" if gpu.healthy else "Unhealthy"


def _spoken(granted: Grant) -> api.ContainerAllocateResponse:
    return api.ContainerAllocateResponse(
        envs=dict(granted.envs),
        mounts=[
            api.Mount(host_path=m.host_path, container_path=m.container_path, read_only=m.read_only)
            for m in granted.mounts
        ],
        cdi_devices=[api.CDIDevice(name=name) for name in granted.cdi_devices],
    )
