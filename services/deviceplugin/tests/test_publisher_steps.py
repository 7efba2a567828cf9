"""The publisher over time, and which fields of the Node it writes."""

import asyncio
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from fakedriver import t4
from msgspec.structs import replace
from structlog.testing import capture_logs

from gpucore.node.grant import GrantPolicy
from gpucore.units import GIB, NodeName
from gpucore.wire.names import INVENTORY, INVENTORY_HASH
from gpucore.wire.node.inventories import inventory_hash
from gpucore.wire.node.spec import Node
from gpudeviceplugin.cluster.node_watch import NodeWatch
from gpudeviceplugin.cluster.publisher import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    Publisher,
    differing,
)
from gpudeviceplugin.gpus.devices import MigInstance, NodeHardware
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.state import NodeState
from gpukube.errors import KubeError, UnreachableError
from gpukube.testing.clock import FakeClock

MACHINE = NodeHardware("535.1", (t4(0), t4(1)), links={"0-1": ("SYS",)})
NODE_PATH = "/api/v1/nodes/n1"
NEW, OLD = "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"
COUNT = "aliyun.com/gpu-count"


class World:
    """A node and its API server; the watch reports every write after it.

    Attributes:
        fails: how the next writes end; further ones are accepted.
        undone: somebody else takes every write back.
    """

    def __init__(self, clock: FakeClock, *, node_type: str = "") -> None:
        self.clock = clock
        self.began = clock.seconds
        self.state = NodeState(GrantPolicy())
        self.state.equip(inventory_of(MACHINE, GIB))
        self.state.serve(serving=True)
        self.watch = NodeWatch(self.state.outlook_changed)
        self.node = Node(NodeName("n1"))
        self.watch.on_replace((self.node,))
        self.fails: list[KubeError] = []
        self.undone = False
        self.writes: list[tuple[float, str, dict[str, Any]]] = []
        self.publisher = Publisher(self.state, self.watch, self, node_type=node_type)  # type: ignore[arg-type]

    async def patch(self, path: str, patch: dict[str, Any]) -> None:
        """As the API server's."""
        self.writes.append((round(self.clock.seconds - self.began, 3), path, patch))
        if self.fails:
            raise self.fails.pop(0)
        node = self.watch.node
        assert node is not None
        metadata, status = patch.get("metadata", {}), patch.get("status", {})
        written = Node(
            node.name,
            node.labels | metadata.get("labels", {}),
            merged(node.annotations, metadata.get("annotations", {})),
            node.capacity | status.get("capacity", {}),
            node.allocatable | status.get("allocatable", {}),
        )
        self.watch.on_update(self.node if self.undone else written, b"")

    async def publish(self) -> list[tuple[str, dict[str, Any]]]:
        """Publish once; returns the writes."""
        self.writes.clear()
        wrote = await self.publisher._publish()
        assert wrote is bool(self.writes)
        return [(path, patch) for _, path, patch in self.writes]

    async def for_seconds(self, seconds: float) -> list[float]:
        """Run the publisher for a time; returns the times of its writes to the metadata."""
        running = asyncio.create_task(self.publisher.run())
        await asyncio.sleep(seconds)
        running.cancel()
        await asyncio.wait({running})
        return [at for at, path, _ in self.writes if path == NODE_PATH]


def merged(texts: dict[str, str], patch: dict[str, str | None]) -> dict[str, str]:
    """A JSON merge patch: ``null`` removes a field."""
    found = texts | patch
    return {key: text for key, text in found.items() if text is not None}


@pytest.fixture
async def world(clock: FakeClock) -> World:
    """A node that was never published, and kubelet takes devices."""
    return World(clock)


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    """What was logged."""
    with capture_logs() as logged:
        yield logged


async def test_a_node_is_written_once_and_again_after_a_change(world: World) -> None:
    """The change is written at once, and what is as it should be is not written."""
    running = asyncio.create_task(world.for_seconds(400))
    await asyncio.sleep(200)
    world.state.serve(serving=False)
    assert await running == [0, 200]


async def test_what_is_published_is_compared_every_minute_without_any_signal(
    world: World,
) -> None:
    """A change that no watch reported is put right."""
    running = asyncio.create_task(world.for_seconds(2 * LONGEST_PAUSE_SECONDS + 2))
    await asyncio.sleep(LONGEST_PAUSE_SECONDS + 5)
    world.watch.node = world.node
    assert await running == [0, 2 * LONGEST_PAUSE_SECONDS + FIRST_PAUSE_SECONDS]


