"""Child processes of a plan: the same program, started anew or forked, spoken to in lines."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import IO, Any, Final, TextIO

from gpuprobe.names import ENDED

Answer = dict[str, Any]
Serve = Callable[[Iterable[str], TextIO], int]

_BEFORE_KILL_SECONDS: Final = 0.3
"""A command has begun by then, and none that is killed ends so soon."""


class ChildProgram:
    """A child and the two pipes to it."""

    def __init__(self, pid: int, commands: IO[str], replies: IO[str]) -> None:
        self.pid = pid
        self._commands, self._replies = commands, replies

    def ask(self, command: Answer) -> Answer:
        """Its reply to a command."""
        self._tell(command)
        return self.finish()

    def finish(self) -> Answer:
        """Its next reply; an error with the name ``ended`` where it ended instead."""
        line = self._replies.readline()
        if not line:
            return {"error": {"name": ENDED, "code": -1, "call": ""}}
        reply: Answer = json.loads(line)
        return reply

    def kill_during(self, command: Answer) -> None:
        """Begin a command and kill the child in the middle of it; one that ended is left so."""
        self._tell(command)
        time.sleep(_BEFORE_KILL_SECONDS)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)  # what it held is free once it is gone

    def _tell(self, command: Answer) -> None:
        with suppress(BrokenPipeError):  # it has ended, which its reply or its absence says
            self._commands.write(json.dumps(command) + "\n")
            self._commands.flush()

    def end(self) -> None:
        """Close its input, which ends it, and wait for that."""
        with suppress(BrokenPipeError):
            self._commands.close()
        self._replies.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def started() -> ChildProgram:
    """The program started anew, as a second command of the container would be."""
    argv = [sys.executable, "-m", "gpuprobe"]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    found = ChildProgram(child.pid, child.stdin, child.stdout)
    child.returncode = 0  # it is waited for by its id
    return found


def forked(serve: Serve) -> ChildProgram:
    """A fork of this process, which must not have opened a GPU: CUDA does not survive a fork."""
    commands, replies = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(commands[1])
        os.close(replies[0])
        with os.fdopen(commands[0]) as lines, os.fdopen(replies[1], "w") as answers:
            status = serve(lines, answers)
        os._exit(status)
    os.close(commands[0])
    os.close(replies[1])
    return ChildProgram(pid, os.fdopen(commands[1], "w"), os.fdopen(replies[0]))
