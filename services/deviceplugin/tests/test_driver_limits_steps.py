"""The driver's memory limits, look by look: set, found changed, restored, taken off."""

import asyncio
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from limitsworld import FIRST, SECOND, World, share
from moduletime import Clock
from msgspec.structs import replace
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held, Holder
from gpucore.node.isolation.cgroups import pod_cgroups
from gpucore.node.isolation.driver_limits import NO_LIMIT, Finding
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin.cluster.events import Subject
from gpudeviceplugin.isolation.cgroup_tree import CgroupTree
from gpukube.testing.waiting import until


def metric(name: str, gpu: int = 0) -> float | None:
    labels = {"gpu": str(gpu), "exported_namespace": "team", "exported_pod": name}
    return REGISTRY.get_sample_value("gpushare_pod_limit_in_force", labels)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A node without pods."""
    return World(tmp_path)


async def test_a_share_is_the_limit_of_its_pod_on_every_gpu(world: World) -> None:
    """Whole bytes, soft and hard; each GPU of the pod has its own, and the neighbour too."""
    world.pod("a", gpu0=3, gpu1=2)
    world.pod("b", gpu0=4)
    assert await world.limits.look() == {Finding.HOLDS}
    assert (world.in_force("a"), world.in_force("a", SECOND)) == (share(3), share(2))
    assert (world.in_force("b"), world.in_force("b", SECOND)) == (share(4), NO_LIMIT)
    assert (metric("a"), metric("a", 1), metric("b"), metric("b", 1)) == (1, 1, 1, None)
    assert world.limits.holds(FIRST)
    assert world.limits.holds(SECOND)
    assert world.events == []


async def test_a_gpu_has_the_mode_only_once_its_limits_were_looked_at(world: World) -> None:
    """Also one without pods; what an earlier process had published counts before."""
    assert not world.limits.holds(FIRST)
    await world.limits.look()
    assert world.limits.holds(FIRST)
    assert world.changes == 1
    await world.limits.look()
    assert world.changes == 1
    trusted = world.restarted()
    trusted.want([FIRST, SECOND], [FIRST])
    assert (trusted.holds(FIRST), trusted.holds(SECOND)) == (True, False)


async def test_a_gpu_that_leaves_the_mode_has_it_no_longer(world: World) -> None:
    """At once, not from the next look on."""
    await world.limits.look()
    world.limits.want([SECOND])
    assert (world.limits.holds(FIRST), world.limits.holds(SECOND)) == (False, True)


async def test_a_gpu_that_enters_the_mode_is_looked_at_at_once(world: World) -> None:
    """The next look without a reason would be a minute later."""
    world.limits.want([])
    world.pod("a", gpu0=3)
    truth = asyncio.Event()
    truth.set()
    running = asyncio.create_task(world.limits.run(truth))
    for _ in range(10):
        await asyncio.sleep(0)
    assert world.in_force("a") == NO_LIMIT
    world.limits.want([FIRST])
    await until("limited", lambda: world.in_force("a") == share(3), seconds=30)
    running.cancel()
    await asyncio.wait({running})


async def test_a_gpu_that_is_not_enumerated_yet_keeps_its_word(world: World) -> None:
    """A restarted plugin looks before the driver has reported its GPUs."""
    inventory = world.state.inventory
    world.state.equip(replace(inventory, gpus=()))
    world.limits.want([FIRST, SECOND], [FIRST])
    await world.limits.look()
    assert (world.limits.holds(FIRST), world.limits.holds(SECOND)) == (True, False)


async def test_a_pod_whose_cgroup_is_not_made_yet_is_pending(world: World) -> None:
    """Nothing of it runs, so no limit is missing; it is set as soon as the cgroup is there."""
    world.pod("a", phase="Pending", cgroup=False, gpu0=3)
    assert await world.limits.look() == {Finding.PENDING}
    assert metric("a") is None
    assert world.limits.holds(FIRST)
    world.cgroup("a").mkdir()
    assert await world.limits.look() == {Finding.HOLDS}
    assert world.in_force("a") == share(3)


async def test_a_running_pod_without_a_cgroup_is_reported_and_its_gpu_loses_the_mode(
    world: World,
) -> None:
    """The plugin looks in the wrong place; the other GPU goes on."""
    world.pod("a", cgroup=False, gpu0=3)
    with structlog.testing.capture_logs() as logs:
        assert await world.limits.look() == {Finding.BROKEN}
    (event,) = world.events
    assert event[:2] == ("a", "GpuLimitNotInForce")
    assert world.subjects == [Subject("Pod", "a", "team", "uid-a")]
    assert [(line["event"], line["pod"], line["why"]) for line in logs] == [
        ("limit not in force", "team/a", event[2])
    ]
    assert "cgroup was not found" in event[2]
    assert (world.limits.holds(FIRST), world.limits.holds(SECOND)) == (False, True)
    assert metric("a") == 0


async def test_a_pod_that_is_being_deleted_may_have_lost_its_cgroup(world: World) -> None:
    """Kubelet removes the cgroup before the pod object goes, and the phase may still be Running."""
    world.pod("a", gpu0=3)
    await world.limits.look()
    world.cgroup("a").rmdir()
    pod = world.state.pods[PodUid("uid-a")]
    world.state.on_update(replace(pod, terminating=True), b"{}")
    assert await world.limits.look() == {Finding.PENDING}
    assert world.limits.holds(FIRST)
    assert world.events == []


async def test_a_pod_that_ended_by_itself_may_have_lost_its_cgroup(world: World) -> None:
    """Kubelet removes it, and reports the end later, as long as the API server does not answer.

    A cgroup in which a process runs cannot be removed.
    """
    world.pod("a", gpu0=3)
    await world.limits.look()
    world.cgroup("a").rmdir()
    for _ in range(2):
        assert await world.limits.look() == {Finding.PENDING}
    assert world.limits.holds(FIRST)
    assert world.events == []
    assert metric("a") is None
    world.cgroup("a").mkdir()
    assert await world.limits.look() == {Finding.HOLDS}


async def test_a_pod_that_has_ended_needs_no_limit_though_its_successor_has_its_name(
    world: World,
) -> None:
    """Shares are held by name; the limit is set on the cgroup of the pod that runs."""
    old = Pod(PodUid("uid-old"), "team", "a", NodeName("n1"), "Failed")
    world.state.on_update(old, b"{}")
    world.pod("a", gpu0=3)
    assert await world.limits.look() == {Finding.HOLDS}
    assert world.in_force("a") == share(3)


async def test_a_limit_that_somebody_took_off_is_reported_and_set_again(world: World) -> None:
    """The GPU loses the mode at that look, and has it again once the limit is found in force."""
    world.pod("a", gpu0=3)
    await world.limits.look()
    world.driver.limits[FIRST, str(world.cgroup("a"))] = NO_LIMIT
    assert await world.limits.look() == {Finding.BROKEN}
    assert world.in_force("a") == share(3)
    assert metric("a") == 0
    assert not world.limits.holds(FIRST)
    assert [event[:2] for event in world.events] == [("a", "GpuLimitNotInForce")]
    assert await world.limits.look() == {Finding.HOLDS}
    assert metric("a") == 1
    assert world.limits.holds(FIRST)
    assert world.changes == 3


async def test_what_happens_again_at_once_is_reported_once(world: World) -> None:
    """An event each second would be no news."""
    world.pod("a", gpu0=3)
    await world.limits.look()
    for _ in range(3):
        world.driver.limits.clear()
        await world.limits.look()
        await world.limits.look()
    assert len(world.events) == 1


async def test_the_first_report_waits_for_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of a node that has just booted begins near zero."""
    clock = Clock()
    clock.now = 1.0
    clock.rule(monkeypatch, "gpudeviceplugin.isolation.driver_limits")
    world.pod("a", cgroup=False, gpu0=3)
    assert await world.limits.look() == {Finding.BROKEN}
    assert [event[:2] for event in world.events] == [("a", "GpuLimitNotInForce")]


