"""Supervises the daemon of one GPU, and reports whether the GPU accepts new pods.

                 answers                 ends, or does not answer
    STARTING ──────────────► SERVING ─────────────────────────────► FAILED
        ▲                                                              │
        └──────────────────── after a pause that grows ────────────────┘

Two kinds of daemons: those that the plugin runs, and one that the operator runs (``--mps-pipe``),
which is only looked at. Nothing is done to clients: NVIDIA's server takes its own down with it.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from gpudeviceplugin.cancelling import to_its_end
from gpudeviceplugin.isolation.mps.control import Control
from gpudeviceplugin.isolation.mps.daemon import GRACE_SECONDS, Daemon
from gpudeviceplugin.isolation.mps.errors import (
    BusyError,
    ControlError,
    MpsError,
    NoDaemonError,
    ProgramError,
)
from gpudeviceplugin.isolation.mps.folders import Folders, trim_logs
from gpudeviceplugin.isolation.mps.phase import MpsDaemonPhase
from gpudeviceplugin.state import ignore

log = structlog.get_logger()

HEALTH_COMMAND: Final = "get_server_list"
"""Checks that the daemon responds; the reply is empty while it has no server."""
NEWS_SECONDS: Final = 1.0
"""A silent daemon may have ended: its exit status, a moment later, is more precise."""


class Timing(msgspec.Struct, frozen=True):
    """Intervals and timeouts of a supervisor, in seconds.

    Attributes:
        check: interval between two checks of a daemon.
        answer: timeout of an answer.
        patience: time without any answer after which a daemon counts as hanging.
        start: timeout of a new daemon's first answer.
        poll: interval between two attempts to reach a new daemon.
        first_pause, longest_pause: pauses after failures, doubled each time.
        calm: time of service after which earlier failures no longer count.
        grace: timeout of each step of a stop.
    """

    check: float = 5.0
    answer: float = 3.0
    patience: float = 15.0
    start: float = 15.0
    poll: float = 0.1
    first_pause: float = 1.0
    longest_pause: float = 60.0
    calm: float = 300.0
    grace: float = GRACE_SECONDS


class Program(msgspec.Struct, frozen=True):
    """The control program.

    Attributes:
        path: of it, or its name on PATH.
        flags: of a daemon that the plugin runs; ``None`` where the operator runs it.
    """

    path: str
    flags: tuple[str, ...] | None = ("-f",)


def pause_after(failures: int, timing: Timing, jitter: float) -> float:
    """Pause in seconds after consecutive failures; ``jitter`` in 0..1 spreads half of it."""
    full = min(timing.first_pause * float(1 << min(failures - 1, 16)), timing.longest_pause)
    return full * (0.5 + jitter / 2)


class Supervisor:
    """The daemon of one GPU.

    Attributes:
        phase: new pods may rely on it while SERVING.
        why: the reason why it does not serve, as text.
        starts: how often it was started.
        before_start: is called before each start of a daemon of the plugin; raises MpsError.
    """

    def __init__(
        self, uuid: str, program: Program, folders: Folders, timing: Timing | None = None
    ) -> None:
        self._uuid = uuid
        self._program = program
        self._folders = folders
        self._timing = timing or Timing()
        self._control = Control(program.path, folders)
        self.phase = MpsDaemonPhase.STARTING
        self.why = "its MPS daemon has not responded yet"
        self.starts = 0
        self.on_change: Callable[[MpsDaemonPhase, MpsDaemonPhase], None] = ignore
        self.before_start: Callable[[], None] = ignore

    async def run(self) -> None:
        """Keep it alive until cancelled; then stop it before returning."""
        failures = 0
        while True:
            since = time.monotonic()
            try:
                await self._live()
            except MpsError as error:
                failures = 1 if time.monotonic() - since > self._timing.calm else failures + 1
                pause = pause_after(failures, self._timing, random.random())  # noqa: S311
                log.warning("MPS daemon", gpu=self._uuid, why=str(error), again_in=pause)
                self._fail(error)
                await asyncio.sleep(pause)

    async def _live(self) -> None:
        """Run the daemon once, until MpsError or cancellation."""
        self.starts += 1
        if self._program.flags is None:
            await self._watch()
        daemon = Daemon(
            [self._program.path, *(self._program.flags or ())],
            self._uuid,
            self._folders,
            self._control,
            grace=self._timing.grace,
        )
        try:
            self.before_start()
            await daemon.start()
            await self._until_ended(daemon)
        except MpsError as error:
            self._fail(error)  # before the stop, which may take a while
            await to_its_end(daemon.stop())
            raise
        except asyncio.CancelledError:
            try:
                await to_its_end(daemon.stop())
            finally:  # the stop may have been cancelled as well
                daemon.end_servers()
            raise

    async def _until_ended(self, daemon: Daemon) -> None:
        ended = asyncio.create_task(daemon.ended())
        watching = asyncio.create_task(self._watch())
        try:
            await asyncio.wait({ended, watching}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({ended}, timeout=NEWS_SECONDS)
            if ended.done():
                raise MpsError(ended.result())
            watching.result()
        finally:
            for task in (ended, watching):
                task.cancel()
            await asyncio.gather(ended, watching, return_exceptions=True)

    async def _watch(self) -> None:
        """Look at it again and again. Raises ControlError when it does not respond.

        A daemon that reads from another client runs, and is never ended: any pod with its pipes can
        be that client, and the end of the daemon is the end of the pods beside it. Nor is one that
        nothing is known about, because the control program does not run.
        """
        ours = self._program.flags is not None
        starts, seconds = ours, self._timing.start if ours else self._timing.patience
        while True:
            try:
                await self._respond(seconds, starts=starts)
            except (BusyError, ProgramError) as error:
                self._fail(error)
            else:
                self._enter(MpsDaemonPhase.SERVING, "")
                if ours and not starts:
                    trim_logs(self._folders.log)
            starts, seconds = False, self._timing.patience
            await asyncio.sleep(self._timing.check)

    async def _respond(self, seconds: float, *, starts: bool = False) -> None:
        """Wait for an answer, for which several attempts may be needed beside other clients.

        Args:
            seconds: in which one attempt must be answered. Time in which this process stood still
                does not count: it shows nothing about the daemon.
            starts: a daemon that is not there yet is waited for.

        Raises:
            BusyError: one attempt at least met another client: the daemon runs.
            ProgramError: in one attempt at least the control program did not run.
            ControlError: no attempt had an answer.
        """
        spared: BusyError | ProgramError | None = None
        while True:
            allowed = min(max(seconds, self._timing.poll), self._timing.answer)
            begin = time.monotonic()
            try:
                await self._control.send(HEALTH_COMMAND, seconds=allowed)
            except ControlError as error:
                seconds -= min(time.monotonic() - begin, allowed)
                absent = isinstance(error, NoDaemonError)
                spared = error if isinstance(error, BusyError | ProgramError) else spared
                if (absent and not starts) or round(seconds, 3) <= 0:
                    raise (spared if spared and not absent else error) from None
                await asyncio.sleep(self._timing.poll)
                seconds -= self._timing.poll
            else:
                return

    def _fail(self, error: MpsError) -> None:
        self._enter(MpsDaemonPhase.FAILED, f"its MPS daemon fails: {error}")

    def _enter(self, phase: MpsDaemonPhase, why: str) -> None:
        before, self.phase = self.phase, phase
        self.why = why
        if before is not phase:
            self.on_change(before, phase)
