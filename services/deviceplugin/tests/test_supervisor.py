"""One MPS daemon's lives, with a clock that the test turns; and what the fleet shows of it."""

import asyncio
from pathlib import Path

import pytest
from moduletime import Clock
from prometheus_client import REGISTRY

from gpucore.node.isolation.mps_grant import MpsPlace
from gpudeviceplugin.isolation.mps.control import Control
from gpudeviceplugin.isolation.mps.errors import (
    BusyError,
    ControlError,
    MpsError,
    NoDaemonError,
    ProgramError,
)
from gpudeviceplugin.isolation.mps.fleet import Fleet
from gpudeviceplugin.isolation.mps.folders import Folders
from gpudeviceplugin.isolation.mps.phase import MpsDaemonPhase
from gpudeviceplugin.isolation.mps.supervisor import Program, Supervisor, Timing

MODULE = "gpudeviceplugin.isolation.mps.supervisor"
TIMING = Timing(first_pause=1.0, longest_pause=8.0, calm=300.0)
SECONDS = 60.0


class Lives:
    """A supervisor whose daemon lives as long as the test specifies, then fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lives: float) -> None:
        self.clock = Clock()
        self.clock.rule(monkeypatch, MODULE)
        monkeypatch.setattr(f"{MODULE}.random.random", lambda: 1.0)
        self.supervisor = Supervisor("GPU-0", Program("mps"), Folders(Path(), Path()), TIMING)
        self.phases: list[MpsDaemonPhase] = []
        self.supervisor.on_change = lambda _, after: self.phases.append(after)
        self._left = list(lives)
        monkeypatch.setattr(self.supervisor, "_live", self._live)

    async def _live(self) -> None:
        if not self._left:
            raise asyncio.CancelledError
        self.supervisor._enter(MpsDaemonPhase.SERVING, "")
        self.clock.now += self._left.pop(0)
        raise MpsError("it ended")

    async def run(self) -> list[float]:
        """All lives; returns the pauses between them."""
        with pytest.raises(asyncio.CancelledError):
            await self.supervisor.run()
        return self.clock.slept


async def test_pauses_between_restarts_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that fails again and again is started less and less often, to a limit."""
    assert await Lives(monkeypatch, *[0.0] * 6).run() == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


async def test_a_daemon_that_served_for_long_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures before a calm time are forgotten."""
    lives = (0.0, 0.0, TIMING.calm + 1, 0.0)
    assert await Lives(monkeypatch, *lives).run() == [1.0, 2.0, 1.0, 2.0]


async def test_a_failure_is_reported_before_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """New pods must not get the GPU while its daemon is down."""
    made = Lives(monkeypatch, 0.0)
    seen: list[MpsDaemonPhase] = []
    made.clock.on_sleep = lambda: seen.append(made.supervisor.phase)
    await made.run()
    assert seen == [MpsDaemonPhase.FAILED]
    assert made.phases == [MpsDaemonPhase.SERVING, MpsDaemonPhase.FAILED]
    assert "it ended" in made.supervisor.why


class Attempts:
    """An operator's daemon whose answers to the attempts of its supervisor the test lists."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Exception | str) -> None:
        self._clock = Clock()
        self._clock.rule(monkeypatch, MODULE)
        self._answers = list(answers)
        monkeypatch.setattr(Control, "send", lambda _, __, seconds: self._send(seconds))
        program = Program("mps", None)
        self.supervisor = Supervisor("GPU-0", program, Folders(Path(), Path()), TIMING)
        self.phases: list[MpsDaemonPhase] = []
        self.supervisor.on_change = lambda _, after: self.phases.append(after)

    @property
    def left(self) -> list[Exception | str]:
        """Answers that no attempt had."""
        return self._answers

    async def _send(self, seconds: float) -> str:
        if not self._answers:
            raise asyncio.CancelledError
        answer = self._answers.pop(0)
        if isinstance(answer, BusyError | NoDaemonError | ProgramError):
            raise answer
        if isinstance(answer, ControlError):
            self._clock.now += seconds + (STILL if answer is LATE else 0)
            raise answer
        return answer