async def test_a_limit_that_cannot_be_set_keeps_the_gpu_without_the_mode(world: World) -> None:
    """Until the driver takes it."""
    world.driver.refuses_limits = True
    world.pod("a", gpu0=3)
    for _ in range(2):
        assert await world.limits.look() == {Finding.BROKEN}
    assert not world.limits.holds(FIRST)
    assert "Insufficient Permissions" in world.events[0][2]
    world.driver.refuses_limits = False
    assert await world.limits.look() == {Finding.HOLDS}
    assert world.limits.holds(FIRST)


async def test_use_is_reported_for_pods_whose_limit_was_found_in_force(world: World) -> None:
    """Exact, by the cgroup; a GPU that does not answer has no figures."""
    world.pod("a", gpu0=3)
    world.pod("b", phase="Pending", cgroup=False, gpu0=3)
    await world.limits.look()
    world.driver.cgroup_use[FIRST, str(world.cgroup("a"))] = 77
    first, second = world.state.inventory.gpus
    assert await world.limits.used(first) == {PodUid("uid-a"): 77}
    assert await world.limits.used(second) == {}
    world.driver.lost.add(FIRST)
    assert await world.limits.used(first) == {}


async def test_a_lost_gpu_is_without_the_mode(world: World) -> None:
    """What cannot be read is not in force."""
    world.pod("a", gpu0=3)
    await world.limits.look()
    world.driver.lost.add(FIRST)
    assert await world.limits.look() == {Finding.BROKEN}
    assert (world.limits.holds(FIRST), world.limits.holds(SECOND)) == (False, True)


