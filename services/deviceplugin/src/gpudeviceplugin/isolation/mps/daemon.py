"""One MPS control daemon as a child process.

The daemon runs in the foreground (``-f``), so its end is seen at once and a stop is certain: first
the quit command, then SIGTERM, then SIGKILL.
"""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from gpudeviceplugin.cancelling import spawn
from gpudeviceplugin.isolation.mps.control import NO_DAEMON, Control, environment
from gpudeviceplugin.isolation.mps.errors import ControlError, MpsError
from gpudeviceplugin.isolation.mps.folders import Folders, clear, held, prepare
from gpudeviceplugin.isolation.mps.output import DaemonOutput

GRACE_SECONDS: Final = 3.0
"""Timeout in seconds of each of quit, SIGTERM and SIGKILL."""
LOOK_SECONDS: Final = 0.05
"""Seconds between checks of a daemon that is no child process, whose end is no event."""


class Daemon:
    """A daemon that the plugin runs; each start needs a new object.

    Args:
        uuid: the GPU that it serves.
        grace: seconds for each step of a stop.
    """

    def __init__(
        self,
        command: Sequence[str],
        uuid: str,
        folders: Folders,
        control: Control,
        *,
        grace: float = GRACE_SECONDS,
    ) -> None:
        self._command = tuple(command)
        self._uuid = uuid
        self._folders = folders
        self._control = control
        self._grace = grace
        self._process: asyncio.subprocess.Process | None = None
        self._output = DaemonOutput(folders.log)
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take over the directories and start the process; it may not serve yet.

        Raises:
            MpsError: the directories belong to another user, or the program does not exist.
        """
        prepare(self._folders)
        if held(self._folders.pipe):
            await self._stop_leftover_daemon()
        clear(self._folders.pipe)
        try:
            self._process = await spawn(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=environment(self._folders, self._uuid),
                start_new_session=True,
            )
        except OSError as error:
            raise MpsError(f"cannot run {self._command[0]}: {error.strerror}") from error
        self._listening = asyncio.create_task(self._listen(self._process))

    async def _stop_leftover_daemon(self) -> None:
        """Stop the daemon of an earlier plugin, which replies to quit before it exits."""
        with suppress(ControlError):
            await self._control.send("quit", seconds=self._grace)
        end = asyncio.get_running_loop().time() + self._grace
        while held(self._folders.pipe):
            if asyncio.get_running_loop().time() >= end:
                raise MpsError(f"another daemon uses {self._folders.pipe}; end it by hand")
            await asyncio.sleep(LOOK_SECONDS)

    async def ended(self) -> str:
        """Wait for the process to end; returns the reason as text."""
        assert self._process is not None
        status = await self._process.wait()
        if self._listening is not None:
            await asyncio.wait({self._listening}, timeout=self._grace)
        how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
        words = self._output.words
        if NO_DAEMON in words:
            words += f"; this driver's program does not know an option of {' '.join(self._command)}"
        return f"it {how}" + (f": {words}" if words else "")

    async def stop(self) -> None:
        """End it, whatever state it is in; returns when the process is gone."""
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            with suppress(ControlError):
                await self._control.send("quit", seconds=self._grace)
                await self._gone(process)
        for end in (process.terminate, process.kill):
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    end()
                await self._gone(process)
        if self._listening is not None:
            self._listening.cancel()

    def end_servers(self) -> None:
        """End servers that outlived their stopped daemon, and so their clients.

        Not done when a daemon dies by itself: its servers go on with the clients they have.
        """
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _gone(self, process: asyncio.subprocess.Process) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace):
                await process.wait()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Keep its output; a pipe without a reader would block it."""
        assert process.stdout is not None
        while chunk := await process.stdout.read(4096):
            self._output.add(chunk)