BUSY, SILENT, GONE = BusyError("busy"), ControlError("no response"), NoDaemonError("no daemon")
NOT_RUN = ProgramError("cannot run it: Resource temporarily unavailable")
LATE, STILL = ControlError("no response"), 100.0
"""An attempt during which the plugin stood still for so many seconds, and missed the answer."""


async def test_a_daemon_that_was_busy_once_in_its_patience_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last attempt has only the rest of the time: its silence is no proof of a hanging daemon.

    The end of a daemon is the end of the pods of its GPU.
    """
    made = Attempts(monkeypatch, "", BUSY, *[SILENT] * 5, "")
    with pytest.raises(asyncio.CancelledError):
        await made.supervisor._watch()
    serving, failed = MpsDaemonPhase.SERVING, MpsDaemonPhase.FAILED
    assert made.phases == [serving, failed, serving]


@pytest.mark.parametrize(
    "answers", [[*[SILENT] * 6], [BUSY, *[SILENT] * 12], [BUSY, SILENT, GONE]], ids=len
)
async def test_a_daemon_that_is_silent_for_its_patience_or_gone_is_replaced(
    monkeypatch: pytest.MonkeyPatch, answers: list[Exception]
) -> None:
    """However busy it was before."""
    made = Attempts(monkeypatch, "", *answers)
    with pytest.raises(ControlError, match=r"no response|no daemon"):
        await made.supervisor._watch()


async def test_a_node_on_which_no_program_can_start_ends_no_daemon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenant that takes all process ids would else end the pods of every GPU with a daemon."""
    made = Attempts(monkeypatch, "", *[NOT_RUN] * 200, SILENT, NOT_RUN, *[SILENT] * 4, "")
    with pytest.raises(asyncio.CancelledError):
        await made.supervisor._watch()
    serving, failed = MpsDaemonPhase.SERVING, MpsDaemonPhase.FAILED
    assert made.phases == [serving, failed, serving]
    assert made.left == []


async def test_time_in_which_the_plugin_stood_still_is_no_silence_of_the_daemon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that stops the plugin for longer than its patience ends no pod of the GPU."""
    made = Attempts(monkeypatch, "", LATE, LATE, "", LATE, *[SILENT] * 4)
    with pytest.raises(ControlError, match="no response"):
        await made.supervisor._watch()
    assert made.phases == [MpsDaemonPhase.SERVING]
    assert made.left == []


def series(uuid: str) -> float | None:
    """What Prometheus sees of a GPU's daemon."""
    return REGISTRY.get_sample_value("gpushare_mps_serving", {"uuid": uuid})


async def test_a_stopped_daemon_has_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that is no longer in mode mps is not one whose daemon is down."""
    answers = asyncio.Event()

    async def send(self: Control, command: str, *, seconds: float) -> str:
        if not answers.is_set():
            raise ControlError("no answer")
        return ""

    monkeypatch.setattr(Control, "send", send)
    quick = Timing(check=0.01, patience=0.05, poll=0.01, first_pause=0.01, longest_pause=0.01)
    fleet = Fleet(MpsPlace("", pipe="/pipe"), control="mps", multi_user=False, timing=quick)
    changed = asyncio.Event()
    fleet.on_change = lambda *_: changed.set()
    fleet.want(["GPU-a", "GPU-b"])
    running = asyncio.create_task(fleet.run())
    async with asyncio.timeout(SECONDS):
        await changed.wait()
        assert (series("GPU-a"), series("GPU-b")) == (0.0, 0.0)
        answers.set()
        while not (fleet.serving("GPU-a") and fleet.serving("GPU-b")):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert (series("GPU-a"), series("GPU-b")) == (1.0, 1.0)
        fleet.want(["GPU-b"])
        while series("GPU-a") is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert not fleet.serving("GPU-a")
    running.cancel()
    await asyncio.wait({running})
    assert series("GPU-a") is None
