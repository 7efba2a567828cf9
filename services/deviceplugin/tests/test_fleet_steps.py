"""The daemons of a node: one for each GPU in mode mps, in turn, with its metrics."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from gpucore.node.isolation.mps_grant import MpsPlace
from gpudeviceplugin.isolation.mps.fleet import Fleet
from gpudeviceplugin.isolation.mps.folders import Folders
from gpudeviceplugin.isolation.mps.phase import MpsDaemonPhase
from gpudeviceplugin.isolation.mps.supervisor import Program, Supervisor, Timing
from gpukube.testing.clock import FakeClock

MODULE = "gpudeviceplugin.isolation.mps.fleet"
TIMING = Timing(check=1.5)
STOP_SECONDS = 3.0


class Kept:
    """A supervisor whose phase the test sets; a stop takes a while."""

    def __init__(self, world: "World", uuid: str, arguments: tuple[Any, ...]) -> None:
        self.world = world
        self.uuid = uuid
        self.arguments = arguments
        self.phase = MpsDaemonPhase.STARTING
        self.why = ""
        self.on_change: Any = None
        self.before_start: Any = None

    async def run(self) -> None:
        """As a supervisor's, which starts its daemon once."""
        if self.world.starts:
            self.before_start()
        self.world.note(f"run {self.uuid}")
        try:
            await asyncio.Event().wait()
        finally:
            self.world.note(f"stop {self.uuid}")
            await asyncio.sleep(STOP_SECONDS)
            self.world.note(f"stopped {self.uuid}")

    def enter(self, phase: MpsDaemonPhase, why: str = "") -> None:
        """The daemon of the GPU is in this phase from now on."""
        before, self.phase, self.why = self.phase, phase, why
        self.on_change(before, phase)


class World:
    """A fleet over supervisors that the test turns."""

    def __init__(self, clock: FakeClock, place: MpsPlace, **more: Any) -> None:
        self.clock = clock
        self.began = clock.seconds
        self.effects: list[tuple[float, str]] = []
        self.changes: list[tuple[Any, ...]] = []
        self.kept: dict[str, Kept] = {}
        self.starts = True
        settings = {"control": "mps", "multi_user": False, "timing": TIMING} | more
        self.fleet = Fleet(place, **settings)
        self.fleet.on_change = lambda *change: self.changes.append(change)
        self.running: asyncio.Task[None] | None = None

    def note(self, effect: str) -> None:
        self.effects.append((round(self.clock.seconds - self.began, 3), effect))

    def supervisor(self, uuid: str, *arguments: Any) -> Kept:
        """As the class of supervisors."""
        self.kept[uuid] = Kept(self, uuid, arguments)
        return self.kept[uuid]

    def lay_out(self, root: Path, volume: str) -> None:
        """As that of folders."""
        self.note(f"lay out {root} {volume}".strip())

    async def until(self, seconds: float) -> list[tuple[float, str]]:
        """What is done until this second."""
        if self.running is None:
            self.running = asyncio.create_task(self.fleet.run())
        self.effects.clear()
        await asyncio.sleep(self.began + seconds - self.clock.seconds)
        return list(self.effects)

    async def end(self) -> list[tuple[float, str]]:
        """What the end does."""
        self.effects.clear()
        if self.running is not None:
            self.running.cancel()
            await asyncio.wait({self.running})
        return list(self.effects)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> AsyncIterator[World]:
    """A fleet of our own daemons."""
    made = World(clock, MpsPlace("/mps"))
    monkeypatch.setattr(f"{MODULE}.Supervisor", made.supervisor)
    monkeypatch.setattr(f"{MODULE}.lay_out", made.lay_out)
    monkeypatch.setattr(f"{MODULE}.open_to_all", lambda shm: made.note(f"open {shm}"))
    yield made
    await made.end()


def figure(name: str, uuid: str) -> float | None:
    """A metric of a GPU's daemon."""
    return REGISTRY.get_sample_value(f"gpushare_mps_{name}", {"uuid": uuid})


async def test_a_daemon_is_kept_for_each_gpu_that_wants_one(world: World) -> None:
    """Their place is laid out before each start; the same request again changes nothing."""
    assert await world.until(1) == []
    world.fleet.want(["GPU-a"])
    assert await world.until(2) == [(1, "lay out /mps"), (1, "open /mps/shm"), (1, "run GPU-a")]
    world.fleet.want(("GPU-a",))
    assert await world.until(3) == []
    world.fleet.want(["GPU-a", "GPU-b"])
    assert [effect for _, effect in await world.until(4)][-1] == "run GPU-b"
    world.fleet.want(["GPU-b"])
    assert await world.until(8) == [(4, "stop GPU-a"), (7, "stopped GPU-a")]
    assert await world.end() == [(8, "stop GPU-b"), (11, "stopped GPU-b")]


