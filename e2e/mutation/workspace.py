"""A copy of one package in which mutmut works, laid out so that its tests find the rest.

mutmut copies sources and tests once more, into ``mutants/``. Tests look for files of the
repository relative to themselves, so the copy stands where ``../..`` of a copied test folder is
full of links to what stands there in the repository.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
TIMED_OUT: Final = 124
"""Exit status of a run that was ended, as of timeout(1)."""
_LEFT_OUT: Final = {".git", ".venv", "build"}


@dataclass(frozen=True)
class Package:
    """A package that can be mutated.

    Attributes:
        name: of its import package.
        folder: below the repository's root.
    """

    name: str
    folder: str


PACKAGES: Final = {
    "gpucore": Package("gpucore", "libs/gpucore"),
    "gpukube": Package("gpukube", "libs/gpukube"),
    "gpuprobe": Package("gpuprobe", "libs/gpuprobe"),
    "extender": Package("gpuextender", "services/extender"),
    "deviceplugin": Package("gpudeviceplugin", "services/deviceplugin"),
    "inspect": Package("gpuinspect", "services/inspect"),
}


class Workspace:
    """The folder that mutmut runs in.

    Args:
        folder: an empty one, removed by the caller.
    """

    def __init__(self, folder: Path, package: Package) -> None:
        self._folder = folder
        self._package = package
        self._work = folder / "work"

    def fill(self, modules: Sequence[str], *, tests: Sequence[str], markers: str) -> None:
        """Copy the package, link the rest of the repository, and configure mutmut."""
        home = ROOT / self._package.folder
        _link(ROOT, self._folder)
        self._work.mkdir()
        _link(home.parent, self._work)
        for name in ("src", "tests"):
            shutil.copytree(
                home / name, self._work / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        text = self._configuration(modules, tests, markers)
        (self._work / "pyproject.toml").write_text(text, encoding="utf-8")

    def _configuration(self, modules: Sequence[str], tests: Sequence[str], markers: str) -> str:
        values: dict[str, list[str]] = {
            "source_paths": ["src/"],
            "only_mutate": [f"src/{self._package.name}/{name}.py" for name in modules],
            "also_copy": ["tests"],
            "pytest_add_cli_args_test_selection": [*tests],
            "pytest_add_cli_args": [
                f"--config-file={ROOT / 'pyproject.toml'}",
                "--rootdir=.",
                f"-m={markers}",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:unraisableexception",  # of a test that mutmut or a mutant ended early
            ],
        }
        # Strings of JSON are strings of TOML.
        lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
        return "\n".join(["[tool.mutmut]", *lines, ""])

    def run_mutmut(self, *, jobs: int, timeout_s: float) -> int:
        """Run mutmut, its progress on a terminal, else without its spinner; the exit status.

        It is :data:`TIMED_OUT` where mutmut took longer; whatever it started is ended.
        """
        command = [sys.executable, "-m", "mutmut", "run", f"--max-children={jobs}"]
        output = None if sys.stdout.isatty() else subprocess.PIPE
        status = TIMED_OUT
        printed: bytes | None = None
        with subprocess.Popen(
            command, cwd=self._work, env=_environment(), stdout=output, process_group=0
        ) as process:
            try:
                printed, _ = process.communicate(timeout=timeout_s)
                status = process.returncode
            except subprocess.TimeoutExpired as error:
                printed = error.stdout
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        print(settled((printed or b"").decode(errors="replace")), end="")
        return status

    def results(self) -> str:
        """What mutmut reports of each mutant, a line each."""
        command = [sys.executable, "-m", "mutmut", "results", "--all", "true"]
        return subprocess.run(
            command, cwd=self._work, check=True, capture_output=True, text=True, timeout=120
        ).stdout


def settled(output: str) -> str:
    """What a terminal shows in the end: a carriage return begins the line anew."""
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in output.split("\n"))
    return "\n".join(lines)


def _link(source: Path, target: Path) -> None:
    for entry in source.iterdir():
        if entry.name not in _LEFT_OUT:
            (target / entry.name).symlink_to(entry)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "e2e")}
