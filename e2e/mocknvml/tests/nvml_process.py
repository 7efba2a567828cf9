"""A process that has loaded the stand-in library: calls go in, values come out."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

WORKER = Path(__file__).with_name("nvml_worker.py")
ANSWER_SECONDS = 60.0
MIB = 1 << 20

Handle = dict[str, int]


class NvmlFailure(Exception):  # noqa: N818 - it is a reply, not a fault of the test
    """The library answered with an error; `name` is the class pynvml raised."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


class NvmlStarter:
    """The process that starts workers, for all tests of a run; use as a context.

    Workers are forks of it, so that pynvml is imported once. It has not loaded the library.
    """

    def __init__(self, library: Path) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(WORKER)],
                stdin=theirs.fileno(),
                env=os.environ | {"LD_LIBRARY_PATH": str(library)},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._orders.close()
        self._process.wait(ANSWER_SECONDS)

    def start(self, environment: dict[str, str], streams: tuple[int, int, int]) -> int:
        """Start a worker with more variables on these descriptors; returns its process id."""
        socket.send_fds(self._orders, [json.dumps(environment).encode()], streams)
        assert select.select([self._orders], [], [], ANSWER_SECONDS)[0], "no worker was started"
        return int(self._orders.recv(100))


class NvmlProcess:
    """One worker with its own machine and state file; `close` ends it."""

    def __init__(
        self, starter: NvmlStarter, *, machine: Path, state: Path, **variables: str
    ) -> None:
        self.machine = machine
        self.state = state
        environment = {
            "GPUSHARE_MOCK_NVML_MACHINE": str(machine),
            "GPUSHARE_MOCK_NVML_STATE": str(state),
            **variables,
        }
        their_stdin, stdin = os.pipe()
        stdout, their_stdout = os.pipe()
        stderr, their_stderr = os.pipe()
        theirs = (their_stdin, their_stdout, their_stderr)
        self._stdin = os.fdopen(stdin, "wb", buffering=0)
        self._stdout = os.fdopen(stdout, "rb", buffering=0)
        self._stderr = os.fdopen(stderr, "rb", buffering=0)
        self._output = b""
        try:
            self._pid = starter.start(environment, theirs)
        finally:
            for stream in theirs:
                os.close(stream)

    def waits(self) -> int:
        """How often the worker has gone to sleep until something woke it."""
        text = Path(f"/proc/{self._pid}/status").read_text()
        return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    def send(self, function: str, *arguments: Any) -> None:
        """Start a call; `receive` has its outcome."""
        call = {"function": function, "arguments": arguments}
        self._stdin.write(json.dumps(call).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """Return the reply to the oldest call that has none yet; raise NvmlFailure for an error."""
        ready, _, _ = select.select([self._stdout], [], [], ANSWER_SECONDS)
        assert ready, f"no answer in {ANSWER_SECONDS} s"
        line = self._stdout.readline()
        assert line, f"the worker died: {self.close()}"
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise NvmlFailure(reply["error"], reply["text"])
        return reply

    def call(self, function: str, *arguments: Any) -> Any:
        """Return the value of a pynvml function."""
        self.send(function, *arguments)
        return self.receive()["value"]

    def fill(self, function: str, *arguments: Any) -> Any:
        """Return the struct that a pynvml function filled."""
        self.send(function, *arguments)
        return self.receive()["filled"]

    def failure(self, function: str, *arguments: Any) -> str:
        """Return the name of the error that a pynvml function raises."""
        try:
            value = self.call(function, *arguments)
        except NvmlFailure as failure:
            return failure.name
        raise AssertionError(f"{function} answered {value!r} and no error")

    def gpus(self) -> list[Handle]:
        """Return the handles of all GPUs, by index."""
        count = self.call("nvmlDeviceGetCount")
        return [self.call("nvmlDeviceGetHandleByIndex", index) for index in range(count)]

    def append(self, *lines: str) -> None:
        """Add lines to the state file, as an operator does with `echo >>`."""
        with self.state.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def close(self) -> str:
        """End the worker and return what it wrote to stderr; again, the same."""
        if not self._stderr.closed:
            self._stdin.close()
            self._output = self._rest()
            self._stdout.close()
            self._stderr.close()
        return self._output.decode()

    def _rest(self) -> bytes:
        """What comes on stderr until the worker has ended, which it is made to if it does not."""
        output, deadline = b"", time.monotonic() + ANSWER_SECONDS
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            if not select.select([self._stderr], [], [], left)[0]:
                os.kill(self._pid, signal.SIGKILL)
            part = self._stderr.read(65536)
            if not part:
                return output
            output += part
