"""The start and the end of one MPS daemon: each step, its order and its time."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from gpudeviceplugin.isolation.mps.daemon import LOOK_SECONDS, Daemon
from gpudeviceplugin.isolation.mps.errors import ControlError, MpsError
from gpudeviceplugin.isolation.mps.folders import Folders
from gpukube.testing.clock import FakeClock

MODULE = "gpudeviceplugin.isolation.mps.daemon"
FOLDERS = Folders(Path("/mps/GPU-0/pipe"), Path("/mps/GPU-0/log"))
GRACE = 3.0


class Process:
    """A process of the daemon; it ends by the first of ``mortal`` that reaches it."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.pid = 4711
        self.returncode: int | None = None
        self.stdout = asyncio.StreamReader()
        self._ended = asyncio.Event()

    def end(self, status: int) -> None:
        self.returncode = status
        if not self.world.pipe_stays_open:
            self.stdout.feed_eof()
        self._ended.set()

    async def wait(self) -> int:
        """As that of a process."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        """As that of a process."""
        self.world.reached("terminate", -15)

    def kill(self) -> None:
        """As that of a process."""
        self.world.reached("kill", -9)


class World:
    """Control program, folders and operating system in one.

    Attributes:
        mortal: what ends the daemon.
        mute: quit is not answered.
        pipe_stays_open: a server has inherited the pipe that the daemon writes to.
        holds: for how many looks another daemon holds the pipes.
    """

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.began = clock.seconds
        self.effects: list[Any] = []
        self.mortal = {"quit", "terminate", "kill"}
        self.mute = False
        self.pipe_stays_open = False
        self.holds = 0
        self.error: OSError | None = None
        self.spawned: dict[str, Any] = {}
        self.process = Process(self)
        self.daemon = Daemon(["mps", "-f"], "GPU-0", FOLDERS, self, grace=GRACE)  # type: ignore[arg-type]

    def note(self, *effect: Any) -> None:
        self.effects.append((round(self.clock.seconds - self.began, 2), *effect))

    def reached(self, how: str, status: int) -> None:
        self.note(how)
        if how in self.mortal:
            self.process.end(status)

    async def send(self, command: str, *, seconds: float) -> str:
        """As the control program's."""
        self.note(command, seconds)
        if self.mute:
            await asyncio.sleep(seconds)
            raise ControlError("no answer")
        if command in self.mortal and self.spawned:
            self.process.end(0)
        return ""

    async def spawn(self, *command: str, **how: Any) -> Process:
        """As ``spawn``."""
        self.note("spawn", *command)
        if self.error is not None:
            raise self.error
        self.spawned = how
        return self.process

    def held(self, pipe: Path) -> bool:
        """As that of folders."""
        self.holds -= 1
        self.note("held")
        return self.holds >= 0


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> World:
    """A daemon that was not started."""
    made = World(clock)
    monkeypatch.setattr(f"{MODULE}.spawn", made.spawn)
    monkeypatch.setattr(f"{MODULE}.held", made.held)
    monkeypatch.setattr(f"{MODULE}.prepare", lambda folders: made.note("prepare", folders))
    monkeypatch.setattr(f"{MODULE}.clear", lambda pipe: made.note("clear", pipe))
    monkeypatch.setattr(f"{MODULE}.os.killpg", lambda pid, sign: made.note("killpg", pid, sign))
    return made


async def test_a_daemon_is_started_in_folders_that_were_cleared(world: World) -> None:
    """In a session of its own, so that its servers can be ended with it; it sees one GPU."""
    await world.daemon.start()
    assert world.effects == [
        (0, "prepare", FOLDERS),
        (0, "held"),
        (0, "clear", FOLDERS.pipe),
        (0, "spawn", "mps", "-f"),
    ]
    assert world.spawned["start_new_session"] is True
    assert world.spawned["env"]["CUDA_VISIBLE_DEVICES"] == "GPU-0"
    assert world.spawned["stdin"] == asyncio.subprocess.DEVNULL
    await world.daemon.stop()


async def test_pipes_of_another_daemon_are_cleared_only_after_it_left(world: World) -> None:
    """It is instructed to, and looked at until it is gone."""
    world.holds = 3
    await world.daemon.start()
    effects = [effect[1] for effect in world.effects]
    assert effects == ["prepare", "held", "quit", "held", "held", "held", "clear", "spawn"]
    assert world.effects[-1][0] == round(2 * LOOK_SECONDS, 2)
    await world.daemon.stop()