async def test_a_node_that_offers_claims_is_published_though_kubelet_takes_no_devices(
    world: World,
) -> None:
    """Nothing else says that its GPUs are claims; it is not published before that is decided."""
    world.state.serve(serving=False)
    world.state.offer("")
    assert await world.publish() == []
    world.state.offer("claims")
    (_, patch), _ = await world.publish()
    published = json.loads(patch["metadata"]["annotations"]["gpushare/inventory"])
    assert (published["api"], published["serving"]) == ("claims", False)
    world.state.serve(serving=True)  # kubelet still takes devices for a moment
    assert await world.publish() == []


async def test_pauses_after_failures_grow_to_a_minute_and_start_over(
    world: World, logs: list[Any]
) -> None:
    """The log has the error and the pause that was really made."""
    world.fails = [UnreachableError("no answer") for _ in range(9)]
    running = asyncio.create_task(world.for_seconds(1000))
    await asyncio.sleep(900)
    world.fails = [UnreachableError("no answer")]
    world.state.serve(serving=False)
    at = await running
    pauses = [after - before for before, after in pairwise(at)]
    doubled = [FIRST_PAUSE_SECONDS * 2**times for times in range(7)]
    assert pauses[:9] == [*doubled, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS]
    assert pauses[10:] == [FIRST_PAUSE_SECONDS]
    assert [line["again_in"] for line in logs] == [*pauses[:9], FIRST_PAUSE_SECONDS]
    assert {(line["event"], line["log_level"]) for line in logs} == {
        ("cannot publish the GPUs", "warning")
    }
    assert all("no answer" in line["why"] for line in logs)


async def test_whoever_keeps_taking_writes_back_is_answered_more_and_more_rarely(
    world: World,
) -> None:
    """Two programs that disagree must not write for ever at full speed."""
    world.undone = True
    at = await world.for_seconds(100)
    pauses = [after - before for before, after in pairwise(at)]
    assert pauses == [FIRST_PAUSE_SECONDS * 2**times for times in range(7)]


async def test_changes_of_the_plugin_itself_wait_for_no_longer_pause(world: World) -> None:
    """A GPU that fails soon after others have changed must not be published a minute later."""
    running = asyncio.create_task(world.for_seconds(120))
    changes = [0.3, 0.8, 2, 4, 8, 16, 32, 64]
    for before, at in pairwise([0, *changes]):
        await asyncio.sleep(at - before)
        world.state.serve(serving=not world.state.serving)
    written = (await running)[1:]
    assert len(written) == len(changes)
    assert all(at - made <= FIRST_PAUSE_SECONDS for made, at in zip(changes, written, strict=True))


async def test_the_first_write_has_all_that_a_scheduler_reads(world: World) -> None:
    """Annotations with their label first, in one write; then the count in the status."""
    metadata, status = await world.publish()
    assert metadata[0] == NODE_PATH
    written = metadata[1]["metadata"]
    assert set(written) == {"annotations", "labels"}
    text = written["annotations"][INVENTORY]
    assert written["labels"] == {INVENTORY_HASH: inventory_hash(text)}
    assert set(written["annotations"]) == {INVENTORY, "GPU_TOPOLOGY"}
    count = {COUNT: "2"}
    assert status == (
        f"{NODE_PATH}/status",
        {"status": {"capacity": count, "allocatable": count}},
    )
    assert await world.publish() == []


async def test_only_the_field_that_differs_is_written(world: World) -> None:
    """A label that was removed; a count that kubelet has in one place alone."""
    await world.publish()
    node = world.watch.node
    assert node is not None
    world.watch.node = replace(node, labels={}, allocatable={COUNT: "1"})
    metadata, status = await world.publish()
    assert metadata == (
        NODE_PATH,
        {"metadata": {"labels": {INVENTORY_HASH: node.labels[INVENTORY_HASH]}}},
    )
    assert status == (f"{NODE_PATH}/status", {"status": {"allocatable": {COUNT: "2"}}})
    world.watch.node = replace(node, capacity={})
    assert await world.publish() == [
        (f"{NODE_PATH}/status", {"status": {"capacity": {COUNT: "2"}}})
    ]


async def test_a_status_that_cannot_be_written_is_tried_again(world: World) -> None:
    """The annotations are there by then, so only the status is left."""
    await world.publish()
    world.state.equip(inventory_of(NodeHardware("535.1", (t4(0),)), GIB))
    patch, writes = world.patch, list[str]()

    async def half(path: str, body: dict[str, Any]) -> None:
        writes.append(path)
        if path.endswith("/status"):
            raise UnreachableError("no answer")
        await patch(path, body)

    world.patch = half  # type: ignore[method-assign]
    with pytest.raises(KubeError):
        await world.publisher._publish()
    assert writes == [NODE_PATH, f"{NODE_PATH}/status"]
    world.patch = patch  # type: ignore[method-assign]
    assert [path for path, _ in await world.publish()] == [f"{NODE_PATH}/status"]


