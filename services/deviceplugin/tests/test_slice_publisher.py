"""The ResourceSlice of a node: published once, kept current, and removed with the label."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from moduletime import Clock
from sliceagent import MACHINE, Agent

from gpucore.model import Inventory
from gpucore.units import GIB
from gpucore.wire.claim.resource_slices import PATH
from gpucore.wire.names import CLAIM_DRIVER
from gpudeviceplugin.dra.publisher import LONGEST_PAUSE_SECONDS, WRITES_PER_SECOND
from gpudeviceplugin.dra.slices import slice_name
from gpudeviceplugin.gpus.inventory import inventory_of
from gpukube.client import HttpKubeClient
from gpukube.testing.apiserver import FakeApiServer
from gpukube.testing.waiting import until

pytestmark = pytest.mark.slow

CLAIMS = {"gpushare": "true", "gpushare/api": "claims"}
NAME = slice_name("n1")


class World:
    """An API server, and the agents of one node."""

    def __init__(self, cluster: FakeApiServer, clock: Clock, folder: Path) -> None:
        self.cluster, self.clock, self.folder = cluster, clock, folder

    @asynccontextmanager
    async def agent(self, labels: Mapping[str, str] | None = None) -> AsyncIterator[Agent]:
        """A running agent of a node with these labels; claims by default."""
        kubeconfig = self.cluster.write_kubeconfig(self.folder)
        async with await HttpKubeClient.connect(kubeconfig, user_agent="test") as client:
            agent = Agent(client, self.clock)
            agent.label(CLAIMS if labels is None else labels)
            tasks = [asyncio.create_task(each.run()) for each in (agent.informer, agent.publisher)]
            try:
                await agent.informer.synced.wait()
                yield agent
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    def spec(self, name: str = NAME) -> Any:
        """What the API server has; empty without the slice."""
        found = self.cluster.stores["resourceslices"].objects.get(("", name))
        return found["spec"] if found else {}

    def order(self) -> list[str]:
        """Names of the devices in their order."""
        devices = self.spec().get("devices", ())
        return [f"gpu-{each['attributes']['index']['int']}" for each in devices]

    def generation(self) -> int:
        """Of the pool; 0 without a slice."""
        return int(self.spec().get("pool", {}).get("generation", 0))


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """Pauses of the publisher pass at once."""
    clock = Clock()
    clock.rule(monkeypatch, "gpudeviceplugin.dra.publisher")
    async with FakeApiServer() as cluster:
        yield World(cluster, clock, tmp_path)


def foreign(name: str, *, driver: str = CLAIM_DRIVER, node: str = "n1") -> dict[str, Any]:
    """A slice that this publisher did not create."""
    pool = {"name": node, "generation": 7, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": []}
    return {"metadata": {"name": name}, "spec": spec}


async def test_the_slice_has_the_gpus_and_belongs_to_the_node(world: World) -> None:
    """Pool and owner are the node; the generation begins with 1."""
    async with world.agent():
        await until("published", world.spec)
        found = world.cluster.find("resourceslices", NAME)
        assert found["spec"]["pool"] == {"name": "n1", "generation": 1, "resourceSliceCount": 1}
        assert (found["spec"]["driver"], found["spec"]["nodeName"]) == (CLAIM_DRIVER, "n1")
        owner = found["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", "n1", "uid-n1")
        groups = [each["attributes"].get("linkGroup") for each in found["spec"]["devices"]]
        assert groups == [{"string": "nvlink-0"}, {"string": "nvlink-0"}, None]
        assert world.order() == ["gpu-0", "gpu-1", "gpu-2"]


@pytest.mark.parametrize("labels", [{}, {"gpushare": "true"}, {"gpushare/api": "devices"}])
async def test_a_node_without_the_label_has_no_slice(world: World, labels: dict[str, str]) -> None:
    """A slice that is there is removed, those of other drivers and nodes are not."""
    for name, fields in (("old", {}), ("other", {"driver": "nic"}), ("far", {"node": "n2"})):
        await world.cluster.put("resourceslices", foreign(name, **fields))
    async with world.agent(labels) as agent:
        await until("removed", lambda: not world.spec("old"))
        await until("seen", lambda: not agent.slices.slices)
        assert world.spec("other")
        assert world.spec("far")
        assert [method for method, _ in agent.writes] == ["delete"]


async def test_changes_of_gpus_are_new_generations_of_the_same_slice(world: World) -> None:
    """An unhealthy GPU is tainted; nothing is written where nothing changed."""
    async with world.agent() as agent:
        await until("published", world.spec)
        agent.inventory(healthy=False)
        await until("tainted", lambda: world.generation() == 2)
        (last,) = [each for each in world.spec()["devices"] if "taints" in each]
        assert last["attributes"]["index"] == {"int": 0}
        assert last["taints"][0]["effect"] == "NoSchedule"
        assert world.order() == ["gpu-1", "gpu-2", "gpu-0"]
        agent.inventory(healthy=True)
        await until("well", lambda: world.generation() == 3)
        agent.label(CLAIMS | {"other": "label"})
        agent.inventory(isolation=agent.state.inventory.gpus[0].isolation, numa=5)
        await until("moved", lambda: world.generation() == 4)
        assert [method for method, _ in agent.writes] == ["create", "update", "update", "update"]


async def test_devices_are_listed_in_the_order_of_the_policy(world: World) -> None:
    """Binpack puts the fullest GPU first; the node's label requests another policy."""
    async with world.agent() as agent:
        agent.claim(1, gpu=2, gib=5)
        await until("fullest first", lambda: world.order() == ["gpu-2", "gpu-0", "gpu-1"])
        agent.label(CLAIMS | {"ack.node.gpu.placement": "spread"})
        await until("emptiest first", lambda: world.order() == ["gpu-0", "gpu-1", "gpu-2"])
        agent.label(CLAIMS)
        agent.holder.release("uid-c1")
        agent.holder.release("uid-c1")
        agent.claim(2, gpu=1, gib=3)
        await until("the next", lambda: world.order() == ["gpu-1", "gpu-0", "gpu-2"])