async def test_a_restarted_plugin_restores_what_was_lost_meanwhile(world: World) -> None:
    """The change has no known cause, so the limit is set and no event is recorded."""
    world.pod("a", gpu0=3)
    await world.limits.look()
    world.driver.limits.clear()
    assert await world.restarted().look() == {Finding.HOLDS}
    assert world.in_force("a") == share(3)
    assert world.events == []


async def test_another_share_of_the_same_pod_is_no_difference(world: World) -> None:
    """Kubelet's account corrected it: the limit follows."""
    world.pod("a", gpu0=3)
    await world.limits.look()
    world.pod("a", gpu0=5)
    assert await world.limits.look() == {Finding.HOLDS}
    assert world.in_force("a") == share(5)


async def test_a_grant_that_kubelet_has_not_reported_changes_no_limit(world: World) -> None:
    """Whose it is, is a guess: the pod that runs keeps the limit of what it is known to hold."""
    world.pod("a", gpu0=3)
    await world.limits.look()
    holdings, table = world.state.matcher.holdings, world.state.matcher.tables[Resource.MEM]
    free = [one for one in table.ids[GpuIndex(0)] if one not in holdings.taken(Resource.MEM)]
    holdings.take(Resource.MEM, free[:5], Holder("team", "a", "c1"))
    assert await world.limits.look() == {Finding.HOLDS}
    assert world.in_force("a") == share(3)


async def test_a_pod_whose_devices_kubelet_has_lost_keeps_its_limit(world: World) -> None:
    """It runs on, and its memory stays reserved."""
    world.pod("a", gpu0=3)
    await world.limits.look()
    ids = tuple(world.state.matcher.holdings.held_by(Resource.MEM, "team", "a"))
    world.state.sync_from_kubelet([], requested_at=world.state.matcher.holdings.turn)
    world.state.lost = [Held("team", "a", {"c0": {Resource.MEM: ids}})]
    assert await world.limits.look() == {Finding.HOLDS}
    assert world.in_force("a") == share(3)


async def test_a_pod_that_has_gone_loses_its_limit(world: World) -> None:
    """Where the cgroup is still there; where it has gone, the limits went with it."""
    world.pod("a", gpu0=3)
    world.pod("b", gpu0=3)
    await world.limits.look()
    world.gone("a", cgroup=True)
    world.gone("b")
    assert await world.limits.look() == set()
    assert world.in_force("a") == NO_LIMIT
    assert world.in_force("b") == share(3)  # of a cgroup that is no more: not queried
    assert metric("a") is None


@pytest.mark.parametrize("how", ["deleted by force", "past its deadline"])
async def test_a_pod_without_a_share_that_still_runs_keeps_its_limit(
    world: World, how: str
) -> None:
    """A tenant can delete its pod by force and ignore SIGTERM."""
    world.pod("a", gpu0=3)
    await world.limits.look()
    events = world.cgroup("a") / "cgroup.events"
    events.write_text("populated 1\nfrozen 0\n")
    if how == "deleted by force":
        world.gone("a", cgroup=True)
    else:
        world.pod("a", phase="Failed", gpu0=3)
    for _ in range(2):
        assert await world.limits.look() == set()
        assert world.in_force("a") == share(3)
    events.write_text("populated 0\nfrozen 0\n")
    await world.limits.look()
    assert world.in_force("a") == NO_LIMIT


