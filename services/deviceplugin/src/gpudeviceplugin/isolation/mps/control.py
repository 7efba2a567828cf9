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
from gpudeviceplugin.isolation.mps.errors import ControlError
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


class Control:
    """The control program, for one daemon."""

    def __init__(self, program: str, folders: Folders) -> None:
        self._program = program
        self._env: Mapping[str, str] = environment(folders)

    async def send(self, command: str, *, seconds: float) -> str:
        """The daemon's answer to one command.

        Raises:
            ControlError: there is no daemon, it refuses, or it takes longer than ``seconds``.
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
            raise ControlError(f"cannot run {self._program}: {error.strerror}") from error
        try:
            async with asyncio.timeout(seconds):
                output, _ = await process.communicate(f"{command}\n".encode())
        except TimeoutError as error:
            raise ControlError(f"no response to {command} in {seconds:g} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        text = output.decode(errors="replace").strip()
        if process.returncode:
            raise ControlError(f"{command} failed: {text[-200:] or process.returncode}")
        return text
