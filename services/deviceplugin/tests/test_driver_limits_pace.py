"""When the driver's memory limits are looked at, what is reported again, and what is forgotten."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from claimholding import prepared
from limitsworld import FIRST, World, share

from gpucore.node.isolation.driver_limits import NO_LIMIT, MemoryLimit
from gpucore.node.isolation.overuse import AGAIN_SECONDS
from gpucore.units import NodeName, PodUid
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin.isolation.awaited_cgroups import AWAITED_SECONDS, LOOK_SECONDS
from gpudeviceplugin.isolation.cgroup_tree import CgroupTree
from gpudeviceplugin.isolation.driver_limits import BROKEN_SECONDS, PENDING_SECONDS, DriverLimits
from gpukube.testing.clock import FakeClock

EVERY = 60.0


class Direct:
    """The driver for callers on the event loop, without threads.

    Attributes:
        deaf: limits are taken without an error and never set.
    """

    def __init__(self, world: World) -> None:
        self._driver = world.driver
        self.deaf = False

    async def memory_limit(self, uuid: str, cgroup: str) -> MemoryLimit:
        """The limit in force."""
        return self._driver.memory_limit(uuid, cgroup)

    async def memory_used(self, uuid: str, cgroup: str) -> int:
        """Bytes in use."""
        return self._driver.memory_used(uuid, cgroup)

    async def set_memory_limit(self, uuid: str, cgroup: str, limit: MemoryLimit) -> None:
        """Set it."""
        if not self.deaf:
            self._driver.set_memory_limit(uuid, cgroup, limit)


class Tree(CgroupTree):
    """Cgroups, and when that of a pod was looked for."""

    def __init__(self, root: Path, now: Callable[[], float]) -> None:
        super().__init__(root, "")
        self._now, self._began = now, now()
        self.looks: list[float] = []

    def of_pod(self, uid: PodUid) -> str:
        """As the real one."""
        self.looks.append(round(self._now() - self._began, 3))
        return super().of_pod(uid)


class Paced:
    """A node whose limits are followed by a clock that a test turns."""

    def __init__(self, root: Path, clock: FakeClock) -> None:
        self.world = World(root)
        self.driver = Direct(self.world)
        self.tree = Tree(root, clock.now)
        events: Any = self.world
        driver: Any = self.driver
        self.limits = DriverLimits(
            self.world.state, driver, events, self.tree, interval_seconds=EVERY
        )
        self.limits.want([FIRST])
        self.truth = asyncio.Event()
        self.running: asyncio.Task[None] | None = None

    async def follow(self, seconds: float, *, known: bool = True) -> list[float]:
        """Follow so long; when the cgroup of the pod was looked for.

        Args:
            seconds: how long.
            known: kubelet has reported its allocations.
        """
        self.tree.looks.clear()
        if known:
            self.truth.set()
        if self.running is None:
            self.running = asyncio.create_task(self.limits.run(self.truth))
        await asyncio.sleep(seconds)
        return sorted(set(self.tree.looks))


@pytest.fixture
async def paced(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Paced]:
    """A node without pods."""
    monkeypatch.setattr("gpudeviceplugin.isolation.driver_limits.time.monotonic", clock.now)
    made = Paced(tmp_path, clock)
    yield made
    if made.running is not None:
        made.running.cancel()
        await asyncio.wait({made.running})


async def test_limits_that_hold_are_looked_at_every_minute(paced: Paced) -> None:
    """Somebody with rights on the node may have taken one off."""
    paced.world.pod("a", gpu0=3)
    assert await paced.follow(2 * EVERY + 1) == [0, EVERY, 2 * EVERY]


async def test_nothing_is_looked_at_before_kubelet_has_reported_its_allocations(
    paced: Paced,
) -> None:
    """Whose a grant is would be a guess."""
    paced.world.pod("a", gpu0=3)
    assert await paced.follow(2 * EVERY, known=False) == []
    assert await paced.follow(1) == [2 * EVERY]


async def test_a_limit_that_is_not_in_force_is_tried_again_every_second(paced: Paced) -> None:
    """Its GPU is offered without the mode meanwhile."""
    paced.driver.deaf = True
    paced.world.pod("a", gpu0=3)
    assert await paced.follow(3.5) == [0, BROKEN_SECONDS, 2 * BROKEN_SECONDS, 3 * BROKEN_SECONDS]
    paced.driver.deaf = False
    await paced.follow(1)
    assert paced.world.in_force("a") == share(3)
    assert await paced.follow(50) == []


async def test_the_cgroup_of_a_new_pod_is_looked_for_with_pauses_that_grow(paced: Paced) -> None:
    """Kubelet makes it a moment after the grant; another grant begins with short pauses again."""
    paced.world.pod("a", phase="Pending", cgroup=False, gpu0=3)
    first = PENDING_SECONDS
    assert await paced.follow(0.8) == pytest.approx([0, first, 3 * first, 7 * first, 15 * first])
    await paced.follow(10 * EVERY - 0.8)
    late = await paced.follow(2 * EVERY)
    assert late[1] - late[0] == pytest.approx(EVERY)
    paced.limits.look_soon()
    began = 12 * EVERY
    fresh = [at - began for at in await paced.follow(0.4)]
    assert fresh == pytest.approx([0, first, 3 * first, 7 * first])


def uses_claim(paced: Paced, name: str, phase: str = "Pending") -> None:
    """The watch delivers a pod that uses claim c, which kubelet has prepared for another pod."""
    gpu = paced.world.state.inventory.gpus[0]
    paced.world.state.claims.put(prepared("c", gpu, 4))
    pod = Pod(PodUid(f"uid-{name}"), "team", name, NodeName("n1"), phase, claims=("c",))
    paced.world.state.on_update(pod, b"{}")
    paced.limits.seen(pod)


async def test_a_later_pod_of_a_prepared_claim_is_limited_as_its_cgroup_appears(
    paced: Paced,
) -> None:
    """Kubelet makes no call for it, so nothing else keeps it from running without a limit."""
    paced.world.cgroup("p").mkdir()
    uses_claim(paced, "p", "Running")
    await paced.follow(20)
    assert paced.world.in_force("p") == share(4)
    uses_claim(paced, "q")
    await paced.follow(3)
    paced.world.cgroup("q").mkdir()
    await paced.follow(LOOK_SECONDS)
    assert [paced.world.in_force(name) for name in ("p", "q")] == [share(2)] * 2
    assert await paced.follow(EVERY / 2) == []


async def test_the_short_pauses_for_a_later_pod_of_a_claim_end(paced: Paced) -> None:
    """Kubelet may never make the cgroup; further events of the pod do not prolong the time."""
    uses_claim(paced, "q")
    looks = await paced.follow(AWAITED_SECONDS - 1)
    assert len(looks) == pytest.approx((AWAITED_SECONDS - 1) / LOOK_SECONDS, rel=0.05)
    uses_claim(paced, "q")
    await paced.follow(2)
    assert len(await paced.follow(5 * EVERY)) < 15


async def test_a_limit_that_stays_off_is_reported_again_after_ten_minutes(
    paced: Paced, clock: FakeClock
) -> None:
    """Not at every look, and not only once."""
    paced.driver.deaf = True
    paced.world.pod("a", gpu0=3)
    for wait, events in ((0.0, 1), (AGAIN_SECONDS - 1, 1), (1.0, 2), (1.0, 2)):
        clock.seconds += wait
        await paced.limits.look()
        assert len(paced.world.events) == events


async def test_a_pod_that_was_away_from_the_gpu_is_reported_anew(paced: Paced) -> None:
    """Kubelet's account moved it and moved it back: that is another share."""
    paced.driver.deaf = True
    for gpu in ("gpu0", "gpu1", "gpu0"):
        paced.world.pod("a", **{gpu: 3})
        await paced.limits.look()
    assert [name for name, *_ in paced.world.events] == ["a", "a"]


async def test_a_limit_that_the_driver_no_longer_keeps_counts_for_nothing(paced: Paced) -> None:
    """There are no figures of its cgroup, and a limit that is set later holds at once."""
    paced.world.pod("a", gpu0=3)
    await paced.limits.look()
    paced.driver.deaf = True
    paced.world.driver.limits.clear()
    await paced.limits.look()
    assert await paced.limits.used(paced.world.state.inventory.gpus[0]) == {}
    assert not paced.limits.holds(FIRST)
    paced.driver.deaf = False
    await paced.limits.look()
    assert paced.limits.holds(FIRST)


async def test_a_limit_that_was_taken_off_is_nobody_s_any_more(paced: Paced) -> None:
    """What somebody sets on that cgroup afterwards is left alone."""
    paced.world.pod("a", gpu0=3)
    await paced.limits.look()
    paced.world.gone("a", cgroup=True)
    await paced.limits.look()
    assert paced.world.in_force("a") == NO_LIMIT
    paced.world.driver.limits[FIRST, str(paced.world.cgroup("a"))] = share(1)
    await paced.limits.look()
    assert paced.world.in_force("a") == share(1)
