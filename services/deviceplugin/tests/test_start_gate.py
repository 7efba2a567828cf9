"""When a container with a share may start on a GPU in mode driver, call by call."""

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from limitsworld import FIRST, SECOND, World, share
from msgspec.structs import replace
from servicercalls import CONTEXT, RefusedError, node, servicer

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.node.isolation.driver_limits import NO_LIMIT
from gpucore.units import PodUid
from gpudeviceplugin.isolation.start_turns import StartTurns
from gpudeviceplugin.kubelet.pod_resources import PodResourcesError
from gpudeviceplugin.kubelet.start_gate import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    WAIT_SECONDS,
    StartGate,
)
from gpudeviceplugin.proto import deviceplugin_pb2 as api
from gpukube.testing.clock import FakeClock


class Modes:
    """Whether the isolation modes are known."""

    known = True


class Gated:
    """A world, its gate, and what kubelet lists."""

    def __init__(self, root: Path) -> None:
        self.world = World(root)
        self.modes: Any = Modes()
        self.account: list[Held] | None = None
        state, limits = self.world.state, self.world.limits
        self.turns = StartTurns(state)
        self.gate = StartGate(state, limits, self.turns, self.read, self.modes, seconds=0.03)

    async def read(self) -> None:
        """As the reconciler reads kubelet's allocations."""
        if self.account is None:
            raise PodResourcesError("no answer")
        state = self.world.state
        state.sync_from_kubelet(self.account, requested_at=state.matcher.holdings.turn)

    def lists(self) -> None:
        """Kubelet's account is what the world has."""
        self.account = self.world.state.account()

    def ids(self, name: str) -> tuple[str, ...]:
        """Of memory, that a pod holds."""
        return tuple(self.world.state.matcher.holdings.held_by(Resource.MEM, "team", name))


@pytest.fixture
def gated(tmp_path: Path) -> Gated:
    """A node with two GPUs in mode driver."""
    return Gated(tmp_path)


async def test_the_limit_of_every_gpu_is_in_force_when_the_container_may_start(
    gated: Gated,
) -> None:
    """The neighbour's cgroup is left alone."""
    gated.world.pod("a", phase="Pending", gpu0=3, gpu1=2)
    gated.world.pod("b", phase="Pending", gpu0=4)
    gated.lists()
    assert await gated.gate.wait(gated.ids("a")) == ""
    assert gated.world.in_force("a") == share(3)
    assert gated.world.in_force("a", SECOND) == share(2)
    assert gated.world.in_force("b") == NO_LIMIT


async def test_gpus_in_other_modes_hold_nobody_up(gated: Gated) -> None:
    """Kubelet is not queried either, where no turns are used."""
    gated.gate._turns = None
    gated.world.limits.want([SECOND])
    gated.world.pod("a", phase="Pending", cgroup=False, gpu0=3)
    assert await gated.gate.wait(gated.ids("a")) == ""


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("no cgroup", "the cgroup of pod team/a was not found on the node"),
        ("no answer", "cannot read kubelet's allocations: no answer"),
        ("not listed", "it is not known yet which pod the container belongs to"),
        ("not watched", "it is not known yet which pod the container belongs to"),
        ("no modes", "the isolation modes of the GPUs are not known yet"),
        ("other ids", "the device IDs belong to no GPU of this node"),
        ("refused", "GPU 0: nvmlDeviceSetMemoryLimits_v1: Insufficient Permissions"),
        ("lost", f"GPU 0: {FIRST} is lost"),
    ],
)
async def test_a_container_without_a_limit_does_not_start(
    gated: Gated, case: str, sentence: str
) -> None:
    """Every reason has its words, and the wait ends."""
    world = gated.world
    world.pod("a", phase="Pending", cgroup=case != "no cgroup", gpu0=3)
    ids = ("GPU-9-_-1",) if case == "other ids" else gated.ids("a")
    gated.lists()
    if case == "no answer":
        gated.account = None
    if case == "not watched":
        world.state.pods.clear()
    if case == "not listed":
        gated.account = []
    gated.modes.known = case != "no modes"
    world.driver.refuses_limits = case == "refused"
    world.driver.lost |= {FIRST} if case == "lost" else set()
    async with asyncio.timeout(60):
        why = await gated.gate.wait(ids)
    by_driver = "the driver's memory limit of the pod is not in force: "
    assert why == (by_driver if case in {"no cgroup", "refused", "lost"} else "") + sentence
    assert world.in_force("a") == NO_LIMIT


