"""Runs the tests of one folder in a container of another architecture, and counts them.

The container has no network, sees the checkout read-only, and gives way to everything else.
"""

import contextlib
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from emulated.inputs import ROOT, Inputs
from host.errors import SetupError

MARK: Final = "not gpu and not e2e and not budget and not slow"
_SOURCES: Final = (
    *("libs/gpucore/src", "libs/gpukube/src", "libs/gpuprobe/src"),
    *("services/extender/src", "services/deviceplugin/src", "services/inspect/src"),
)
_TEST_TIMEOUT_S: Final = 1800
_RESULTS: Final = "results.xml"


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What became of the tests of a folder.

    Attributes:
        failed: failures and errors.
        seconds: from the start of the container to its end.
    """

    folder: str
    passed: int
    failed: int
    skipped: int
    seconds: float

    def line(self) -> str:
        """A row of the report."""
        numbers = f"{self.passed:6} {self.failed:6} {self.skipped:7} {self.seconds:7.0f}"
        return f"{self.folder:34} {numbers}"


HEADER: Final = f"{'folder':34} passed failed skipped seconds"


def run(inputs: Inputs, folder: str, *, output: Path, mark: str, more: Sequence[str]) -> Counts:
    """Run the tests of a folder; pytest's own output goes to `<output>/pytest.log`.

    Args:
        inputs: of the architecture.
        folder: below the root of the checkout.
        output: gets the results and the log.
        mark: which tests, as pytest's -m takes it.
        more: arguments of pytest.

    Raises:
        SetupError: no test ran.
    """
    output.mkdir(parents=True, exist_ok=True)
    (output / _RESULTS).unlink(missing_ok=True)
    log = output / "pytest.log"
    begin = time.monotonic()
    with log.open("w") as file:
        words = command(inputs, folder, output=output, mark=mark, more=more)
        subprocess.run(words, check=False, stdout=file, stderr=file)
    seconds = time.monotonic() - begin
    with contextlib.suppress(FileNotFoundError):
        return counted(folder, (output / _RESULTS).read_text(), seconds)
    raise SetupError(f"no test of {folder} ran: see {log}")


def command(
    inputs: Inputs, folder: str, *, output: Path, mark: str, more: Sequence[str]
) -> list[str]:
    """The container: its mounts, its environment, and pytest in it."""
    mounts = {ROOT: "/src:ro", inputs.packages: "/packages:ro", output.resolve(): "/output"}
    mounts |= {path: f"/cache/gpushare/{name}" for name, path in inputs.libraries.items()}
    environment = {
        "PYTHONPATH": ":".join(["/packages", *(f"/src/{path}" for path in _SOURCES)]),
        "PYTHONPYCACHEPREFIX": "/output/bytecode",
        "HYPOTHESIS_STORAGE_DIRECTORY": "/tmp/hypothesis",
        "XDG_CACHE_HOME": "/cache",
    }
    return [
        *("nice", "-n", "15", "docker", "run", "--rm", "--network=none", "--workdir=/src"),
        *(f"--volume={path}:{target}" for path, target in mounts.items()),
        *(f"--env={name}={value}" for name, value in environment.items()),
        *(inputs.image, "nice", "-n", "15", "python3", "-m", "pytest", "-q"),
        *("-p", "no:cacheprovider", "-o", f"timeout={_TEST_TIMEOUT_S}", "-m", mark),
        *(f"--junit-xml=/output/{_RESULTS}", *more, folder),
    ]


def counted(folder: str, results: str, seconds: float) -> Counts:
    """The counts of a file of results as pytest writes it."""
    suites = ET.fromstring(results).iter("testsuite")
    numbers = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for suite in suites:
        for name in numbers:
            numbers[name] += int(suite.get(name, "0"))
    failed = numbers["failures"] + numbers["errors"]
    passed = numbers["tests"] - failed - numbers["skipped"]
    return Counts(
        folder=folder, passed=passed, failed=failed, skipped=numbers["skipped"], seconds=seconds
    )
