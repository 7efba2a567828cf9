"""ResourceSlices and claims on a real API server with a real kube-scheduler.

Part of ``make e2e``: the programs come from the same cache as the kind cluster's.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
from fakedriver import t4
from moduletime import Clock
from sliceagent import Agent

from environments.apicall import MERGE_PATCH, ApiCalls
from environments.controlplane import ControlPlane
from environments.testing.planes import control_plane
from gpucore.model import IsolationMode
from gpucore.units import GIB
from gpucore.wire.claim.devices import device_indexes, device_name
from gpucore.wire.claim.resource_claims import ResourceClaim, decode_claim
from gpucore.wire.claim.resource_slices import PATH, decode_slice
from gpucore.wire.names import CLAIM_DRIVER
from gpudeviceplugin.cluster.informers import node_named
from gpudeviceplugin.dra.slices import slice_name
from gpudeviceplugin.gpus.devices import MigInstance, NodeHardware
from gpukube.client import HttpKubeClient
from gpukube.watch.informer import Informer

SCHEDULER = "plain"
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
WAIT_SECONDS = 180
LONG = pytest.mark.timeout(300)  # includes the start of the control plane
Object = dict[str, Any]

pytestmark = [pytest.mark.e2e, LONG]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane with a kube-scheduler that calls no extender."""
    with control_plane() as one:
        one.scheduler(None, name=SCHEDULER)
        yield one