@pytest.mark.parametrize("case", ["no answer", "not listed", "other ids"])
async def test_without_a_limit_to_set_no_start_is_refused_for_what_is_not_known(
    gated: Gated, case: str
) -> None:
    """A turn is optional: a container whose pod is unknown starts."""
    gated.gate._limits = None
    gated.modes.known = False
    gated.world.pod("a", phase="Pending", gpu0=3)
    ids = ("GPU-9-_-1",) if case == "other ids" else gated.ids("a")
    gated.account = None if case == "no answer" else []
    assert await gated.gate.wait(ids) == ""


async def test_the_next_pod_waits_for_its_turn_with_the_words_of_the_turn(gated: Gated) -> None:
    """Its limit is in force meanwhile; a status of kubelet ends the wait."""
    for name in ("a", "b"):
        gated.world.pod(name, phase="Pending", gpu0=3)
        pod = gated.world.state.pods[PodUid(f"uid-{name}")]
        turn = replace(pod, annotations={"gpushare/start-turn": "600"})
        gated.world.state.on_update(turn, b"{}")
    gated.lists()
    assert await gated.gate.wait(gated.ids("a")) == ""
    assert (await gated.gate.wait(gated.ids("b"))).startswith("waits for its turn: pod team/a ")
    assert gated.world.in_force("b") == share(3)
    ready = {"containerStatuses": [{"ready": True, "state": {"running": {}}}]}
    line = json.dumps({"type": "MODIFIED", "object": {"status": ready}}).encode()
    gated.gate.seen(gated.world.state.pods[PodUid("uid-a")], line)
    assert await gated.gate.wait(gated.ids("b")) == ""


async def test_a_list_of_pods_gives_turns_and_ends_them(gated: Gated) -> None:
    """A restarted plugin knows by it who is starting."""
    for name in ("a", "b"):
        gated.world.pod(name, phase="Running", gpu0=3)
        pod = gated.world.state.pods[PodUid(f"uid-{name}")]
        turn = replace(pod, annotations={"gpushare/start-turn": "600"})
        gated.world.state.on_update(turn, b"{}")
    gated.lists()
    for ready in (False, True):
        status = {"containerStatuses": [{"ready": ready, "state": {"running": {}}}]}
        page = {"items": [{"metadata": {"uid": "uid-a"}, "status": status}]}
        gated.gate.listed(json.dumps(page).encode())
        assert (await gated.gate.wait(gated.ids("b")) == "") is ready


async def test_a_newer_pod_of_the_name_that_has_ended_is_not_the_one_that_starts(
    gated: Gated,
) -> None:
    """It failed before it started; its predecessor restarts a container."""
    world = gated.world
    world.pod("a", phase="Running", gpu0=3)
    pod = world.state.pods[PodUid("uid-a")]
    world.state.on_update(replace(pod, creation="2026-01-01T00:00:00Z"), b"{}")
    ended = replace(pod, uid=PodUid("uid-1"), creation="2026-01-02T00:00:00Z", phase="Failed")
    world.state.pods[ended.uid] = ended
    gated.lists()
    assert await gated.gate.wait(gated.ids("a")) == ""
    assert world.in_force("a") == share(3)


async def test_a_limit_that_the_driver_takes_and_does_not_keep_is_no_limit(gated: Gated) -> None:
    """What is read afterwards counts."""
    gated.world.pod("a", phase="Pending", gpu0=3)
    gated.lists()
    gated.world.driver.set_memory_limit = lambda *_: None  # type: ignore[method-assign]
    assert "the driver answers with hard limit" in await gated.gate.wait(gated.ids("a"))


async def test_a_start_waits_for_what_is_late(gated: Gated) -> None:
    """The cgroup appears while kubelet waits."""
    gated.gate._seconds = 20.0
    gated.world.pod("a", phase="Pending", cgroup=False, gpu0=3)
    gated.lists()
    waiting = asyncio.create_task(gated.gate.wait(gated.ids("a")))
    await asyncio.sleep(0)
    assert not waiting.done()
    gated.world.cgroup("a").mkdir()
    async with asyncio.timeout(60):
        assert await waiting == ""
    assert gated.world.in_force("a") == share(3)


