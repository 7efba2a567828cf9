"""The driver's memory limits of claims: in force before a container of the claim starts."""

import asyncio
from pathlib import Path

import pytest
from claimholding import prepared
from fakedriver import t4
from limitsworld import BYTES, FIRST, SECOND, World, share

from gpucore.model import Gpu
from gpucore.node.claims.prepare import ClaimError
from gpucore.node.claims.prepared import PreparedClaim
from gpucore.node.isolation.driver_limits import NO_LIMIT, Finding
from gpucore.units import GpuIndex, GpuUuid, NodeName, PodUid
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin.isolation.claim_limits import ClaimLimits
from gpukube.testing.waiting import until


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A node without pods."""
    return World(tmp_path)


def claim(name: str = "c", gib: int = 3) -> PreparedClaim:
    """A share of GPU 0."""
    return prepared(name, Gpu(GpuIndex(0), GpuUuid(t4(0).uuid), 15), gib)


def watched(world: World, name: str, *claims: str) -> None:
    """The watch has delivered the pod, which uses these claims."""
    uid = PodUid(f"uid-{name}")
    pod = Pod(uid, "team", name, NodeName("n1"), "Pending", claims=claims)
    world.state.on_update(pod, b"{}")


async def enforce(world: World, claimed: PreparedClaim, *pods: str) -> None:
    """Kubelet prepares the claim for these pods."""
    world.state.claims.put(claimed)
    await ClaimLimits(world.state, world.limits).enforce(
        claimed, [PodUid(f"uid-{name}") for name in pods]
    )


async def test_the_limit_holds_before_the_watch_has_delivered_the_pod(world: World) -> None:
    """Kubelet has made the cgroup of the pod; a later look finds the limit as it should be."""
    world.cgroup("p").mkdir()
    await enforce(world, claim(), "p")
    assert world.in_force("p") == share(3)
    assert await world.limits.look() == set()
    assert world.in_force("p") == share(3)
    watched(world, "p", "c")
    assert await world.limits.look() == {Finding.HOLDS}
    assert world.events == []


async def test_several_claims_of_a_pod_are_one_limit(world: World) -> None:
    """The pod's cgroup has one limit for each GPU."""
    world.cgroup("p").mkdir()
    watched(world, "p", "c", "d")
    world.state.claims.put(claim("d", 2))
    await enforce(world, claim(), "p")
    assert world.in_force("p") == share(5)


async def test_only_the_gpus_of_the_claim_are_limited(world: World) -> None:
    """The pod may have the other GPU by another claim, prepared earlier or later."""
    world.cgroup("p").mkdir()
    await enforce(world, claim(), "p")
    assert (world.in_force("p"), world.in_force("p", SECOND)) == (share(3), NO_LIMIT)


async def test_a_claim_for_all_of_a_gpu_is_limited_by_nothing(world: World) -> None:
    """Nobody else is on it."""
    world.cgroup("p").mkdir()
    await enforce(world, claim(gib=15), "p")
    assert world.in_force("p") == NO_LIMIT
    watched(world, "p", "c")
    assert await world.limits.look() == set()
    assert world.in_force("p") == NO_LIMIT


async def test_pods_of_one_claim_that_are_not_watched_yet_have_equal_parts(world: World) -> None:
    """Together they never have more than the claim."""
    for name in ("p", "q"):
        world.cgroup(name).mkdir()
    await enforce(world, claim(gib=4), "p", "q")
    assert [world.in_force(name) for name in ("p", "q")] == [share(2)] * 2


async def test_a_look_follows_a_claim(world: World) -> None:
    """What the pod held before may be another amount now."""
    world.cgroup("p").mkdir()
    truth = asyncio.Event()
    truth.set()
    running = asyncio.create_task(world.limits.run(truth))
    await until("first look", lambda: world.limits.holds(FIRST))
    watched(world, "q", "d")
    world.cgroup("q").mkdir()
    world.state.claims.put(claim("d", 2))
    await enforce(world, claim(), "p")
    await until("next look", lambda: world.in_force("q") == share(2), seconds=30)
    running.cancel()
    await asyncio.wait({running})


async def test_pods_that_use_one_claim_never_get_more_than_the_claim_together(world: World) -> None:
    """A tenant can name one claim in many pods."""
    for name in ("p", "q", "r"):
        world.cgroup(name).mkdir()
        watched(world, name, "c")
    await enforce(world, claim(), "p", "q", "r")
    limits = [world.in_force(name).hard for name in ("p", "q", "r")]
    assert limits == [BYTES] * 3
    await world.limits.look()
    assert [world.in_force(name).hard for name in ("p", "q", "r")] == limits


async def test_a_pod_without_a_cgroup_keeps_no_other_pod_of_its_claim_from_starting(
    world: World,
) -> None:
    """It has ended, or kubelet is about to make its cgroup: its limit is set then."""
    world.cgroup("p").mkdir()
    for name in ("p", "q"):
        watched(world, name, "c")
    await enforce(world, claim(gib=4), "p", "q")
    assert world.in_force("p") == share(2)
    world.cgroup("q").mkdir()
    await world.limits.look()
    assert [world.in_force(name) for name in ("p", "q")] == [share(2)] * 2


async def test_no_container_starts_without_its_limit(world: World) -> None:
    """Without a cgroup, without a pod, and where the driver does not keep the limit."""
    with pytest.raises(ClaimError, match="cgroup of pod uid-p was not found"):
        await enforce(world, claim(), "p")
    with pytest.raises(ClaimError, match="reserved for no pod"):
        await enforce(world, claim())
    world.cgroup("p").mkdir()
    world.driver.refuses_limits = True
    with pytest.raises(ClaimError, match="GPU 0"):
        await enforce(world, claim(), "p")


async def test_pods_that_nobody_names_are_those_of_the_watch(world: World) -> None:
    """The API server does not answer, and the plugin has the pods from before."""
    world.cgroup("p").mkdir()
    watched(world, "p", "c")
    await enforce(world, claim())
    assert world.in_force("p") == share(3)


async def test_gpus_in_another_mode_need_no_limit(world: World) -> None:
    """Their driver is not queried."""
    world.limits.want([])
    await enforce(world, claim(), "p")
    assert world.in_force("p") == NO_LIMIT


async def test_the_limit_goes_with_the_claim(world: World) -> None:
    """After unprepare, where the cgroup is still there."""
    world.cgroup("p").mkdir()
    watched(world, "p", "c")
    await enforce(world, claim(), "p")
    await world.limits.look()
    world.state.claims.drop("uid-c")
    await world.limits.look()
    assert world.in_force("p") == NO_LIMIT
