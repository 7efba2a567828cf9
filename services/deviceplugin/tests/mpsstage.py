"""One supervised MPS daemon on stage: the real supervisor over the stand-in control program."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from gpudeviceplugin.isolation.mps.control import Control
from gpudeviceplugin.isolation.mps.folders import Folders, prepare
from gpudeviceplugin.isolation.mps.supervisor import MpsDaemonPhase, Program, Supervisor, Timing

PROGRAM = Path(__file__).parents[3] / "e2e/standins/mps/nvidia-cuda-mps-control"
UUID = "GPU-00000000-0000-0000-0000-000000000000"
SECONDS = 60.0
QUICK = Timing(
    check=0.05, answer=30, start=60, poll=0.01, first_pause=0.01, longest_pause=0.02, grace=30
)
"""Often, but in no hurry: a busy machine may take long to start a program."""
CURT = Timing(check=0.05, answer=30, start=60, first_pause=0.01, longest_pause=0.02, grace=1)
"""For what never answers a stop, and is waited for in vain."""


class MpsStage:
    """A GPU's daemon, its directories, and what its supervisor reported of it."""

    def __init__(self, root: Path, program: Program, timing: Timing) -> None:
        self.folders = Folders(root / UUID / "pipe", root / UUID / "log")
        self.control = Control(str(PROGRAM), self.folders)
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
    def pid(self) -> int:
        """Process of the daemon, from its own file."""
        return int((self.folders.pipe / "nvidia-cuda-mps-control.pid").read_text())

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
    env = os.environ | {
        "CUDA_MPS_PIPE_DIRECTORY": str(stage.folders.pipe),
        "CUDA_MPS_LOG_DIRECTORY": str(stage.folders.log),
    }
    process = await asyncio.create_subprocess_exec(str(PROGRAM), "-f", env=env)
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
        while not (stage.folders.pipe / "nvidia-cuda-mps-control.pid").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await stage.control.send("get_server_list", seconds=SECONDS)