async def test_the_pod_is_the_one_that_kubelet_lists_whatever_was_guessed(gated: Gated) -> None:
    """Two equal pods were taken for each other; a pod that ended is still listed."""
    world = gated.world
    world.pod("a", phase="Pending", gpu0=3)
    world.pod("b", phase="Pending", gpu1=3)
    world.pod("old", phase="Failed", gpu0=1)
    a, b = gated.ids("a"), gated.ids("b")
    rows = {"a": b, "b": a, "old": b}
    gated.account = [Held("team", name, {"c0": {Resource.MEM: row}}) for name, row in rows.items()]
    assert await gated.gate.wait(b) == ""
    assert world.in_force("a", SECOND) == share(3)
    assert (world.in_force("b", SECOND), world.in_force("b")) == (NO_LIMIT, NO_LIMIT)


async def test_of_two_pods_with_one_name_the_newer_one_starts(gated: Gated) -> None:
    """Its predecessor was deleted by force and may still run."""
    world = gated.world
    world.pod("a", phase="Pending", gpu0=3)
    pod = world.state.pods[PodUid("uid-a")]
    older = replace(pod, uid=PodUid("uid-0"), creation="2026-01-01T00:00:00Z")
    newer = replace(pod, creation="2026-01-02T00:00:00Z")
    world.state.on_update(newer, b"{}")
    world.state.on_update(older, b"{}")
    gated.lists()
    assert await gated.gate.wait(gated.ids("a")) == ""
    assert world.in_force("a") == share(3)


async def test_a_pod_that_ends_during_the_question_does_not_hide_the_one_that_starts(
    gated: Gated,
) -> None:
    """Kubelet listed both with the same devices, a moment before the watch reported the end."""
    world = gated.world
    world.pod("old", gpu0=3)
    world.pod("a", phase="Pending", gpu0=3)
    ids = gated.ids("a")
    gated.account = [Held("team", name, {"c0": {Resource.MEM: ids}}) for name in ("old", "a")]

    async def read() -> None:
        await gated.read()
        ended = replace(world.state.pods[PodUid("uid-old")], phase="Succeeded")
        world.state.pods[ended.uid] = ended

    gated.gate._read = read
    assert await gated.gate.wait(ids) == ""
    assert world.in_force("a") == share(3)


async def test_a_start_that_waits_long_looks_more_and_more_rarely(
    gated: Gated, clock: FakeClock
) -> None:
    """Every look reads kubelet's allocations."""
    looks: list[float] = []

    class Late:
        @property
        def known(self) -> bool:
            looks.append(clock.seconds)
            return False

    modes: Any = Late()
    gated.gate._isolation, gated.gate._seconds = modes, WAIT_SECONDS
    began = clock.seconds
    assert await gated.gate.wait(("GPU-0-_-1",)) != ""
    pauses = [after - before for before, after in pairwise(looks)]
    assert pauses[:3] == pytest.approx(
        [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]
    )
    assert max(pauses) == pytest.approx(LONGEST_PAUSE_SECONDS)
    assert WAIT_SECONDS - LONGEST_PAUSE_SECONDS <= clock.seconds - began < WAIT_SECONDS


async def test_kubelet_is_instructed_to_call_and_gets_the_sentence() -> None:
    """Only where a start gate is configured."""

    async def check(ids: tuple[str, ...]) -> str:
        return "" if ids == ("x",) else "no limit"

    made = servicer(node(), before_start=check)
    options = await made.GetDevicePluginOptions(api.Empty(), CONTEXT)
    assert options.pre_start_required
    well = api.PreStartContainerRequest(devicesIDs=["x"])
    assert await made.PreStartContainer(well, CONTEXT) == api.PreStartContainerResponse()
    with pytest.raises(RefusedError, match="FAILED_PRECONDITION: no limit"):
        await made.PreStartContainer(api.PreStartContainerRequest(devicesIDs=["y"]), CONTEXT)