async def test_a_gpu_that_wants_its_daemon_back_waits_for_the_end_of_the_one_before(
    world: World,
) -> None:
    """Two daemons in one directory would lose each other's clients."""
    world.fleet.want(["GPU-a"])
    await world.until(1)
    world.fleet.want([])
    await world.until(2)
    world.fleet.want(["GPU-a"])
    done = [effect for effect in await world.until(5) if "lay out" not in effect[1]]
    assert done == [(4, "stopped GPU-a"), (4, "open /mps/shm"), (4, "run GPU-a")]


async def test_pods_may_rely_on_a_daemon_while_it_serves(world: World) -> None:
    """Metrics and listeners follow each change, failures are counted."""
    world.fleet.want(["GPU-a"])
    await world.until(1)
    kept = world.kept["GPU-a"]
    assert not world.fleet.serving("GPU-a")
    assert not world.fleet.serving("GPU-unknown")
    assert figure("serving", "GPU-a") == 0
    failures = figure("failures_total", "GPU-a") or 0
    kept.enter(MpsDaemonPhase.SERVING)
    assert world.fleet.serving("GPU-a")
    assert figure("serving", "GPU-a") == 1
    assert (figure("failures_total", "GPU-a") or 0) == failures
    kept.enter(MpsDaemonPhase.FAILED, "it hangs")
    assert not world.fleet.serving("GPU-a")
    assert (figure("serving", "GPU-a"), figure("failures_total", "GPU-a")) == (0, failures + 1)
    assert world.changes == [
        ("GPU-a", MpsDaemonPhase.STARTING, MpsDaemonPhase.SERVING, ""),
        ("GPU-a", MpsDaemonPhase.SERVING, MpsDaemonPhase.FAILED, "it hangs"),
    ]


async def test_a_gpu_without_a_daemon_has_no_series(world: World) -> None:
    """It is not one whose daemon is down."""
    world.fleet.want(["GPU-a"])
    await world.until(1)
    world.kept["GPU-a"].enter(MpsDaemonPhase.SERVING)
    world.fleet.want([])
    await world.until(2)
    assert figure("serving", "GPU-a") is None
    assert not world.fleet.serving("GPU-a")


@pytest.mark.parametrize(
    ("place", "multi_user", "program"),
    [
        (MpsPlace("/mps"), False, Program("mps", ("-f",))),
        (MpsPlace("/mps"), True, Program("mps", ("-f", "-M"))),
        (MpsPlace("", pipe="/pipe"), True, Program("mps", None)),
    ],
)
async def test_a_daemon_has_its_own_folders_and_the_flags_of_the_node(
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    place: MpsPlace,
    multi_user: bool,
    program: Program,
) -> None:
    """One that the operator runs is not started, so it has no flags."""
    world = World(clock, place, multi_user=multi_user)
    world.starts = program.flags is not None
    monkeypatch.setattr(f"{MODULE}.Supervisor", world.supervisor)
    monkeypatch.setattr(f"{MODULE}.lay_out", world.lay_out)
    monkeypatch.setattr(f"{MODULE}.open_to_all", lambda _: None)
    world.fleet.want(["GPU-a"])
    laid_out = [effect for _, effect in await world.until(1) if "lay out" in effect]
    assert laid_out == ([] if place.pipe else ["lay out /mps"])
    pipe = Path(place.pipe or "/mps/GPU-a/pipe")
    assert world.kept["GPU-a"].arguments == (program, Folders(pipe, pipe.parent / "log"), TIMING)
    await world.end()


async def test_shared_memory_is_that_of_the_volume_where_there_is_one(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin has it mounted where daemons look for it."""
    world = World(clock, MpsPlace("/mps"), volume="/pods/one/shm")
    monkeypatch.setattr(f"{MODULE}.Supervisor", world.supervisor)
    monkeypatch.setattr(f"{MODULE}.lay_out", world.lay_out)
    monkeypatch.setattr(f"{MODULE}.open_to_all", lambda shm: world.note(f"open {shm}"))
    world.fleet.want(["GPU-a"])
    done = [effect for _, effect in await world.until(1)]
    assert done == ["lay out /mps /pods/one/shm", "open /dev/shm", "run GPU-a"]
    await world.end()


def test_the_class_of_supervisors_takes_what_the_fleet_gives_it() -> None:
    """The one of the tests above does."""
    made = Supervisor("GPU-a", Program("mps"), Folders(Path("/a"), Path("/b")), TIMING)
    assert (made._uuid, made._timing) == ("GPU-a", TIMING)