async def test_a_daemon_that_does_not_leave_keeps_its_pipes(world: World) -> None:
    """After the grace the start fails, and nothing was cleared or started."""
    world.holds = 10**6
    with pytest.raises(MpsError, match=f"another daemon uses {FOLDERS.pipe}; end it by hand"):
        await world.daemon.start()
    assert round(world.clock.seconds - world.began, 2) == pytest.approx(GRACE, abs=LOOK_SECONDS)
    assert {effect[1] for effect in world.effects} == {"prepare", "held", "quit"}
    await world.daemon.stop()
    assert world.effects[-1][1] == "held", "there is no process to stop"


async def test_a_program_that_is_missing_is_named(world: World) -> None:
    """The message has the error text of the operating system."""
    world.error = FileNotFoundError(2, "No such file or directory")
    with pytest.raises(MpsError, match="cannot run mps: No such file or directory"):
        await world.daemon.start()


@pytest.mark.parametrize(
    ("status", "words", "why"),
    [
        (0, b"", "it exited with status 0"),
        (1, b" old driver\n", "it exited with status 1: old driver"),
        (-9, b"x" * 500, f"it was killed by signal 9: {'x' * 400}"),
    ],
)
async def test_how_a_daemon_ended_is_reported_with_its_last_words(
    world: World, status: int, words: bytes, why: str
) -> None:
    """All that it reported before its end is read."""
    await world.daemon.start()
    world.process.stdout.feed_data(words)
    world.process.end(status)
    assert await world.daemon.ended() == why


async def test_a_daemon_that_quits_is_not_killed(world: World) -> None:
    """Its clients are recognized by it."""
    await world.daemon.start()
    world.effects.clear()
    await world.daemon.stop()
    assert world.effects == [(0, "quit", GRACE)]


async def test_a_daemon_that_does_not_quit_is_ended_step_by_step(world: World) -> None:
    """Each step has its grace; the next one comes only if it is needed."""
    world.mortal = {"kill"}
    await world.daemon.start()
    world.effects.clear()
    await world.daemon.stop()
    assert world.effects == [
        (0, "quit", GRACE),
        (GRACE, "terminate"),
        (2 * GRACE, "kill"),
    ]
    assert world.process.returncode == -9


async def test_a_daemon_that_does_not_answer_is_terminated_at_once(world: World) -> None:
    """A daemon that does not answer quit is terminated without a wait for its end."""
    world.mute = True
    await world.daemon.start()
    world.effects.clear()
    await world.daemon.stop()
    assert world.effects == [(0, "quit", GRACE), (GRACE, "terminate")]


async def test_a_daemon_that_has_ended_is_not_stopped(world: World) -> None:
    """Its process id may be another process's by now."""
    await world.daemon.start()
    world.process.end(1)
    world.effects.clear()
    await world.daemon.stop()
    assert world.effects == []


async def test_servers_are_ended_by_their_session(world: World) -> None:
    """One that was never started has none."""
    world.daemon.end_servers()
    assert world.effects == []
    await world.daemon.start()
    await world.daemon.stop()
    world.daemon.end_servers()
    assert world.effects[-1][1:] == ("killpg", 4711, signal.SIGKILL)


async def test_the_output_of_a_daemon_is_read_while_it_lives(world: World) -> None:
    """A full pipe would block the daemon; after a stop no task reads it."""
    await world.daemon.start()
    for _ in range(100):
        world.process.stdout.feed_data(b"x" * 4096)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(world.process.stdout._buffer) < 3 * 4096  # type: ignore[attr-defined]
    await world.daemon.stop()


async def test_a_server_that_keeps_the_pipe_of_its_daemon_open_holds_nobody_up(
    world: World,
) -> None:
    """The end is reported after a moment, and after a stop nothing is read."""
    world.pipe_stays_open = True
    before = asyncio.all_tasks()
    await world.daemon.start()
    world.process.stdout.feed_data(b"last words")
    world.process.end(1)
    assert await world.daemon.ended() == "it exited with status 1: last words"
    assert world.clock.seconds == world.began + GRACE
    assert len(asyncio.all_tasks() - before) == 1
    await world.daemon.stop()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_routine_lines_are_no_reason(world: World) -> None:
    """A daemon in the foreground prints its log: each look at it adds lines."""
    await world.daemon.start()
    stamp = b"[2026-11-25 03:50:58.891 Control 26852] "
    routine = (
        b"Starting control daemon using socket /mps/GPU-0/pipe/control",
        b"To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY=/mps",
        b"Accepting connection...",
        b"NEW UI",
        b"Cmd:get_server_list",
        b"UI closed",
    )
    lines = [*routine, b"Server 7 exited with status 1", *routine[2:] * 20]
    world.process.stdout.feed_data(b"".join(stamp + line + b"\n" for line in lines))
    world.process.end(-9)
    assert await world.daemon.ended() == "it was killed by signal 9: Server 7 exited with status 1"
