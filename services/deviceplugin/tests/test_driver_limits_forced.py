"""Limits that are put in force before a container starts: on which GPUs, and beside a look."""

import asyncio
import threading
from pathlib import Path

import pytest
from limitsworld import FIRST, SECOND, World, share

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.isolation.driver_limits import NO_LIMIT, MemoryLimit
from gpucore.units import PodUid
from gpudeviceplugin.gpus.driver import PatientDriver
from gpudeviceplugin.isolation.configured import configured_limits
from gpudeviceplugin.settings import DevicePluginSettings


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A node without pods."""
    return World(tmp_path)


async def test_a_gpu_that_needs_no_limit_does_not_keep_the_next_from_its_own(world: World) -> None:
    """A pod can have one GPU exclusively and a share of another."""
    world.cgroup("a").mkdir()
    first, second = world.state.inventory.gpus
    wanted = {first: None, second: share(3)}
    assert await world.limits.put_in_force(PodUid("uid-a"), wanted) == ""
    assert (world.in_force("a"), world.in_force("a", SECOND)) == (NO_LIMIT, share(3))


async def test_the_device_ids_of_a_pod_are_its_limit_before_its_containers_start(
    world: World,
) -> None:
    """On each GPU in mode driver, before kubelet reports them; the other GPU stays without."""
    world.limits.want([SECOND])
    world.pod("a")
    ids = world.state.matcher.tables[Resource.MEM].ids
    first, second = world.state.inventory.gpus
    pod = world.state.pods[PodUid("uid-a")]
    wanted = [*ids[first.index][:2], *ids[second.index][:3]]
    assert await world.limits.enforce(pod, wanted) == ""
    assert (world.in_force("a"), world.in_force("a", SECOND)) == (NO_LIMIT, share(3))


async def test_a_pod_without_a_cgroup_does_not_start_and_is_named(world: World) -> None:
    """By namespace and name where the watch has it, by UID where it has not."""
    world.pod("a", cgroup=False)
    wanted = {world.state.inventory.gpus[0]: share(3)}
    for uid, name in (("uid-a", "team/a"), ("uid-b", "uid-b")):
        why = await world.limits.put_in_force(PodUid(uid), wanted)
        assert why == f"the cgroup of pod {name} was not found on the node"


async def test_limits_are_ready_once_kubelet_has_made_its_cgroups(world: World) -> None:
    """Before that the plugin may look in the wrong place."""
    kubelets = world.root / "kubepods"
    kubelets.rename(world.root / "elsewhere")
    assert not world.limits.ready()
    kubelets.mkdir()
    assert world.limits.ready()


@pytest.mark.parametrize("enabled", [True, False])
def test_there_are_limits_where_the_settings_enable_them(
    world: World, tmp_path: Path, *, enabled: bool
) -> None:
    """With the cgroups below the given root."""
    settings = DevicePluginSettings(
        node_name="n1", driver_limits=enabled, cgroup_root=tmp_path, driver_limits_seconds=60
    )
    found = configured_limits(settings, world.state, PatientDriver(world.driver), world)  # type: ignore[arg-type]
    assert (found is not None) == enabled
    assert found is None or found.ready()


async def test_a_limit_that_the_driver_takes_and_does_not_keep_is_not_in_force(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is what it answers afterwards."""

    def deaf(_uuid: str, _cgroup: str, _limit: MemoryLimit) -> None:
        """As a driver that answers every call with success."""

    monkeypatch.setattr(world.driver, "set_memory_limit", deaf)
    world.cgroup("a").mkdir()
    why = await world.limits.put_in_force(
        PodUid("uid-a"), {world.state.inventory.gpus[0]: share(3)}
    )
    assert why.startswith("GPU 0: the driver answers with hard limit")
    world.pod("b", gpu0=2)
    await world.limits.look()
    assert not world.limits.holds(FIRST)


async def test_a_look_does_not_take_back_a_limit_that_was_set_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it wants is what was known when it began, so the two come one after the other."""
    looking, answer, read = threading.Event(), threading.Event(), world.driver.memory_limit

    def slow(uuid: str, cgroup: str) -> MemoryLimit:
        if uuid == FIRST:
            looking.set()
            answer.wait(30)
        return read(uuid, cgroup)

    monkeypatch.setattr(world.driver, "memory_limit", slow)
    world.pod("x", gpu0=2)
    world.pod("a", gpu1=3)
    look = asyncio.create_task(world.limits.look())
    await asyncio.to_thread(looking.wait, 30)
    world.pod("a", gpu1=5)
    gpu = world.state.inventory.gpus[1]
    forcing = asyncio.create_task(world.limits.put_in_force(PodUid("uid-a"), {gpu: share(5)}))
    await asyncio.wait({forcing}, timeout=0.2)  # it ends within this time only without waiting
    answer.set()
    await look
    assert await forcing == ""
    assert world.in_force("a", SECOND) == share(5)


async def test_a_gpu_that_left_the_mode_has_no_figures_by_cgroup(world: World) -> None:
    """The limits went, and with them what the driver accounts for."""
    world.pod("a", gpu0=3)
    await world.limits.look()
    world.driver.cgroup_use[FIRST, str(world.cgroup("a"))] = 77
    world.limits.want([SECOND])
    assert await world.limits.used(world.state.inventory.gpus[0]) == {}
