"""What is written to the Node object: only what differs, and the annotations before the label."""

import asyncio
import json
from typing import Any

import pytest
from fakedriver import t4
from moduletime import Clock

from gpucore.node.grant import GrantPolicy
from gpucore.units import GIB, NodeName
from gpucore.wire.names import INVENTORY, INVENTORY_HASH
from gpucore.wire.node.spec import Node
from gpudeviceplugin.cluster.node_watch import NodeWatch
from gpudeviceplugin.cluster.publisher import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Publisher
from gpudeviceplugin.gpus.devices import NodeHardware
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.state import NodeState
from gpukube.errors import StatusError

MACHINE = NodeHardware("535.1", (t4(0), t4(1)), links={"0-1": ("SYS",)})
SECONDS = 60.0


class World:
    """A node and its API server: what is written is what the node has afterwards."""

    def __init__(self, labels: dict[str, str] | None = None) -> None:
        self.state = NodeState(GrantPolicy())
        self.state.equip(inventory_of(MACHINE, GIB))
        self.watch = NodeWatch(self.state.outlook_changed)
        self.watch.on_replace((Node(NodeName("n1"), labels=labels or {}),))
        self.writes: list[tuple[str, dict[str, Any]]] = []
        self.error: Exception | None = None
        self.publisher = Publisher(self.state, self.watch, self, node_type="")  # type: ignore[arg-type]

    async def patch(self, path: str, patch: dict[str, Any]) -> None:
        """As the API server's patch."""
        self.writes.append((path, patch))
        if self.error is not None:
            raise self.error
        node = self.watch.node
        assert node is not None
        metadata, status = patch.get("metadata", {}), patch.get("status", {})
        self.watch.node = Node(
            node.name,
            node.labels | metadata.get("labels", {}),
            node.annotations | metadata.get("annotations", {}),
            node.capacity | status.get("capacity", {}),
            node.allocatable | status.get("allocatable", {}),
        )

    def inventory(self) -> Any:
        """The inventory as published."""
        assert self.watch.node is not None
        return json.loads(self.watch.node.annotations[INVENTORY])


async def test_annotations_and_label_are_one_write_and_the_count_another() -> None:
    """Who acts upon the label finds the annotations; a second look writes nothing."""
    world = World({"node.kubernetes.io/instance-type": "ecs.gn6"})
    world.state.serve(serving=True)
    assert await world.publisher._publish()
    (node, first), (status, second) = world.writes
    assert (node, status) == ("/api/v1/nodes/n1", "/api/v1/nodes/n1/status")
    assert set(first["metadata"]["annotations"]) == {INVENTORY, "GPU_TOPOLOGY", "NODE_TYPE"}
    assert set(first["metadata"]["labels"]) == {INVENTORY_HASH}
    count = {"aliyun.com/gpu-count": "2"}
    assert second["status"] == {"capacity": count, "allocatable": count}
    assert not await world.publisher._publish()


async def test_a_node_without_an_inventory_waits_for_the_first_registration() -> None:
    """Afterwards every change is published, that the plugin is away included."""
    world = World()
    assert not await world.publisher._publish()
    world.state.serve(serving=True)
    await world.publisher._publish()
    assert world.inventory()["serving"] is True
    await world.publisher.withdraw()
    assert (world.inventory()["serving"], world.state.serving) == (False, False)
    world.state.serve(serving=True)
    await world.publisher._publish()
    assert world.inventory()["serving"] is True


async def test_nothing_is_written_before_the_node_and_the_driver_are_known() -> None:
    """An empty inventory is no news."""
    world = World()
    world.state.serve(serving=True)
    world.watch.on_replace(())
    assert not await world.publisher._publish()
    bare = World()
    bare.state.equip(inventory_of(NodeHardware("", ()), GIB))
    bare.state.serve(serving=True)
    assert not await bare.publisher._publish()
    assert world.writes == bare.writes == []


async def test_a_write_that_fails_is_tried_again_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pauses double to a limit."""
    clock = Clock()
    clock.rule(monkeypatch, "gpudeviceplugin.cluster.publisher")
    world = World()
    world.state.serve(serving=True)
    world.error = StatusError("patch", status=503, message="away")
    enough = asyncio.Event()
    clock.on_sleep = lambda: enough.set() if len(clock.slept) > 9 else None
    running = asyncio.create_task(world.publisher.run())
    async with asyncio.timeout(SECONDS):
        await enough.wait()
    running.cancel()
    await asyncio.wait({running})
    assert clock.slept[:3] == [
        FIRST_PAUSE_SECONDS,
        2 * FIRST_PAUSE_SECONDS,
        4 * FIRST_PAUSE_SECONDS,
    ]
    assert max(clock.slept) == LONGEST_PAUSE_SECONDS
