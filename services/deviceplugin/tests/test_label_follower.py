"""What is offered follows the node's labels, once enough is known."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest
from fakedriver import t4

from gpucore.node.allocation.device_ids import SHARES, Resource
from gpucore.node.grant import GrantPolicy
from gpucore.units import GIB, NodeName
from gpucore.wire.node.spec import Node
from gpudeviceplugin.cluster.node_watch import NodeWatch
from gpudeviceplugin.gpus.devices import NodeHardware
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.node.node_labels import PATIENCE_SECONDS, LabelFollower
from gpudeviceplugin.state import NodeState
from gpukube.testing.clock import FakeClock

INVENTORY = inventory_of(NodeHardware("535.1", (t4(0), t4(1))), GIB)


class World:
    """Registrar and CDI files in one; what was wanted, and when."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.began = clock.seconds
        self.wanted: list[tuple[float, set[Resource]]] = []
        self.oversold: list[int] = []
        self.cdi = False
        self.state = NodeState(GrantPolicy())
        self.watch = NodeWatch(self.state.outlook_changed)
        self.known = [asyncio.Event(), asyncio.Event()]
        self.follower = LabelFollower(self.state, self.watch, self, self)  # type: ignore[arg-type]

    def want(self, resources: Collection[Resource]) -> None:
        """As the registrar's."""
        wanted = (round(self.clock.seconds - self.began, 3), set(resources))
        if not self.wanted or self.wanted[-1][1] != wanted[1]:
            self.wanted.append(wanted)
        self.oversold.append(len(self.state.matcher.tables[Resource.MEM].owner))

    def used_on(self, node: Node) -> bool:
        """As that of CDI files."""
        assert node is self.watch.node
        return self.cdi

    def node(self, **labels: str) -> None:
        """The node has these labels."""
        spelled = {key.replace("_", "."): text for key, text in labels.items()}
        self.watch.on_update(Node(NodeName("n1"), labels=spelled), b"")

    async def until(self, seconds: float) -> list[tuple[float, set[Resource]]]:
        await asyncio.sleep(self.began + seconds - self.clock.seconds)
        return list(self.wanted)


@pytest.fixture
async def world(clock: FakeClock) -> Any:
    """A follower that runs; pods and kubelet's account are not known yet."""
    made = World(clock)
    running = asyncio.create_task(made.follower.run(*made.known))
    yield made
    running.cancel()
    await asyncio.wait({running})


async def test_nothing_is_offered_before_the_pods_are_known(world: World) -> None:
    """All that should be known, and not the first of it; then at once."""
    world.state.equip(INVENTORY)
    world.node(gpushare="true")
    world.known[0].set()
    assert await world.until(1) == []
    world.known[1].set()
    assert await world.until(1.5) == [(1, set(SHARES))]


async def test_what_is_not_known_is_waited_for_a_bounded_time(world: World) -> None:
    """A kubelet that lists no allocations must not keep the node unregistered for ever."""
    world.state.equip(INVENTORY)
    world.node(gpushare="true")
    assert await world.until(PATIENCE_SECONDS - 0.1) == []
    assert await world.until(PATIENCE_SECONDS + 1) == [(PATIENCE_SECONDS, set(SHARES))]


async def test_gpus_and_labels_decide_whatever_comes_first(world: World) -> None:
    """Without a node nothing is decided, without GPUs nothing is offered."""
    for event in world.known:
        event.set()
    world.state.equip(INVENTORY)
    assert await world.until(1) == []
    world.node(gputopology="true")
    assert await world.until(2) == [(1, {Resource.GPU})]
    world.node(gpushare="true", gputopology="true")
    assert (await world.until(3))[-1] == (2, set(Resource))
    world.state.equip(inventory_of(NodeHardware("535.1", ()), GIB))
    assert (await world.until(4))[-1] == (3, set())
    world.state.equip(INVENTORY)
    assert (await world.until(5))[-1] == (4, set(Resource))
    world.node()
    assert (await world.until(6))[-1] == (5, set())


async def test_a_node_that_offers_claims_offers_no_devices(world: World) -> None:
    """Nor one that has not decided; the labels alone do not."""
    for event in world.known:
        event.set()
    world.state.equip(INVENTORY)
    world.state.offer("")
    world.node(gpushare="true")
    await world.until(1)
    world.state.offer("devices")
    await world.until(2)
    world.state.offer("claims")
    assert await world.until(3) == [(0, set()), (1, set(SHARES)), (2, set())]


async def test_a_node_that_is_deleted_changes_nothing(world: World) -> None:
    """It may be registered anew; kubelet goes on meanwhile."""
    for event in world.known:
        event.set()
    world.state.equip(INVENTORY)
    world.node(gpushare="true")
    await world.until(1)
    assert world.watch.node is not None
    world.watch.on_delete(world.watch.node)
    assert len(await world.until(2)) == 1


async def test_how_memory_is_handed_out_is_known_before_it_is_offered(world: World) -> None:
    """Oversell, cGPU and CDI: the first device list is the right one."""
    for event in world.known:
        event.set()
    world.state.equip(INVENTORY)
    world.cdi = True
    oversold = {"ack_node_gpu_schedule_oversell": "2", "cgpu_disable_isolation": "true"}
    world.node(gpushare="true", **oversold)
    await world.until(1)
    assert world.oversold[0] == 60
    assert (world.state.policy.cdi, world.state.policy.cgpu_disable) == (True, True)
    world.cdi = False
    world.node(gpushare="true", cgpu_disable_isolation="false")
    await world.until(2)
    assert (world.state.policy.cdi, world.state.policy.cgpu_disable) == (False, False)
    assert world.oversold[-1] == 30