class World:
    """One node whose GPUs are offered as claims."""

    def __init__(self, calls: ApiCalls, node: str) -> None:
        self.calls, self.node = calls, node

    async def read(self, path: str) -> Object:
        """An object as it is."""
        found: Object = msgspec.json.decode(await self.calls.call("GET", path))
        return found

    async def claim(self, name: str, gib: int) -> None:
        """A claim for a share, and the pod that uses it."""
        exactly = {
            "deviceClassName": self.node,
            "capacity": {"requests": {"memory": f"{gib}Gi", "compute": "10"}},
        }
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        await self.calls.call("POST", CLAIMS, _object("ResourceClaim", name, spec))
        container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
        pod = {
            "schedulerName": SCHEDULER,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod}
        await self.calls.call("POST", PODS, body)

    async def scheduled(self, name: str) -> ResourceClaim:
        """Until the pod has a node; its claim."""
        await self.until(f"{PODS}/{name}", lambda pod: pod["spec"].get("nodeName"))
        return decode_claim(await self.calls.call("GET", f"{CLAIMS}/{name}"))

    async def pending(self, name: str) -> str:
        """Until the scheduler found no node for the pod; its message."""

        def refused(pod: Object) -> str:
            found = pod["status"].get("conditions", ())
            return next((each["message"] for each in found if each["status"] == "False"), "")

        return refused(await self.until(f"{PODS}/{name}", refused))

    async def end(self, name: str) -> None:
        """The pod is deleted, and its claim is free as the resource claim controller leaves it."""
        await self.calls.call("DELETE", f"{PODS}/{name}")
        freed = {"status": {"reservedFor": None, "allocation": None}}
        await self.calls.call("PATCH", f"{CLAIMS}/{name}/status", freed, kind=MERGE_PATCH)

    async def until(self, path: str, true: Callable[[Object], object]) -> Object:
        """Until something is true of an object."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not true(found := await self.read(path)):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
        return found


def _object(kind: str, name: str, spec: Object) -> Object:
    head = {"apiVersion": "resource.k8s.io/v1", "kind": kind}
    return head | {"metadata": {"name": name}, "spec": spec}


@asynccontextmanager
async def node(
    plane: ControlPlane, name: str, machine: NodeHardware, labels: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[World, Agent]]:
    """A node object, a device class of shares, and an agent that publishes them."""
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "50"}
    all_labels = {"gpushare/api": "claims", **(labels or {})}
    item = {
        "metadata": {"name": name, "labels": all_labels},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    text = f"device.driver == '{CLAIM_DRIVER}' && device.allowMultipleAllocations"
    selectors = [{"cel": {"expression": text}}]
    async with ApiCalls.to(plane) as calls:
        await calls.call("POST", "/api/v1/nodes", item)
        await calls.call("POST", CLASSES, _object("DeviceClass", name, {"selectors": selectors}))
        client = await HttpKubeClient.connect(plane.kubeconfig, user_agent="test")
        async with client:
            agent = Agent(client, Clock(), machine, node=name)
            nodes = Informer(client, node_named(name), agent.watch, silence=60)
            parts = (agent.informer, agent.publisher, nodes)
            tasks = [asyncio.create_task(each.run()) for each in parts]
            try:
                yield World(calls, name), agent
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                for pod in msgspec.json.decode(await calls.call("GET", PODS))["items"]:
                    with suppress(Exception):
                        await calls.call("DELETE", f"{PODS}/{pod['metadata']['name']}")
                await calls.call("DELETE", f"/api/v1/nodes/{name}")
                await calls.call("DELETE", f"{PATH}/{slice_name(name)}")


async def published(world: World, generation: int) -> list[str]:
    """Until the pool has this generation; names of its devices in order."""
    path = f"{PATH}/{slice_name(world.node)}"
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            raw = await world.calls.call("GET", path, fine=(200, 404))
            found = msgspec.json.decode(raw)
            if found["kind"] == "ResourceSlice" and (
                found["spec"]["pool"]["generation"] >= generation
            ):
                devices = found["spec"]["devices"]
                return [f"gpu-{each['attributes']['index']['int']}" for each in devices]
            await asyncio.sleep(0.05)


async def test_the_api_server_keeps_every_kind_of_device_as_published(plane: ControlPlane) -> None:
    """MPS, MIG, unhealthy and linked GPUs read back equal, so that nothing is written again."""
    mig = msgspec.structs.replace(
        t4(2), mig=True, slots=7, instances=(MigInstance(0, "MIG-1", "1g.5gb", 4864),)
    )
    machine = NodeHardware("535.1", (t4(0), t4(1), mig), links={"0-1": ("NV2",)})
    async with node(plane, "kinds", machine) as (world, agent):
        agent.inventory(isolation=IsolationMode.MPS, pcie_root="pci0000:3a")
        assert await published(world, 1) == ["gpu-17", "gpu-0", "gpu-1"]
        agent.inventory(healthy=False)
        assert await published(world, 2) == ["gpu-17", "gpu-1", "gpu-0"]
        async with asyncio.timeout(WAIT_SECONDS):
            while agent.publisher._slices.generation < 2:  # noqa: ASYNC110 - the reply to its write
                await asyncio.sleep(0.05)
        agent.state.outlook_changed.fire()
        await agent.publisher._publish()
        path = f"{PATH}/{slice_name('kinds')}"
        found = decode_slice(await world.calls.call("GET", path))
        assert (found.generation, [method for method, _ in agent.writes]) == (
            2,
            ["create", "update"],
        )
        tainted = {each.index: (each.taint, bool(each.tainted_at)) for each in found.devices}
        assert tainted == {17: ("", False), 1: ("", False), 0: ("NoSchedule", True)}
        assert {each.pcie_root for each in found.devices} == {"pci0000:3a", ""}
        assert {each.index: each.max_shares for each in found.devices} == {0: 48, 1: 0, 17: 0}
        owner = await world.read("/api/v1/nodes/kinds")
        assert found.node_uid == owner["metadata"]["uid"]


async def test_two_claims_share_one_gpu_and_a_third_waits(plane: ControlPlane) -> None:
    """The third starts when one ends; the sum of what they consume never exceeds the GPU."""
    async with node(plane, "one", NodeHardware("535.1", (t4(0),))) as (world, agent):
        await published(world, 1)
        units = agent.state.inventory.gpus[0].units
        await world.claim("first", units - 6)
        await world.claim("second", 5)
        held = 0
        for name, gib in (("first", units - 6), ("second", 5)):
            claim = await world.scheduled(name)
            share = claim.shares[0]
            gpu = agent.state.inventory.gpus[0]
            assert (share.device, share.pool, share.core) == (device_name(gpu), "one", 10)
            assert share.memory_mib == gib * GIB.mib
            assert share.share_id
            held += share.memory_mib
        assert held <= units * GIB.mib
        await world.claim("third", 2)
        assert "cannot allocate all claims" in await world.pending("third")
        await world.end("first")
        third = await world.scheduled("third")
        assert [share.device for share in third.shares] == [device_name(gpu)]


async def test_kube_scheduler_takes_the_gpu_that_the_policy_lists_first(
    plane: ControlPlane,
) -> None:
    """With spread the second share goes to another GPU; first fit alone would take the same."""
    gpus = tuple(t4(index) for index in range(3))
    labels = {"ack.node.gpu.placement": "spread"}
    async with node(plane, "spread", NodeHardware("535.1", gpus), labels) as (world, agent):
        await published(world, 1)
        taken = []
        for number in range(3):
            await world.claim(f"share-{number}", 2)
            claim = await world.scheduled(f"share-{number}")
            indexes = device_indexes(agent.state.inventory.gpus)
            taken += [indexes[share.device] for share in claim.shares]
            agent.claim(number, taken[-1], 2)
            await published(world, number + 2)
        assert taken == [0, 1, 2]
