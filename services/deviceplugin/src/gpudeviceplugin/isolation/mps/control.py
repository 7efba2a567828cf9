"""Sends commands to an MPS control daemon, on the stdin of the control program.

NVIDIA documents no other way (manual, "nvidia-cuda-mps-control", interactive commands); the
protocol on the sockets is private. Every command has a deadline, since a daemon that hangs leaves
the control program waiting for ever.
"""

import asyncio
import os
from collections.abc import Mapping
from typing import Final

from gpudeviceplugin.cancelling import spawn
from gpudeviceplugin.isolation.mps.errors import (
    BusyError,
    ControlError,
    NoDaemonError,
    ProgramError,
)
from gpudeviceplugin.isolation.mps.folders import Folders

_OURS: Final = ("CUDA_MPS_", "CUDA_VISIBLE_DEVICES")


def environment(folders: Folders, uuid: str = "") -> dict[str, str]:
    """The environment of a daemon of one GPU, or of a command to it.

    GPUs are named by uuid: the daemon numbers what it sees anew (manual, appendix "Environment
    Variables", CUDA_VISIBLE_DEVICES).
    """
    inherited = {key: text for key, text in os.environ.items() if not key.startswith(_OURS)}
    place = {
        "CUDA_MPS_PIPE_DIRECTORY": str(folders.pipe),
        "CUDA_MPS_LOG_DIRECTORY": str(folders.log),
    }
    return inherited | place | ({"CUDA_VISIBLE_DEVICES": uuid} if uuid else {})


NO_DAEMON: Final = "Cannot find MPS control daemon process"
"""What the program prints when it was not started as a daemon: it takes no notice of options that
it does not know, and of those beside them, and looks for a daemon to send commands to."""
_BUSY: Final = "Cannot send command to MPS control daemon process"
"""What it prints, if anything, while the daemon reads from another client."""
_NOT_RUN: Final = 126
"""Exit statuses from here on are those of the dynamic loader and of a shell without the program."""


class Control:
    """The control program, for one daemon."""

    def __init__(self, program: str, folders: Folders) -> None:
        self._program = program
        self._env: Mapping[str, str] = environment(folders)

    async def send(self, command: str, *, seconds: float) -> str:
        """The daemon's answer to one command.

        Raises:
            NoDaemonError: there is no daemon.
            BusyError: it reads from another client; NVIDIA's daemon reads from one at a time.
            ProgramError: the program did not run, as on a node without free process ids or memory.
            ControlError: it refuses, or takes longer than ``seconds``.
        """
        try:
            process = await spawn(
                self._program,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=self._env,
            )
        except OSError as error:
            raise ProgramError(f"cannot run {self._program}: {error.strerror}") from error
        try:
            async with asyncio.timeout(seconds):
                output, _ = await process.communicate(f"{command}\n".encode())
        except TimeoutError as error:
            raise ControlError(f"no response to {command} in {round(seconds, 1):g} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        text = output.decode(errors="replace").strip()
        if status := process.returncode:
            raise _kind(status, text)(f"{command} failed: {text[-200:] or status}")
        return text


def _kind(status: int, text: str) -> type[ControlError]:
    """Of an error with this exit status, whose text the program printed."""
    if status < 0 or status >= _NOT_RUN:
        return ProgramError
    if NO_DAEMON in text:
        return NoDaemonError
    return BusyError if _BUSY in text or not text else ControlError
