"""Programs that a test starts and ends itself, each with its log in a file."""

import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import SystemRandom

STOP_SECONDS = 10
_PORTS = range(10_000, 30_000)
_TRIES = 100


class ChildProcess:
    """A running program; ends with :meth:`stop`, by its own process id.

    Args:
        name: of its log file in ``folder``.
        argv: the command line.
        env: the whole environment, or None for this process's own.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        folder: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._start = partial(self._open, list(map(str, argv)), env)
        self._child = self._start()

    @property
    def pid(self) -> int:
        """Of the program."""
        return self._child.pid

    def alive(self) -> bool:
        """Whether it still runs."""
        return self._child.poll() is None

    def revive(self) -> None:
        """Start it again if it has ended, as `kubectl port-forward` does at a lost connection."""
        if not self.alive():
            self._child = self._start()

    def _open(self, argv: list[str], env: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as sink:
            return subprocess.Popen(
                argv, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL, env=env
            )

    def demand_alive(self) -> None:
        """Raise with the end of the log if the program has ended."""
        if not self.alive():
            tail = self.log.read_text(errors="replace")[-3000:]
            raise AssertionError(f"{self.name} ended with {self._child.returncode}:\n{tail}")

    def stop(self) -> int:
        """Ask it to end, insist after ten seconds; its exit code."""
        self._child.terminate()
        try:
            return self._child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            return self._child.wait(STOP_SECONDS)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self._child.kill()
        self._child.wait(STOP_SECONDS)


def free_port() -> int:
    """A TCP port of the loopback that nobody listens on at this moment.

    It is none of those that the kernel gives to whoever connects to somewhere, so that it is still
    free when the program it is for has started; two calls have hardly ever the same answer.

    Raises:
        OSError: none was found.
    """
    for port in SystemRandom().sample(_PORTS, _TRIES):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no free port: tried {_TRIES} of {_PORTS}")