async def test_a_pod_that_still_runs_does_not_keep_the_limits_of_others(world: World) -> None:
    """Nor does one whose cgroup is gone: the limit of each pod without a share is taken off."""
    for name in "abc":
        world.pod(name, gpu0=3)
    await world.limits.look()
    (world.cgroup("a") / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    world.gone("a", cgroup=True)
    world.gone("b")
    world.gone("c", cgroup=True)
    await world.limits.look()
    assert (world.in_force("a"), world.in_force("c")) == (share(3), NO_LIMIT)


async def test_a_limit_that_cannot_be_taken_off_stops_nothing(world: World) -> None:
    """It goes with the cgroup; the log names the cgroup and the driver's reason."""
    world.pod("a", gpu0=3)
    world.pod("b", gpu0=3)
    await world.limits.look()
    world.gone("a", cgroup=True)
    world.driver.refuses_limits = True
    with capture_logs() as logs:
        assert await world.limits.look() == {Finding.HOLDS}
    (line,) = (one for one in logs if one["event"] == "cannot take off a memory limit")
    assert line["cgroup"] == str(world.cgroup("a"))
    assert line["why"] not in {"", "None", None}


async def test_gpus_in_other_modes_are_left_alone(world: World) -> None:
    """Neither read nor limited."""
    world.limits.want([SECOND])
    world.pod("a", gpu0=3)
    probes = world.driver.probes
    assert await world.limits.look() == set()
    assert world.driver.probes == probes
    assert not world.limits.holds(FIRST)
    assert metric("a") is None


async def test_changes_are_followed_until_cancelled(world: World) -> None:
    """First kubelet's account is waited for."""
    truth = asyncio.Event()
    running = asyncio.create_task(world.limits.run(truth))
    world.pod("a", phase="Pending", cgroup=False, gpu0=3)
    await asyncio.sleep(0)
    assert world.driver.probes == 0
    truth.set()
    world.cgroup("a").mkdir()
    async with asyncio.timeout(60):
        while world.in_force("a") != share(3):  # noqa: ASYNC110 - a file system has no signal
            await asyncio.sleep(0.01)
        world.pod("b", gpu0=4)
        world.limits.look_soon()
        while world.in_force("b") != share(4):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait({running})


@pytest.mark.slow
async def test_no_limit_is_missing_after_a_thousand_random_pods(world: World) -> None:
    """Pods come and go, limits are changed, the plugin restarts: two checks later all hold."""
    dice = random.Random(20)
    live: dict[str, dict[str, int]] = {}
    for number in range(1000):
        if len(live) == 5 or (live and dice.random() < 0.4):
            name = dice.choice(sorted(live))
            world.gone(name, cgroup=dice.random() < 0.5)
            del live[name]
        name = f"p{number}"
        live[name] = {
            f"gpu{gpu}": dice.randrange(1, 4) for gpu in dice.choice([(0,), (1,), (0, 1)])
        }
        world.pod(name, **live[name])
        if dice.random() < 0.1:
            world.driver.limits.pop(dice.choice(sorted(world.driver.limits) or [("", "")]), None)
        if dice.random() < 0.05:
            world.restarted()
        await world.limits.look()
        assert await world.limits.look() == {Finding.HOLDS}
        for pod, units in live.items():
            wanted = [share(units[k]) if k in units else NO_LIMIT for k in ("gpu0", "gpu1")]
            assert [world.in_force(pod), world.in_force(pod, SECOND)] == wanted


def test_the_cgroups_of_pods_are_found_where_kubelet_makes_them(tmp_path: Path) -> None:
    """By either driver and any QoS class, below kubelet's root; not without cgroup v2."""
    tree = CgroupTree(tmp_path, "/kubelet")
    above = tmp_path / "kubelet.slice/kubelet-kubepods.slice"
    above.mkdir(parents=True)
    assert tree.pods() == ""
    (tmp_path / "cgroup.controllers").touch()
    assert tree.pods() == str(above)
    uid = PodUid("6f3c1a90-2b4d-4e8f-9a01-c2d3e4f5a6b7")
    assert tree.of_pod(uid) == ""
    low = uid.replace("-", "_")
    burst = above / "kubelet-kubepods-burstable.slice"
    made = burst / f"kubelet-kubepods-burstable-pod{low}.slice"
    made.mkdir(parents=True)
    assert tree.of_pod(uid) == str(made)
    assert CgroupTree(tmp_path, "").pods() == ""


@pytest.mark.slow
@settings(deadline=None)
@given(
    mine=st.uuids(),
    others=st.lists(st.uuids(), max_size=4),
    place=st.integers(0, 5),
    parent=st.sampled_from(["", "/kubelet", "/a/b-c"]),
)
def test_the_cgroup_of_a_pod_is_its_own_whatever_else_is_there(
    mine: UUID, others: list[UUID], place: int, parent: str
) -> None:
    """Any QoS class, either driver, any neighbours; without its directory a pod has none."""
    uid = PodUid(str(mine))
    with TemporaryDirectory() as folder:
        root = Path(folder)
        tree = CgroupTree(root, parent)
        for other in {*others} - {mine}:
            for path in pod_cgroups(PodUid(str(other)), parent):
                (root / path).mkdir(parents=True, exist_ok=True)
        assert tree.of_pod(uid) == ""
        made = root / pod_cgroups(uid, parent)[place]
        made.mkdir(parents=True)
        assert tree.of_pod(uid) == str(made)


@pytest.mark.slow
@settings(deadline=None)
@given(st.text(max_size=40))
def test_no_uid_leads_out_of_the_cgroups_of_pods(uid: str) -> None:
    """What is not a pod's directory is never named to the driver."""
    with TemporaryDirectory() as folder:
        root = Path(folder) / "cgroup"
        (root / "kubepods.slice").mkdir(parents=True)
        (root / "kubepods").mkdir()
        assert CgroupTree(root, "").of_pod(PodUid(uid)) == ""