async def test_a_burst_of_claims_is_a_few_writes_a_second(world: World) -> None:
    """Changes are gathered, and writes keep their distance."""
    async with world.agent() as agent:
        await until("published", world.spec)
        for number in range(18):  # 6 GiB on each GPU
            agent.claim(number, gpu=number % 3, gib=1)
            await asyncio.sleep(0.002)
        agent.claim(99, gpu=2, gib=3)
        await until("current", lambda: world.order()[0] == "gpu-2")
        times = [at for _, at in agent.writes]
        gaps = [after - before for before, after in itertools.pairwise(times)]
        assert min(gaps) >= 1 / WRITES_PER_SECOND - 1e-9


async def test_a_slice_that_kubelet_removed_is_published_again(world: World) -> None:
    """A restart of kubelet deletes the slices of its node; the generation goes on."""
    async with world.agent():
        await until("published", world.spec)
        for generation in (2, 3):
            await world.cluster.delete("resourceslices", NAME)
            await until("again", lambda now=generation: world.generation() == now)


async def test_a_removal_that_overtakes_the_answer_to_the_creation_counts(world: World) -> None:
    """The watch reports that the slice went, and only then the creation is answered."""

    async def overtaken(request: web.Request) -> web.Response:
        created = await world.cluster.put("resourceslices", await request.json())
        await world.cluster.delete("resourceslices", NAME)
        before = agent.slices.removals
        await until("heard", lambda: agent.slices.removals > before)
        return web.json_response(created, status=201)

    world.cluster.fail_next("create", overtaken)
    async with world.agent() as agent:
        await until("published again", lambda: world.generation() == 2)


async def test_a_slice_that_changed_meanwhile_is_read_again(world: World) -> None:
    """The update names the version that it replaces; a conflict is followed by another attempt."""
    async with world.agent() as agent:
        await until("published", lambda: agent.slices.slices)
        async with world.cluster.silent_watches():
            changed = foreign(NAME)
            changed["metadata"] = world.cluster.find("resourceslices", NAME)["metadata"]
            await world.cluster.put("resourceslices", changed)
            agent.inventory(numa=4)
            await until("current", lambda: world.generation() == 8)
        assert [method for method, _ in agent.writes] == ["create", "update", "update"]
        assert world.order() == ["gpu-0", "gpu-1", "gpu-2"]


