"""A process that has loaded the stand-in library: calls go in, values come out."""

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("nvml_worker.py")
ANSWER_SECONDS = 60.0
MIB = 1 << 20

Handle = dict[str, int]


class NvmlFailure(Exception):  # noqa: N818 - it is a reply, not a fault of the test
    """The library answered with an error; `name` is the class pynvml raised."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


class NvmlProcess:
    """One worker with its own machine and state file; `close` ends it."""

    def __init__(self, *, library: Path, machine: Path, state: Path) -> None:
        self.machine = machine
        self.state = state
        environment = os.environ | {
            "LD_LIBRARY_PATH": str(library),
            "GPUSHARE_MOCK_NVML_MACHINE": str(machine),
            "GPUSHARE_MOCK_NVML_STATE": str(state),
        }
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=environment,
        )

    def send(self, function: str, *arguments: Any) -> None:
        """Start a call; `receive` has its outcome."""
        assert self._process.stdin is not None
        call = {"function": function, "arguments": arguments}
        self._process.stdin.write(json.dumps(call).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """Return the reply to the oldest call that has none yet; raise NvmlFailure for an error."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_SECONDS)
        assert ready, f"no answer in {ANSWER_SECONDS} s"
        line = self._process.stdout.readline()
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
        """Return the handles of all cards, by index."""
        count = self.call("nvmlDeviceGetCount")
        return [self.call("nvmlDeviceGetHandleByIndex", index) for index in range(count)]

    def append(self, *lines: str) -> None:
        """Add lines to the state file, as an operator does with `echo >>`."""
        with self.state.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def close(self) -> str:
        """End the worker and return what it wrote to stderr."""
        try:
            _, errors = self._process.communicate(timeout=ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            _, errors = self._process.communicate()
        return errors.decode()
