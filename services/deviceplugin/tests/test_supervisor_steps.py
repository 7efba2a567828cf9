"""One life of an MPS daemon, step by step: what is started, queried and stopped, and when."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gpudeviceplugin.isolation.mps.control import Control
from gpudeviceplugin.isolation.mps.daemon import GRACE_SECONDS
from gpudeviceplugin.isolation.mps.errors import (
    BusyError,
    ControlError,
    FolderError,
    MpsError,
    NoDaemonError,
)
from gpudeviceplugin.isolation.mps.folders import Folders
from gpudeviceplugin.isolation.mps.phase import MpsDaemonPhase
from gpudeviceplugin.isolation.mps.supervisor import (
    HEALTH_COMMAND,
    NEWS_SECONDS,
    Program,
    Supervisor,
    Timing,
    pause_after,
)
from gpukube.testing.clock import FakeClock

MODULE = "gpudeviceplugin.isolation.mps.supervisor"
FOLDERS = Folders(Path("/mps/GPU-0/pipe"), Path("/mps/GPU-0/log"))
TIMING = Timing(
    check=5.0,
    answer=3.0,
    patience=3.0,
    start=15.0,
    poll=1.0,
    first_pause=8.0,
    longest_pause=32.0,
    calm=300.0,
    grace=2.0,
)


class World:
    """The control program and the daemons that it starts, with the effects in order.

    Attributes:
        silent: whether a command fails now.
        absent: whether it fails because there is no daemon.
        busy: whether it fails because the daemon reads from another client.
        slow: seconds that every answer takes.
        dies: why the daemon ends, once it is set.
        stops: seconds of a stop.
    """

    def __init__(self, clock: FakeClock, program: Program) -> None:
        self.clock = clock
        self.began = clock.seconds
        self.effects: list[tuple[float, str]] = []
        self.seconds: list[float] = []
        self.made: list[tuple[Any, ...]] = []
        self.silent = False
        self.absent = self.busy = False
        self.slow = 0.0
        self.unstartable = ""
        self.dies: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.stops = 0.0
        self.supervisor = Supervisor("GPU-0", program, FOLDERS, TIMING)
        self.supervisor.on_change = lambda before, after: self.note(f"{before} to {after}")
        self.running: asyncio.Task[None] | None = None

    def note(self, effect: str) -> None:
        self.effects.append((round(self.clock.seconds - self.began, 3), effect))

    async def send(self, command: str, *, seconds: float) -> str:
        """As the control program's answer."""
        assert command == HEALTH_COMMAND
        self.seconds.append(seconds)
        await asyncio.sleep(min(self.slow, seconds))
        if self.silent or self.slow > seconds:
            self.note("no answer")
            raise ControlError("no answer")
        if self.busy:
            self.note("busy")
            raise BusyError("busy")
        if self.absent:
            self.note("no daemon")
            raise NoDaemonError("no daemon")
        self.note("answer")
        return ""

    def daemon(self, *arguments: Any, grace: float) -> "World":
        """As the class of daemons."""
        self.made.append((*arguments, grace))
        return self

    async def start(self) -> None:
        """As that of a daemon."""
        self.note("start")
        if self.unstartable:
            raise MpsError(self.unstartable)

    async def ended(self) -> str:
        """As that of a daemon."""
        return await asyncio.shield(self.dies)

    async def stop(self) -> None:
        """As that of a daemon."""
        self.note("stop")
        await asyncio.sleep(self.stops)
        self.note("stopped")
        if not self.dies.done():
            self.dies.set_result("it was stopped")
        self.dies = asyncio.get_running_loop().create_future()

    def end_servers(self) -> None:
        """As that of a daemon."""
        self.note("end servers")

    def trim(self, folder: Path) -> None:
        """As ``trim_logs``."""
        self.note(f"trim {folder}")

    async def until(self, seconds: float) -> list[tuple[float, str]]:
        """What is done until this second after the start."""
        if self.running is None:
            self.running = asyncio.create_task(self.supervisor.run())
        self.effects.clear()
        await asyncio.sleep(self.began + seconds - self.clock.seconds)
        return list(self.effects)

    async def end(self) -> list[tuple[float, str]]:
        """What its end does."""
        self.effects.clear()
        if self.running is not None:
            self.running.cancel()
            await asyncio.wait({self.running})
        return list(self.effects)