async def test_a_slice_that_vanished_before_an_update_is_created(world: World) -> None:
    """As after a restart of kubelet that the watch has not delivered yet."""
    async with world.agent() as agent:
        await until("published", lambda: agent.slices.slices)
        async with world.cluster.silent_watches():
            await world.cluster.delete("resourceslices", NAME)
            agent.inventory(numa=4)
            await until("created again", lambda: world.generation() == 2)


async def test_two_agents_of_one_node_have_one_slice(world: World) -> None:
    """During a rolling update the slower one meets a conflict and finds nothing to write."""
    async with AsyncExitStack() as stack:
        async with world.cluster.silent_watches():
            first = await stack.enter_async_context(world.agent())
            await until("published", world.spec)
            second = await stack.enter_async_context(world.agent())
            second.slices.drop(NAME)
            second.state.outlook_changed.fire()
            await until("read", lambda: second.slices.slices)
        assert [each["metadata"]["name"] for each in world.cluster.all("resourceslices")] == [NAME]
        assert world.generation() == 1
        assert [method for method, _ in first.writes] == ["create"]


async def test_removing_the_label_removes_the_slice(world: World) -> None:
    """And setting it again publishes with a larger generation."""
    async with world.agent() as agent:
        await until("published", world.spec)
        agent.label({"gpushare": "true"})
        await until("removed", lambda: not world.spec())
        agent.label(CLAIMS)
        await until("again", lambda: world.generation() == 2)


async def test_a_slice_that_vanished_before_its_removal_is_gone(world: World) -> None:
    """As where kubelet and the publisher remove it at once."""
    async with world.agent() as agent:
        await until("published", lambda: agent.slices.slices)
        async with world.cluster.silent_watches():
            await world.cluster.delete("resourceslices", NAME)
            agent.label({})
            await until("known", lambda: not agent.slices.slices)
        assert [method for method, _ in agent.writes] == ["create", "delete"]


async def test_a_node_that_was_created_again_owns_a_new_slice(world: World) -> None:
    """The old owner is gone, and its garbage would be collected."""
    async with world.agent() as agent:
        await until("published", world.spec)
        agent.label(CLAIMS, uid="uid-new")
        await until("again", lambda: world.generation() == 2)
        owner = world.cluster.find("resourceslices", NAME)["metadata"]["ownerReferences"][0]
        assert owner["uid"] == "uid-new"


async def test_failures_are_retried(world: World) -> None:
    """The API server refuses for a while, then everything is current."""
    world.cluster.fail["POST", "/resourceslices"] = 503
    async with world.agent() as agent:
        await until("tried", lambda: len(agent.writes) >= 3)
        world.cluster.fail.clear()
        await until("published", world.spec)
        agent.state.equip(Inventory(gpus=(), unit=GIB, driver="535.1"))
        await until("no GPU, no slice", lambda: not world.spec())


async def test_pauses_after_failures_grow_to_a_minute(world: World) -> None:
    """An API server that refuses is called less and less often."""
    world.cluster.fail["POST", "/resourceslices"] = 503
    async with world.agent() as agent:
        await until("tried", lambda: len(agent.writes) >= 14)
        pauses = [seconds for seconds in world.clock.slept if seconds > 0.5]
        assert min(pauses) <= 1.6
        assert LONGEST_PAUSE_SECONDS / 2 <= max(pauses) <= LONGEST_PAUSE_SECONDS


async def test_nothing_is_written_before_node_driver_and_slices_are_known(world: World) -> None:
    """Each of the three may be the last to be known."""
    async with world.agent() as agent:
        await until("published", world.spec)
        agent.watch.on_replace(())
        await agent.publisher._publish()
        agent.state.equip(Inventory(gpus=(), unit=GIB))
        agent.label(CLAIMS)
        await agent.publisher._publish()
        agent.slices.known = False
        agent.state.equip(inventory_of(MACHINE, GIB))
        await agent.publisher._publish()
        assert [method for method, _ in agent.writes] == ["create"]
        assert world.cluster.count("POST", PATH) == 1
