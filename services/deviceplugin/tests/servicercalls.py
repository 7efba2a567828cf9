"""Calls of the device plugin protocol as kubelet makes them, without a socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from fakedriver import t4

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.grant import GrantPolicy
from gpucore.units import GIB, NodeName, PodUid
from gpucore.wire.names import DEFAULT_NAMES as NAMES
from gpucore.wire.pod.spec import Container, Pod
from gpudeviceplugin.gpus.devices import NodeHardware
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.kubelet.servicer import Servicer
from gpudeviceplugin.proto import deviceplugin_pb2 as api
from gpudeviceplugin.state import NodeState

INVENTORY = inventory_of(NodeHardware("535.1", (t4(0), t4(1))), GIB)


class RefusedError(Exception):
    """The call was ended with a status."""


class Context:
    """What a servicer may do with a call."""

    async def abort(self, code: grpc.StatusCode, sentence: str) -> None:
        """End the call; the real one raises as well."""
        raise RefusedError(f"{code.name}: {sentence}")


CONTEXT: Any = Context()


def node(policy: GrantPolicy | None = None) -> NodeState:
    """A node with two GPUs of 15 units."""
    state = NodeState(policy or GrantPolicy())
    state.equip(INVENTORY)
    return state


def servicer(state: NodeState, resource: Resource = Resource.MEM, **more: Any) -> Servicer:
    """The servicer of one resource; it does not wait for pods unless the test wants it to."""
    return Servicer(state, resource, **{"patience_seconds": 0.0, "numa_hints": False} | more)


def pod(name: str, limits: dict[str, int], gpu: int) -> Pod:
    """A bound pod with a plan."""
    texts = {NAMES.mem_idx: str(gpu), NAMES.mem_pod: "1", NAMES.mem_assume_time: "17"}
    spelled = {f"aliyun.com/{resource}": str(amount) for resource, amount in limits.items()}
    return Pod(
        PodUid(f"uid-{name}"),
        "default",
        name,
        NodeName("n1"),
        phase="Pending",
        annotations=texts,
        containers=(Container("c0", spelled),),
    )


def preferred(state: NodeState, *amounts: int) -> api.PreferredAllocationRequest:
    """Kubelet requests so many ids for each container; all ids are available."""
    ids = list(state.matcher.tables[Resource.MEM].owner)
    container_requests = [
        api.ContainerPreferredAllocationRequest(available_deviceIDs=ids, allocation_size=amount)
        for amount in amounts
    ]
    return api.PreferredAllocationRequest(container_requests=container_requests)


def allocation(*containers: list[str]) -> api.AllocateRequest:
    """Kubelet has taken these ids for each container."""
    container_requests = [api.ContainerAllocateRequest(devicesIDs=ids) for ids in containers]
    return api.AllocateRequest(container_requests=container_requests)


def ids(state: NodeState, gpu: int, count: int, resource: Resource = Resource.MEM) -> list[str]:
    """The first ids of a GPU."""
    return list(state.matcher.tables[resource].ids[gpu][:count])  # type: ignore[index]


@asynccontextmanager
async def stream(made: Servicer, *, seconds: float = 20.0) -> AsyncIterator[Any]:
    """An open ListAndWatch, with a deadline for everything in it."""
    answers = made.ListAndWatch(api.Empty(), CONTEXT)
    try:
        async with asyncio.timeout(seconds):
            yield answers
    finally:
        await answers.aclose()  # type: ignore[attr-defined]
