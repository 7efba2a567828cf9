"""CUDA programs as the suite runs them: started with a grant, given commands, ended.

The same client speaks to a child process and, through ``kubectl exec``, to one in a pod: both are
a command whose input and output are lines. Every answer has a deadline.
"""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from hardware.grants import PIPES

HOME: Final = Path(__file__).parents[1]
PROGRAM: Final = (sys.executable, "-m", "gpuprobe")
NO_PIPES: Final = "/nonexistent/mps"
"""CUDA looks for a daemon in /tmp/nvidia-mps unless another place is configured."""
ANSWER_SECONDS: Final = 120.0
END_SECONDS: Final = 10.0

Answer = dict[str, Any]


class CudaRefusedError(Exception):
    """CUDA refused.

    Attributes:
        name: such as ``CUDA_ERROR_OUT_OF_MEMORY``.
    """

    def __init__(self, name: str, words: str) -> None:
        super().__init__(words)
        self.name = name


class LostError(Exception):
    """The program ended or did not answer in time."""


class Client:
    """One CUDA program; use as a context, which ends it.

    Args:
        argv: the command.
        env: its whole environment.

    Attributes:
        gpu: what it reported of its GPU when it started.
        pod: whose share it has, empty for none.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._child = subprocess.Popen(
            list(argv),
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.gpu: Answer = {}
        self.pod = ""

    @classmethod
    def local(cls, grant: Mapping[str, str]) -> Self:
        """A child process with the variables of a grant and nothing else of MPS or CUDA.

        Without pipes in its grant it finds no daemon, though the machine may have one of its own.
        """
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "NVIDIA_"))}
        own = {"PYTHONPATH": str(HOME), PIPES: NO_PIPES}
        return cls(PROGRAM, inherited | own | dict(grant))

    def __enter__(self) -> Self:
        try:
            self.gpu = self.finish()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """Of the command."""
        return self._child.pid

    def ask(self, do: str, *, within: float = ANSWER_SECONDS, **arguments: Any) -> Answer:
        """Run one command to its end.

        Raises:
            CudaRefusedError: CUDA refused.
            LostError: no answer in time.
        """
        self.begin(do, **arguments)
        return self.finish(within=within)

    def begin(self, do: str, **arguments: Any) -> None:
        """Send a command without waiting for its answer."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._child.stdin.flush()
        except OSError as error:
            raise LostError(f"client {self.pid} has ended: {error}") from error

    def finish(self, *, within: float = ANSWER_SECONDS) -> Answer:
        """The answer to the oldest command that has none yet."""
        return reply(self._reply(within))

    def _reply(self, within: float) -> Answer:
        """The same with refusals as they come."""
        try:
            line = self._lines.get(timeout=within)
        except queue.Empty:
            raise LostError(f"client {self.pid} reported nothing for {within:g} s") from None
        if not line:
            raise LostError(f"client {self.pid} has ended")
        found: Answer = json.loads(line)
        return found

    def run(self, steps: Sequence[Mapping[str, Any]]) -> list[Answer]:
        """Run the steps of a check; its replies as a container would report them.

        Raises:
            LostError: no answer in time.
        """
        replies = []
        for step in steps:
            self.begin(**{"do": "", **step})
            replies.append(self._reply(ANSWER_SECONDS))
        return replies

    def kill(self) -> None:
        """End it at once, in the middle of whatever it does."""
        self._child.kill()
        self._child.wait(END_SECONDS)

    def end(self) -> None:
        """Close its input, which ends it; insist if it does not go."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with suppress(OSError):  # it has ended already and left something unread
            self._child.stdin.close()
        try:
            self._child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(END_SECONDS)
        self._child.stdout.close()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._lines.put(line)
        self._lines.put("")


def reply(answer: Answer) -> Answer:
    """What a command returned; its refusals become CudaRefusedError."""
    if "error" in answer:
        error = answer["error"]
        raise CudaRefusedError(error["name"], f"{error['call']}: {error['name']} ({error['code']})")
    found: Answer = answer["ok"]
    return found


def together(clients: Sequence[Client], do: str, **arguments: Any) -> list[Answer]:
    """The same command to all at once; their answers in the same order."""
    for client in clients:
        client.begin(do, **arguments)
    return [client.finish() for client in clients]