async def test_a_node_that_was_published_before_is_held_out_while_kubelet_takes_nothing(
    clock: FakeClock,
) -> None:
    """A plugin that restarts finds an inventory, and must not leave it as it was."""
    world = World(clock)
    await world.publish()
    world.state.serve(serving=False)
    ((_, patch),) = await world.publish()
    assert '"serving":false' in patch["metadata"]["annotations"][INVENTORY]


async def test_a_withdrawal_is_written_before_it_returns(world: World) -> None:
    """And the next publication does not offer the node again."""
    await world.publish()
    world.writes.clear()
    await world.publisher.withdraw()
    ((_, path, patch),) = world.writes
    assert path == NODE_PATH
    assert '"serving":false' in patch["metadata"]["annotations"][INVENTORY]
    assert await world.publish() == []


async def test_a_withdrawal_that_cannot_be_written_is_an_error(world: World) -> None:
    """A drain must not wait for schedulers that were not notified."""
    await world.publish()
    world.fails = [UnreachableError("no answer")]
    with pytest.raises(UnreachableError):
        await world.publisher.withdraw()


@pytest.mark.parametrize(
    ("setting", "labels", "kind"),
    [
        ("", {NEW: "new", OLD: "old"}, "new"),
        ("", {OLD: "old"}, "old"),
        ("own", {NEW: "new"}, "own"),
        ("", {}, None),
    ],
)
async def test_the_type_of_a_node_is_the_setting_else_its_label(
    clock: FakeClock, setting: str, labels: dict[str, str], kind: str | None
) -> None:
    """The newer label counts more; without any there is no annotation."""
    world = World(clock, node_type=setting)
    world.watch.on_replace((replace(world.node, labels=labels),))
    metadata, _ = await world.publish()
    assert metadata[1]["metadata"]["annotations"].get("NODE_TYPE") == kind


async def test_gpus_without_links_have_no_topology(world: World) -> None:
    """For example on a node with one GPU."""
    world.state.equip(inventory_of(NodeHardware("535.1", (t4(0),)), GIB))
    metadata, status = await world.publish()
    assert "GPU_TOPOLOGY" not in metadata[1]["metadata"]["annotations"]
    assert status[1]["status"]["capacity"] == {COUNT: "1"}


async def test_the_topology_of_a_node_that_has_no_links_any_more_is_removed(world: World) -> None:
    """A GPU was removed, or is in MIG mode: what is published must not stay as it was."""
    await world.publish()
    assert world.watch.node is not None
    cut = replace(t4(1), mig=True, slots=1, instances=(MigInstance(0, "MIG-0", "1g", 4864),))
    for gpus in ((t4(0),), (t4(0), cut)):
        world.state.equip(inventory_of(replace(MACHINE, gpus=(t4(0), t4(1))), GIB))
        await world.publish()
        assert "GPU_TOPOLOGY" in world.watch.node.annotations
        links = MACHINE.links if len(gpus) > 1 else {}
        world.state.equip(inventory_of(NodeHardware("535.1", gpus, links=links), GIB))
        metadata, *_ = await world.publish()
        assert metadata[1]["metadata"]["annotations"]["GPU_TOPOLOGY"] is None
        assert "GPU_TOPOLOGY" not in world.watch.node.annotations
        assert await world.publish() == []


async def test_mig_instances_have_no_row_in_the_topology(world: World) -> None:
    """56 instances would be 1,540 pairs, of which CUDA connects none."""
    instances = tuple(MigInstance(slot, f"MIG-{slot}", "1g", 4864) for slot in range(7))
    cut = replace(t4(2), mig=True, slots=7, instances=instances)
    links = {"0-1": ("SYS",), "0-2": ("SYS",), "1-2": ("PIX",)}
    machine = NodeHardware("535.1", (t4(0), t4(1), cut), links=links)
    world.state.equip(inventory_of(machine, GIB))
    metadata, _ = await world.publish()
    annotations = metadata[1]["metadata"]["annotations"]
    assert json.loads(annotations["GPU_TOPOLOGY"]) == {"GPU_SYS_0_1": "Cross CPU socket"}
    assert json.loads(annotations[INVENTORY])["links"] == {"0-1": ["SYS"]}
    assert len(json.loads(annotations[INVENTORY])["gpus"]) == 9


def test_what_differs_is_what_is_missing_or_another_text() -> None:
    """Fields of other programs are left alone, and a field that must not be there is removed."""
    assert differing({"a": "1"}, {"a": None, "b": None}) == {"a": None}
    assert differing({"a": "1", "b": "2", "z": "9"}, {"a": "1", "b": "3", "c": ""}) == {
        "b": "3",
        "c": "",
    }
