"""One supervised MPS daemon on stage: the real supervisor over a control program.

By default that is the stand-in. Tests that no fault of the stand-in is needed for run NVIDIA's too.
"""

import asyncio
import fcntl
import os
import shutil
import signal
import struct
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from gpudeviceplugin.isolation.mps.control import Control
from gpudeviceplugin.isolation.mps.errors import ControlError
from gpudeviceplugin.isolation.mps.folders import Folders, prepare
from gpudeviceplugin.isolation.mps.phase import MpsDaemonPhase
from gpudeviceplugin.isolation.mps.supervisor import Program, Supervisor, Timing

PROGRAM = Path(__file__).parents[3] / "e2e/standins/mps/nvidia-cuda-mps-control"
UUID = "GPU-00000000-0000-0000-0000-000000000000"
SECONDS = 60.0
QUICK = Timing(
    check=0.05, answer=30, start=60, poll=0.01, first_pause=0.01, longest_pause=0.02, grace=30
)
"""Often, but in no hurry: a busy machine may take long to start a program."""
CURT = Timing(check=0.05, answer=30, start=60, first_pause=0.01, longest_pause=0.02, grace=1)
"""For what never answers a stop, and is waited for in vain."""


_LOCK = struct.Struct("hhqqi4x")
"""The members of the C library's ``struct flock``."""


def holder(pipe: Path) -> int:
    """The process that holds the lock of a pipe directory; 0 where none does."""
    question = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with (pipe / "control_lock").open("r+b") as lock:
            kind, *_, pid = _LOCK.unpack(fcntl.fcntl(lock, fcntl.F_GETLK, question))
    except FileNotFoundError:
        return 0
    return 0 if kind == fcntl.F_UNLCK else int(pid)


class MpsStage:
    """A GPU's daemon, its directories, and what its supervisor reported of it."""

    def __init__(self, root: Path, program: Program, timing: Timing) -> None:
        self.folders = Folders(root / UUID / "pipe", root / UUID / "log")
        self.program = program.path
        self.control = Control(program.path, self.folders)
        self.supervisor = Supervisor(UUID, program, self.folders, timing)
        self.transitions: list[tuple[MpsDaemonPhase, str]] = []
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.supervisor.on_change = self._heard

    def _heard(self, _before: MpsDaemonPhase, after: MpsDaemonPhase) -> None:
        self.transitions.append((after, self.supervisor.why))
        self._news.set()

    def run(self) -> None:
        """Start the supervisor."""
        self._task = asyncio.create_task(self.supervisor.run())

    def cancel(self) -> None:
        """Cancel the task of the supervisor."""
        assert self._task is not None
        self._task.cancel()

    async def end(self) -> None:
        """Cancel it, and wait for all that it still does."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None

    async def until(self, what: Callable[[], object]) -> None:
        """Until the supervisor has reported something that makes ``what`` true."""
        async with asyncio.timeout(SECONDS):
            while not what():
                self._news.clear()
                await self._news.wait()

    async def serving(self, times: int = 1) -> None:
        """Until it has come to serve so many times."""
        await self.until(
            lambda: [phase for phase, _ in self.transitions].count(MpsDaemonPhase.SERVING) >= times
        )

    async def failure(self) -> str:
        """Until it fails; returns why."""
        await self.until(
            lambda: any(phase is MpsDaemonPhase.FAILED for phase, _ in self.transitions)
        )
        return next(why for phase, why in self.transitions if phase is MpsDaemonPhase.FAILED)

    def faults(self, *words: str) -> None:
        """These things go wrong from now on."""
        file = self.folders.pipe.parent / "faults"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(" ".join(words))

    @property
    def environment(self) -> dict[str, str]:
        """For a program that uses the directories."""
        return os.environ | {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.folders.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self.folders.log),
        }

    @property
    def pid(self) -> int:
        """Process of the daemon: the one that holds its lock."""
        return holder(self.folders.pipe)

    def kill(self) -> None:
        """End the daemon as the kernel would."""
        os.kill(self.pid, signal.SIGKILL)


@asynccontextmanager
async def mps_stage(
    *flags: str, timing: Timing = QUICK, foreign: bool = False, program: str = str(PROGRAM)
) -> AsyncIterator[MpsStage]:
    """A stage with its directories under /tmp, since a socket's path must be short."""
    root = Path(tempfile.mkdtemp(prefix="mps"))
    made = MpsStage(root, Program(program, None if foreign else ("-f", *flags)), timing)
    try:
        yield made
    finally:
        await made.end()
        shutil.rmtree(root)


@asynccontextmanager
async def leftover(stage: MpsStage) -> AsyncIterator[asyncio.subprocess.Process]:
    """A daemon of another program in the same directories."""
    prepare(stage.folders)
    process = await asyncio.create_subprocess_exec(
        stage.program, "-f", env=stage.environment, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        await answers(stage)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def answers(stage: MpsStage) -> None:
    """Until the daemon of the stage's directories answers."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                await stage.control.send("get_server_list", seconds=SECONDS)
            except ControlError:
                await asyncio.sleep(0.01)
            else:
                return
