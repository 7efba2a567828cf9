"""The command as one executable file."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from host import architecture
from host.errors import SetupError
from images import wheels
from images.base import Base
from release import singlefile

ENTRY = "def from_one_file():\n    import needed\n    print('runs with', needed.WORD)\n"
COMMAND = {f"gpuinspect/{name}": "" for name in ("__init__.py", "commands/__init__.py")} | {
    "gpuinspect/commands/main.py": ENTRY
}


def wheel(folder: Path, name: str, files: Mapping[str, str]) -> Path:
    """A wheel with these files."""
    path = folder / f"{name}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder below which each version of Python has its wheels, with one native module."""
    for python in singlefile.PYTHONS:
        folder = tmp_path / "fetched" / python
        folder.mkdir(parents=True)
        native = f"needed/fast.cpython-{python.replace('.', '')}.so"
        wheel(folder, "needed", {"needed/__init__.py": "WORD = 'it'\n", native: python})

    def fetch(_: Path, base: Base) -> Path:
        return tmp_path / "fetched" / base.python

    monkeypatch.setattr(wheels, "fetch", fetch)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1790000000")
    return tmp_path / "fetched"


def built(folder: Path) -> Path:
    """The file for this kind of processor."""
    command = wheel(folder, "command", COMMAND)
    return singlefile.write(command, folder / "none", folder, architecture.ALL[0])


@pytest.mark.slow
@pytest.mark.usefixtures("fetched")
def test_the_file_runs_by_itself(tmp_path: Path) -> None:
    """Unpacked to a folder of the user, with the native modules of every version of Python."""
    own = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [built(tmp_path)], env=own, capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("runs with it\n", "")
    unpacked = {path.name for path in (tmp_path / "home" / ".shiv").rglob("*.so")}
    assert unpacked == {"fast.cpython-311.so", "fast.cpython-312.so", "fast.cpython-313.so"}


@pytest.mark.slow
@pytest.mark.usefixtures("fetched")
def test_equal_wheels_give_equal_files(tmp_path: Path) -> None:
    """Whoever builds a release again gets the same checksums."""
    first = built(tmp_path).read_bytes()
    assert built(tmp_path).read_bytes() == first
    assert os.access(tmp_path / "gpushare-linux-amd64", os.X_OK)


def test_wheels_that_differ_where_they_must_not_are_refused(tmp_path: Path, fetched: Path) -> None:
    """A module that depends on the version of Python would be right for one of them only."""
    wheel(fetched / "3.12", "needed", {"needed/__init__.py": "WORD = 'another'\n"})
    with pytest.raises(SetupError, match="needed/__init__"):
        built(tmp_path)
