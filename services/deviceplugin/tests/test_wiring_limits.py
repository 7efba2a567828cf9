"""The connections of a plugin with driver limits, start turns and claims."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fakedriver import FakeDriver, t4
from msgspec import json

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.units import GIB, NodeName, PodUid
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin.cluster.health_events import API_REFUSED, NodeEvent
from gpudeviceplugin.gpus.devices import NodeHardware
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.plugin import Plugin
from gpudeviceplugin.settings import DevicePluginSettings
from gpukube.testing.scripted import ScriptedClient

INVENTORY = inventory_of(NodeHardware("580.1", (t4(0), t4(1))), GIB)
POD = Pod(PodUid("uid-p"), "team", "p", NodeName("n1"), phase="Pending")


class Client(ScriptedClient):
    """A client that no part of the plugin uses yet."""

    async def close(self) -> None:
        """As that of the API server's client."""


class World:
    """A plugin with all that can hold up the start of a container."""

    def __init__(self, root: Path, **more: Any) -> None:
        settings = {"driver_limits": True, "start_turns": True, "cgroup_root": root} | more
        self.settings = DevicePluginSettings(node_name="n1", cdi_dir=root, **settings)
        self.calls: list[Any] = []
        client: Any = Client()
        self.plugin = Plugin(self.settings, FakeDriver(t4(0), t4(1)), client)
        self.state = self.plugin.state
        self.state.equip(INVENTORY)

    def noted(self, owner: Any, *names: str) -> None:
        """Calls of these methods are noted, and not made."""
        for name in names:
            setattr(owner, name, lambda *given, name=name: self.calls.append((name, *given)))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A plugin whose parts do not run."""
    made = World(tmp_path)
    yield made
    await made.plugin.close()


async def test_every_account_of_kubelet_is_a_reason_to_look_at_the_limits(world: World) -> None:
    """Other pods hold GPUs."""
    world.noted(world.plugin._driver_limits, "look_soon")
    ids = world.state.matcher.tables[Resource.MEM].ids[INVENTORY.gpus[0].index][:2]
    held = [Held("team", "p", {"c0": {Resource.MEM: ids}})]
    world.state.sync_from_kubelet(held, requested_at=0)
    assert world.calls == [("look_soon",)]


async def test_a_limit_that_is_off_is_published(world: World) -> None:
    """The GPU is offered without the mode."""
    assert world.plugin._driver_limits is not None
    assert world.plugin._driver_limits.on_change == world.plugin._keeper.publish


async def test_figures_by_cgroup_replace_those_of_processes(world: World) -> None:
    """Where the driver limits memory; nowhere else."""
    assert world.plugin._driver_limits is not None
    assert world.plugin._usage._exact == world.plugin._driver_limits.used


async def test_statuses_and_lists_of_pods_reach_the_turns(world: World) -> None:
    """The watch reports each status, and a list has them all."""
    world.noted(world.plugin._gate, "seen")
    line = json.encode({"object": {}})
    world.state.on_update(POD, line)
    assert world.calls == [("seen", POD, line)]
    turns = world.plugin._gate._turns  # type: ignore[union-attr]
    assert turns is not None
    running = {"containerStatuses": [{"ready": False, "state": {"running": {}}}]}
    item = {"metadata": {"uid": "uid-p", "name": "p", "namespace": "team"}, "status": running}
    page = {"metadata": {"resourceVersion": "7"}, "items": [item]}
    world.plugin._pods._collection.page_of(json.encode(page))
    assert set(turns._listed) == {"uid-p"}


async def test_only_containers_with_memory_wait_for_their_start(world: World) -> None:
    """Kubelet would call for each resource of a container, and each call reads its allocations."""
    for resource in Resource:
        options = world.plugin._endpoint(resource)._servicer.options
        assert options.pre_start_required is (resource is Resource.MEM)


async def test_limits_of_claims_are_put_in_force_where_the_driver_limits_memory(
    tmp_path: Path,
) -> None:
    """And nothing is enforced where it does not."""
    for limits in (True, False):
        found = World(tmp_path, driver_limits=limits, start_turns=False, claims=True)
        driver = found.plugin._claims
        assert driver is not None
        assert (driver._preparer._enforce is not None) is limits
        assert (found.plugin._gate is not None) is limits
        assert (found.plugin._driver_limits is not None) is limits
        await found.plugin.close()


async def test_a_node_that_cannot_offer_claims_has_no_dra_driver(world: World) -> None:
    """Its modules would take memory on every node."""
    assert world.plugin._claims is None


async def test_an_api_that_cannot_be_had_is_an_event_on_the_node(world: World) -> None:
    """With the sentence of the switch."""
    world.noted(world.plugin._health_events, "notify")
    world.plugin._node.on_update(Node(NodeName("n1"), labels={"gpushare/api": "nonsense"}), b"")
    world.plugin._switch.decide()
    ((_, notice),) = world.calls
    assert notice == NodeEvent(API_REFUSED, world.plugin._switch.why)


async def test_a_pod_that_is_not_known_has_the_watch_try_again_at_once(world: World) -> None:
    """It may be in a long pause after failures."""
    assert world.state.on_unknown_pod == world.plugin._pods.retry_now


async def test_a_node_that_offers_claims_needs_no_device_plugin_registration(
    tmp_path: Path,
) -> None:
    """Readiness waits for the DRA driver instead."""
    world = World(tmp_path, claims=True)
    plugin = world.plugin
    plugin._keeper.trouble = ""
    plugin._pods.synced.set()
    world.state.offer("claims")
    assert plugin.missing() == "kubelet has not accepted the DRA driver yet"
    plugin._claims._endpoint.registered.set()
    assert plugin.missing() == ""
    await plugin.close()


async def test_limits_are_not_looked_at_before_the_pods_are_listed(world: World) -> None:
    """A look without them finds no limit missing, and publishes that all hold."""
    began = asyncio.Event()

    async def run(_truth: asyncio.Event) -> None:
        began.set()

    assert world.plugin._driver_limits is not None
    world.plugin._driver_limits.run = run  # type: ignore[method-assign]
    running = asyncio.create_task(world.plugin._run_isolation())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not began.is_set()
    world.plugin._pods.synced.set()
    async with asyncio.timeout(60):
        await began.wait()
    running.cancel()
    await asyncio.wait({running})


async def test_limits_are_not_replaced_where_the_runtime_ignores_cdi(tmp_path: Path) -> None:
    """An old one does: a pod's own variables hold, and the plugin reports them."""
    world = World(tmp_path, cdi="auto")
    world.plugin._node.on_update(Node(NodeName("n1")), b"")
    assert not world.plugin._limits_replaced()
    await world.plugin.close()
