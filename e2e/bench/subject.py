"""The extender that is measured: ours, started here, or any other that answers at a URL."""

import http.client
import json
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench import inpod
from environments.controlplane import ControlPlane
from environments.imagepython import EXTENDER, ImagePython
from environments.processes import ChildProcess, free_port
from host.waiting import until

PREFIX = "/gpushare-scheduler"
COMMAND = Path(__file__).parents[2] / ".venv" / "bin" / "gpushare-extender"
READY_SECONDS = 120


class Subject:
    """An extender at ``url`` (with its prefix).

    Attributes:
        name: in the report, and of its pictures.
        ready_seconds: from start to ready; None where it was not started here.
    """

    def __init__(self, name: str, url: str, process: ChildProcess | None = None) -> None:
        self.name = name
        self.url = url
        self.process = process
        self.ready_seconds: float | None = None
        self._plane: ControlPlane | None = None

    @classmethod
    def ours(
        cls, plane: ControlPlane, flags: Sequence[str] = (), *, port: int | None = None
    ) -> "Subject":
        """Start this repository's extender with what its image has, and wait until it is ready."""
        port = port or free_port()
        python = _python(plane.folder)
        command = [*python.command, "--port", str(port), "--host", "127.0.0.1", *flags]
        environ = {**python.environ, **inpod.environ(plane), "LOG_LEVEL": "warn"}
        argv = inpod.argv(plane, command)
        begin = time.monotonic()
        process = plane.start_program(f"extender-{port}", argv, **environ)
        subject = cls("gpushare", f"http://127.0.0.1:{port}{PREFIX}", process)
        root = ExtenderConnection(f"http://127.0.0.1:{port}")
        until("the extender is ready", lambda: root.ready(process), seconds=READY_SECONDS)
        subject.ready_seconds = time.monotonic() - begin
        subject._plane = plane
        return subject

    @classmethod
    def other(cls, url: str) -> "Subject":
        """One that somebody else starts against the same API server; waits until it answers."""
        connection = ExtenderConnection(url)
        parts = urlsplit(url)
        until(f"{url} answers", lambda: connection.answers("/version"), seconds=READY_SECONDS)
        return cls(parts.netloc.replace(":", "-").replace(".", "-"), url.rstrip("/"))

    def stop(self) -> None:
        """End it, where it was started here."""
        if self.process is not None:
            self.process.stop()

    def pids(self) -> dict[str, int]:
        """Processes whose CPU is worth knowing, by name, as far as they were started here."""
        if self.process is None or self._plane is None:
            return {}
        return {**self._plane.pids(), "extender": self.process.pid}

    def writes_per_bind(self) -> float | None:
        """Bindings sent for each pod that was bound, by its own count."""
        if self.process is None:
            return None
        figures = ExtenderConnection(self.url.removesuffix(PREFIX)).text("/metrics")
        found = {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in figures.splitlines())
            if name.startswith("gpushare_extender_bind")
        }
        bound = found['gpushare_extender_binds_total{outcome="bound"}']
        return found["gpushare_extender_bind_writes_total"] / bound

    def resident_mib(self) -> float | None:
        """Memory of the process now; None where it was not started here."""
        if self.process is None:
            return None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024


class ExtenderConnection:
    """One kept connection, as kube-scheduler has; the least that a client can cost."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._path = parts.path.rstrip("/")
        self._http = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)

    def post(self, verb: str, body: bytes) -> tuple[float, Any]:
        """Seconds and decoded answer of one call."""
        begin = time.perf_counter()
        self._http.request("POST", f"{self._path}/{verb}", body, _JSON)
        content = self._http.getresponse().read()
        return time.perf_counter() - begin, json.loads(content)

    def text(self, path: str) -> str:
        """Body of a GET."""
        self._http.request("GET", path)
        return self._http.getresponse().read().decode()

    def answers(self, path: str) -> bool:
        """Whether anything but a refused connection comes back."""
        try:
            self._http.request("GET", path)
            self._http.getresponse().read()
        except (OSError, http.client.HTTPException):
            self._http.close()
            return False
        return True

    def ready(self, process: ChildProcess) -> bool:
        """Whether ``/readyz`` returns 200."""
        process.demand_alive()
        try:
            self._http.request("GET", "/readyz")
            answer = self._http.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            self._http.close()
            return False
        return answer.status == 200


@lru_cache
def _python(folder: Path) -> ImagePython:
    """The Python of all extenders of a control plane, which has this folder."""
    return ImagePython(EXTENDER, folder / "python")


_JSON = {"Content-Type": "application/json"}
