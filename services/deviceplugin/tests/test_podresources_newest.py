"""The plugin reads devices from the PodResources answer of the newest kubelet.

The answers are written in protobuf's wire format with the field numbers of Kubernetes 1.37
(`k8s.io/kubelet/pkg/apis/podresources/v1`): they have CPUs, memory, topology and resource claims
(DRA), which the plugin's stubs do not have.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.wire.names import DEFAULT_NAMES
from gpudeviceplugin.kubelet.pod_resources import PodResourcesClient

MEM = Resource.MEM.full_name(DEFAULT_NAMES)


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    head = b""
    while number > 0x7F:
        head += bytes([number & 0x7F | 0x80])
        number >>= 7
    return head + bytes([number])


def field(number: int, *content: str | bytes) -> bytes:
    """A field that is a text or a message, given by its own fields."""
    whole = b"".join(part.encode() if isinstance(part, str) else part for part in content)
    return varint(number << 3 | 2) + varint(len(whole)) + whole


def count(number: int, value: int) -> bytes:
    """A field that is a number."""
    return varint(number << 3) + varint(value)


NODE_1 = field(3, field(1, count(1, 1)))
"""TopologyInfo of NUMA node 1."""
CPUS = field(3, varint(4) + varint(5))
BLOCK = field(1, "memory") + count(2, 1 << 30) + NODE_1
"""ContainerMemory: one GiB."""
MEMORY = field(4, BLOCK)


def devices(resource: str, *ids: str) -> bytes:
    """ContainerDevices, with the NUMA node that newer kubelets add."""
    return field(2, field(1, resource), *(field(2, one) for one in ids), NODE_1)


def allocation(name: str, *, share: str) -> bytes:
    """DynamicResource: a prepared ResourceClaim with a device that is shared."""
    device = (
        field(1, field(1, f"example.com/gpu={name}"))
        + field(2, "gpu.example.com")
        + field(3, "pool-a")
        + field(4, "gpu-0")
        + field(5, share)
    )
    return field(5, field(2, name) + field(3, "ns") + field(4, device))


def pod(name: str, *containers: bytes) -> bytes:
    """A pod with CPUs and memory of its own, as pod-level allocations of 1.37 are listed."""
    own = field(4, varint(4) + varint(5)) + field(5, BLOCK)
    return field(1, field(1, name) + field(2, "ns") + b"".join(containers) + own)


def container(name: str, *parts: bytes) -> bytes:
    """One container."""
    return field(3, field(1, name), *parts)


@asynccontextmanager
async def kubelet(socket: Path, answer: bytes) -> AsyncIterator[None]:
    """A kubelet that replies these bytes to List."""

    async def reply(_request: bytes, _context: Any) -> bytes:
        return answer

    server = grpc.aio.server()
    listing = grpc.unary_unary_rpc_method_handler(reply)
    handler = grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": listing})
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


async def listed(folder: Path, *pods: bytes) -> list[Held]:
    """What the plugin reads of these pods."""
    socket = folder / "pod-resources.sock"
    async with kubelet(socket, b"".join(pods)):
        client = PodResourcesClient(socket, DEFAULT_NAMES, kubelet_restarted=lambda: None)
        return await client.list()


async def test_devices_are_read_beside_resource_claims(tmp_path: Path) -> None:
    """CPUs, memory, topology and claims stand between the devices and change nothing."""
    mixed = container(
        "c0", CPUS, devices(MEM, "a-_-0", "a-_-1"), allocation("one", share="s-1"), MEMORY
    )
    split = container(
        "c1", devices(MEM, "a-_-2"), allocation("two", share="s-2"), devices(MEM, "a-_-3")
    )
    (held,) = await listed(tmp_path, pod("p", mixed, split))
    assert held == Held(
        "ns",
        "p",
        {
            "c0": {Resource.MEM: ("a-_-0", "a-_-1")},
            "c1": {Resource.MEM: ("a-_-2", "a-_-3")},
        },
    )


async def test_a_pod_with_claims_alone_holds_none_of_our_devices(tmp_path: Path) -> None:
    """GPUs that a DRA driver prepared are not the plugin's, and neither are others' devices."""
    foreign = container("c1", devices("nvidia.com/gpu", "GPU-1"), allocation("one", share="s-1"))
    found = await listed(
        tmp_path, pod("claims", container("c0", allocation("one", share="")), foreign)
    )
    assert found == [Held("ns", "claims", {})]


async def test_one_long_answer_is_read_to_its_end(tmp_path: Path) -> None:
    """Hundreds of pods with claims, as on a full node: lengths of more than one byte."""
    pods = [
        pod(
            f"p{n}",
            container("c0", allocation(f"claim-{n}", share="s" * 200), devices(MEM, f"a-_-{n}")),
        )
        for n in range(300)
    ]
    found = await listed(tmp_path, *pods)
    assert [each.name for each in found] == [f"p{n}" for n in range(300)]
    assert found[-1].containers == {"c0": {Resource.MEM: ("a-_-299",)}}
