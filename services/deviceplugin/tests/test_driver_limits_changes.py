"""The annotation of a running pod changes what the driver lets it allocate, never its share."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from limitsworld import BYTES, FIRST, World, share
from prometheus_client import REGISTRY

from gpucore.node.isolation.driver_limits import NO_LIMIT, Finding, MemoryLimit
from gpudeviceplugin.cluster.events import NORMAL, WARNING
from gpudeviceplugin.gpus.driver import PatientDriver
from gpukube.testing.waiting import until

LIMIT = "gpushare/memory-limit"


def between(soft: int, hard: int) -> MemoryLimit:
    """Guaranteed and most, in GiB."""
    return MemoryLimit(soft * BYTES, hard * BYTES)


@pytest.fixture
async def world(tmp_path: Path) -> World:
    """A pod with 4 GiB of the first GPU, whose limit is in force."""
    made = World(tmp_path)
    made.pod("a", gpu0=4)
    await made.limits.look()
    return made


async def test_a_higher_maximum_is_in_force_at_the_next_look(world: World) -> None:
    """What is guaranteed stays; an event names both, and the metric is what the driver answers."""
    world.annotate("a", **{LIMIT: "9"})
    assert await world.limits.look() == {Finding.HOLDS}
    assert world.in_force("a") == between(4, 9)
    ((_, reason, message),) = world.events
    assert (reason, world.kinds) == ("GpuMemoryLimitChanged", [NORMAL])
    assert message == (
        "the driver's memory limit of GPU 0 is 9 GiB now, before 4 GiB; 4 GiB are guaranteed"
    )
    labels = {"gpu": "0", "exported_namespace": "team", "exported_pod": "a"}
    assert REGISTRY.get_sample_value("gpushare_pod_limit_bytes", labels) == 9 * BYTES
    await world.limits.look()
    assert len(world.events) == 1


async def test_a_change_is_looked_at_at_once(world: World) -> None:
    """The next look without a reason would be a minute later."""
    synced = asyncio.Event()
    synced.set()
    running = asyncio.create_task(world.limits.run(synced))
    try:
        for number in ("9", "12"):
            world.annotate("a", **{LIMIT: number})
            wanted = between(4, int(number))
            await until("it is in force", lambda w=wanted: world.in_force("a") == w)
    finally:
        running.cancel()


async def test_a_change_during_a_look_is_looked_at_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit that is being set when the annotation changes is the one before."""
    original = PatientDriver.set_memory_limit
    changes = ["12"]

    async def set_and_change(
        driver: PatientDriver, uuid: str, cgroup: str, limit: MemoryLimit
    ) -> None:
        await original(driver, uuid, cgroup, limit)
        if changes:
            world.annotate("a", **{LIMIT: changes.pop()})

    monkeypatch.setattr(PatientDriver, "set_memory_limit", set_and_change)
    world.annotate("a", **{LIMIT: "9"})
    synced = asyncio.Event()
    synced.set()
    running = asyncio.create_task(world.limits.run(synced))
    try:
        async with asyncio.timeout(30):
            await until("it is in force", lambda: world.in_force("a") == between(4, 12))
    finally:
        running.cancel()


async def test_the_maximum_is_never_lowered_below_the_memory_in_use(world: World) -> None:
    """The event has the figures, once; with the memory freed the lower maximum holds."""
    world.annotate("a", **{LIMIT: "12"})
    await world.limits.look()
    world.uses("a", 8)
    world.annotate("a", **{LIMIT: "6"})
    for _ in range(3):
        assert await world.limits.look() == {Finding.HOLDS}
    assert world.in_force("a") == between(4, 12)
    assert (world.events[1:], world.kinds[1:]) == (
        [
            (
                "a",
                "GpuMemoryLimitNotLowered",
                (
                    "the driver's memory limit of GPU 0 stays 12 GiB: the pod uses 8 GiB, more than"
                    " the 6 GiB of its annotation; the limit is lowered once it uses less"
                ),
            )
        ],
        [WARNING],
    )
    world.uses("a", 6)
    await world.limits.look()
    assert world.in_force("a") == between(4, 6)
    assert world.events[-1][1] == "GpuMemoryLimitChanged"


async def test_a_restarted_plugin_keeps_a_maximum_that_is_in_use(world: World) -> None:
    """It has no memory of its own; the driver has."""
    world.annotate("a", **{LIMIT: "12"})
    await world.limits.look()
    world.uses("a", 8)
    world.annotate("a", **{LIMIT: "6"})
    world.restarted()
    await world.limits.look()
    assert world.in_force("a") == between(4, 12)


async def test_a_removed_annotation_leaves_the_share(world: World) -> None:
    """As if there had never been one."""
    world.annotate("a", **{LIMIT: "9"})
    await world.limits.look()
    world.annotate("a")
    await world.limits.look()
    assert world.in_force("a") == share(4)


@pytest.mark.parametrize("strange", [between(4, 12), between(0, 12), NO_LIMIT])
async def test_a_limit_of_another_program_is_not_kept_however_much_is_used(
    world: World, strange: MemoryLimit
) -> None:
    """A program that lifts a limit and takes the memory gains nothing by it."""
    world.driver.limits[FIRST, str(world.cgroup("a"))] = strange
    world.uses("a", 8)
    assert await world.limits.look() == {Finding.BROKEN}
    assert world.in_force("a") == share(4)
    assert [reason for _, reason, _ in world.events] == ["GpuLimitNotInForce"]


async def test_no_limit_at_all_is_not_kept_after_a_restart(world: World) -> None:
    """No annotation could have asked for it."""
    world.driver.limits[FIRST, str(world.cgroup("a"))] = NO_LIMIT
    world.uses("a", 8)
    world.restarted()
    await world.limits.look()
    assert world.in_force("a") == share(4)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.one_of(st.integers(-5, 99).map(str), st.text(max_size=3)), st.integers(0, 15)),
        max_size=8,
    )
)
def test_no_text_changes_the_share_or_exceeds_the_gpu(steps: list[tuple[str, int]]) -> None:
    """And what is in use stays allowed, as long as it was allowed before."""

    async def run() -> None:
        with TemporaryDirectory() as folder:
            world = World(Path(folder))
            world.pod("a", gpu0=4)
            await world.limits.look()
            for text, used in steps:
                before = world.in_force("a")
                world.uses("a", min(used, before.hard // BYTES))
                world.annotate("a", **{LIMIT: text})
                await world.limits.look()
                after = world.in_force("a")
                assert after.soft == 4 * BYTES
                assert after.soft <= after.hard <= 16 * BYTES
                assert min(used * BYTES, before.hard) <= after.hard

    asyncio.run(run())