def made(monkeypatch: pytest.MonkeyPatch, clock: FakeClock, program: Program) -> World:
    """A supervisor whose daemon, control program and clock are the test's."""
    world = World(clock, program)

    async def send(self: Control, command: str, *, seconds: float) -> str:
        return await world.send(command, seconds=seconds)

    monkeypatch.setattr(f"{MODULE}.Daemon", world.daemon)
    monkeypatch.setattr(Control, "send", send)
    monkeypatch.setattr(f"{MODULE}.trim_logs", world.trim)
    monkeypatch.setattr(f"{MODULE}.time.monotonic", clock.now)
    monkeypatch.setattr(f"{MODULE}.random.random", lambda: 1.0)
    return world


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> World:
    """A daemon of ours."""
    return made(monkeypatch, clock, Program("mps", ("-f", "-M")))


@pytest.fixture
async def operators(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> World:
    """A daemon that the operator runs."""
    return made(monkeypatch, clock, Program("mps", None))


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    """What was logged."""
    with capture_logs() as logged:
        yield logged


async def test_a_daemon_that_answers_serves_and_is_checked_from_then_on(world: World) -> None:
    """Its logs are trimmed after each check that it passed."""
    supervisor = world.supervisor
    assert (supervisor.phase, supervisor.starts) == (MpsDaemonPhase.STARTING, 0)
    assert supervisor.why == "its MPS daemon has not responded yet"
    assert await world.until(10.5) == [
        (0, "start"),
        (0, "answer"),
        (0, "starting to serving"),
        (5, "answer"),
        (5, f"trim {FOLDERS.log}"),
        (10, "answer"),
        (10, f"trim {FOLDERS.log}"),
    ]
    assert (supervisor.phase, supervisor.why, supervisor.starts) == (MpsDaemonPhase.SERVING, "", 1)
    assert set(world.seconds) == {TIMING.answer}
    ((command, uuid, folders, control, grace),) = world.made
    assert (command, uuid, folders) == (["mps", "-f", "-M"], "GPU-0", FOLDERS)
    assert isinstance(control, Control)
    assert grace == TIMING.grace
    assert await world.end() == [(10.5, "stop"), (10.5, "stopped"), (10.5, "end servers")]


async def test_a_new_daemon_is_given_time_to_answer(world: World) -> None:
    """It is polled, and does not serve before it answers."""
    world.silent = True
    assert await world.until(2.5) == [
        (0, "start"),
        *((at, "no answer") for at in (0, 1, 2)),
    ]
    assert world.supervisor.phase is MpsDaemonPhase.STARTING
    world.silent = False
    assert await world.until(3.5) == [(3, "answer"), (3, "starting to serving")]
    await world.end()


async def test_a_new_daemon_that_never_answers_fails_when_its_time_is_over(world: World) -> None:
    """A slow answer is not waited for beyond that: the last wait is what is left."""
    world.slow = 60.0
    done = await world.until(17)
    assert [at for at, effect in done if effect == "no answer"] == [3, 7, 11, 15]
    assert done[-3:] == [(16, "starting to failed"), (16, "stop"), (16, "stopped")]
    assert world.seconds == [3.0, 3.0, 3.0, 3.0]
    assert world.supervisor.why == "its MPS daemon fails: no answer"
    await world.end()


async def test_the_last_question_to_a_new_daemon_takes_what_is_left(world: World) -> None:
    """And a poll's time at least."""
    world.silent, world.slow = True, 0.5
    done = await world.until(15.9)
    assert [at for at, effect in done if effect == "no answer"][-3:] == [12.5, 14, 15.5]
    assert world.seconds[-3:] == [3.0, 1.5, 1.0]
    assert (16.5, "starting to failed") in await world.until(17)
    await world.end()


async def test_a_daemon_that_hangs_is_failed_then_stopped_then_started_again(
    world: World, logs: list[Any]
) -> None:
    """New pods are held off before the stop, which takes a while; servers keep their clients.

    One attempt without an answer shows nothing: the daemon may be reading from another client.
    """
    await world.until(4)
    world.silent, world.stops = True, 2.0
    failed = 5 + TIMING.patience + NEWS_SECONDS
    done = await world.until(failed + 8)
    assert done == [
        *((at, "no answer") for at in (5, 6, 7, 8)),
        (failed, "serving to failed"),
        (failed, "stop"),
        (failed + 2, "stopped"),
    ]
    assert world.supervisor.why == "its MPS daemon fails: no answer"
    assert logs == [
        {
            "event": "MPS daemon",
            "log_level": "warning",
            "gpu": "GPU-0",
            "why": "no answer",
            "again_in": 8.0,
        }
    ]
    world.silent = False
    restart = failed + 2 + 8
    assert await world.until(restart + 0.5) == [
        (restart, "start"),
        (restart, "answer"),
        (restart, "failed to serving"),
    ]
    assert (world.supervisor.starts, len(world.made)) == (2, 2)
    await world.end()


async def test_a_daemon_that_another_client_keeps_busy_is_held_to_be_failed_and_not_ended(
    world: World,
) -> None:
    """New pods wait; it serves as soon as it answers."""
    await world.until(4)
    world.busy = True
    assert await world.until(8.5) == [
        *((at, "busy") for at in (5, 6, 7, 8)),
        (8, "serving to failed"),
    ]
    assert world.supervisor.why == "its MPS daemon fails: busy"
    world.busy = False
    assert await world.until(13.5) == [
        (13, "answer"),
        (13, "failed to serving"),
        (13, f"trim {FOLDERS.log}"),
    ]
    assert world.supervisor.starts == 1
    await world.end()


async def test_the_end_of_a_daemon_is_noticed_at_once(world: World) -> None:
    """Not at the next check; the reason is how it ended."""
    await world.until(2)
    world.dies.set_result("it was killed by signal 9")
    assert await world.until(2.1) == [
        (2, "serving to failed"),
        (2, "stop"),
        (2, "stopped"),
    ]
    assert world.supervisor.why == "its MPS daemon fails: it was killed by signal 9"
    await world.end()


async def test_the_end_of_a_daemon_is_reported_before_a_request_that_failed(world: World) -> None:
    """The news of its end may come a moment later."""
    await world.until(4)
    world.silent = True
    dies = world.dies
    asyncio.get_running_loop().call_later(1.5, dies.set_result, "it exited with status 1")
    assert (5.5, "serving to failed") in await world.until(7)
    assert world.supervisor.why == "its MPS daemon fails: it exited with status 1"
    await world.end()


async def test_a_daemon_that_has_failed_is_not_queried(world: World) -> None:
    """The tasks around it end with it."""
    before = asyncio.all_tasks()
    await world.until(2)
    world.dies.set_result("it was killed by signal 9")
    done = await world.until(9.5)
    assert not [effect for at, effect in done if "answer" in effect]
    assert asyncio.all_tasks() - before == {world.running}
    await world.end()


async def test_a_daemon_that_cannot_be_started_is_stopped_and_tried_again(world: World) -> None:
    """Half a start leaves nothing behind, and the pauses grow."""
    world.unstartable = "cannot run mps"
    done = await world.until(8 + 16 + 1)
    assert [at for at, effect in done if effect == "start"] == [0, 8, 24]
    assert done[1:4] == [(0, "starting to failed"), (0, "stop"), (0, "stopped")]
    assert world.supervisor.why == "its MPS daemon fails: cannot run mps"
    assert not [effect for _, effect in done if "answer" in effect]
    assert await world.end() == []


async def test_a_daemon_is_not_started_before_its_place_is_made(world: World) -> None:
    """It is made before each start: a disk that was full has room later."""
    faults = [FolderError("cannot make /mps: No space left on device")]

    def place() -> None:
        world.note("place")
        if faults:
            raise faults.pop()

    world.supervisor.before_start = place
    done = [effect for at, effect in await world.until(8.5)]
    assert [effect for effect in done if "stop" not in effect] == [
        "place",
        "starting to failed",
        "place",
        "start",
        "answer",
        "failed to serving",
    ]
    await world.end()


async def test_a_stop_is_carried_to_its_end_when_it_is_cancelled_again(world: World) -> None:
    """The servers are ended after it, not while the daemon could start new ones."""
    await world.until(1)
    world.stops = 2.0
    world.effects.clear()
    assert world.running is not None
    world.running.cancel()
    await asyncio.sleep(1)
    world.running.cancel()
    await asyncio.wait({world.running})
    assert world.effects == [(1, "stop"), (3, "stopped"), (3, "end servers")]
    assert world.running.cancelled()


async def test_an_operators_daemon_is_only_queried(operators: World) -> None:
    """Nothing is started, stopped or trimmed."""
    assert await operators.until(5.5) == [
        (0, "answer"),
        (0, "starting to serving"),
        (5, "answer"),
    ]
    assert operators.made == []
    assert await operators.end() == []


async def test_an_operators_daemon_that_does_not_answer_fails(operators: World) -> None:
    """Another client may keep it busy for a while."""
    operators.silent = True
    assert await operators.until(4) == [
        *((at, "no answer") for at in (0, 1, 2, 3)),
        (3, "starting to failed"),
    ]
    await operators.end()


async def test_an_operators_daemon_that_is_not_there_fails_at_once(operators: World) -> None:
    """It is no new one: it is queried again after the pause, and serves when it answers."""
    operators.absent = True
    assert await operators.until(1) == [(0, "no daemon"), (0, "starting to failed")]
    operators.absent = False
    assert await operators.until(8.5) == [(8, "answer"), (8, "failed to serving")]
    assert operators.supervisor.starts == 2


async def test_failures_count_from_one_after_a_calm_time_and_not_before(
    monkeypatch: pytest.MonkeyPatch, operators: World
) -> None:
    """A daemon that served for exactly that long is not calm yet."""
    lives = [0.0, TIMING.calm, TIMING.calm + 1, 0.0]
    starts: list[float] = []

    async def live() -> None:
        starts.append(operators.clock.seconds)
        if not lives:
            await asyncio.sleep(1e9)
        await asyncio.sleep(lives.pop(0))
        raise MpsError("it ended")

    monkeypatch.setattr(operators.supervisor, "_live", live)
    with capture_logs() as logged:
        await operators.until(2000)
    assert [line["again_in"] for line in logged] == [8.0, 16.0, 8.0, 16.0]
    begun = [round(at - operators.began) for at in starts]
    assert begun == [0, 8, 8 + 300 + 16, 324 + 301 + 8, 633 + 16]
    await operators.end()


def test_pauses_double_to_their_limit_and_half_of_them_is_spread() -> None:
    """GPUs that fail together are not restarted together."""
    assert [pause_after(n, TIMING, 1.0) for n in (1, 2, 3, 4, 1000)] == [8, 16, 32, 32, 32]
    assert [pause_after(2, TIMING, jitter) for jitter in (0.0, 0.5)] == [8, 12]
    long = Timing(first_pause=1.0, longest_pause=1e9)
    assert [pause_after(n, long, 1.0) for n in (16, 17, 18)] == [2**15, 2**16, 2**16]


def test_the_times_of_a_daemon_unless_somebody_sets_others() -> None:
    """The settings page has them."""
    timing = Supervisor("GPU-0", Program("mps"), FOLDERS)._timing
    assert timing == Timing(5.0, 3.0, 15.0, 15.0, 0.1, 1.0, 60.0, 300.0, GRACE_SECONDS)
