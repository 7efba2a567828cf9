"""gpustat and nvitop of PyPI list the GPUs of every machine as its file describes them.

They are installed in an environment of their own; where that is impossible the tests are skipped,
but with CI=true they fail.
"""

import configparser
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import offline
from host.testing.obtaining import obtained
from mocknvml import build

pytestmark = [pytest.mark.e2e, pytest.mark.ondemand]

MIB = 1024 * 1024
SECONDS = 120
MACHINES = sorted(path.stem for path in build.MACHINES.glob("*.machine"))
OLD = "t4-2x16"
NVITOP = """
import json, nvitop
print(json.dumps([
    [gpu.index, gpu.uuid(), gpu.name(), gpu.memory_total(), gpu.memory_used(), gpu.fan_speed()]
    for gpu in nvitop.Device.all()
]))
"""


class Described(NamedTuple):
    """A GPU of a machine file."""

    number: int
    uuid: str
    name: str
    memory_mib: int


def described(machine: str) -> list[Described]:
    """The GPUs of a machine file, read without help of the library."""
    text = configparser.ConfigParser(allow_no_value=True, delimiters=("=",), strict=False)
    text.read(build.machine(machine))
    shared = dict(text["gpu *"]) if text.has_section("gpu *") else {}
    found: list[Described] = []
    while text.has_section(f"gpu {len(found)}"):
        own = {**shared, **text[f"gpu {len(found)}"]}
        found.append(Described(len(found), own["uuid"], own["name"], int(own["memory_mib"])))
    return found


def run(program: str, *words: str, machine: str, tmp_path: Path) -> str:
    """What a program prints on a machine."""
    state = tmp_path / "state"
    state.touch()
    env = os.environ | {
        "LD_LIBRARY_PATH": str(build.ensure()),
        "GPUSHARE_MOCK_NVML_MACHINE": str(build.machine(machine)),
        "GPUSHARE_MOCK_NVML_STATE": str(state),
        "TERM": "dumb",
        "COLUMNS": "100",
    }
    folder = obtained(offline.ensure_monitors)
    # By its interpreter: the first line of a script has the path of an environment that moved.
    command: list[str | Path] = [
        folder / "python",
        *([folder / program] if program else []),
        *words,
    ]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr, done.stderr
    return str(done.stdout)


@pytest.mark.parametrize("machine", MACHINES)
def test_gpustat_lists_the_gpus_of_a_machine(machine: str, tmp_path: Path) -> None:
    """By index, with UUID, name, memory and the processes' part of it."""
    listed = json.loads(run("gpustat", "--json", machine=machine, tmp_path=tmp_path))["gpus"]
    keys = ("index", "uuid", "name", "memory.total")
    assert [tuple(each[key] for key in keys) for each in listed] == described(machine)


@pytest.mark.parametrize("machine", [each for each in MACHINES if each != OLD])
def test_nvitop_lists_the_gpus_of_a_machine(machine: str, tmp_path: Path) -> None:
    """Its library does. Left out is a driver so old that nvitop looks for symbols it lacks."""
    listed = json.loads(run("", "-c", NVITOP, machine=machine, tmp_path=tmp_path))
    found = [(index, uuid, name, total // MIB) for index, uuid, name, total, *_ in listed]
    assert found == described(machine)


@pytest.mark.parametrize("machine", [each for each in MACHINES if each != OLD])
def test_nvitop_draws_the_gpus_of_a_machine(machine: str, tmp_path: Path) -> None:
    """One line for each GPU; MIG devices have lines of another form."""
    drawn = run("nvitop", "-1", "--no-unicode", machine=machine, tmp_path=tmp_path)
    indexes = re.findall(r"^\|\s+(\d+)  ", drawn, re.MULTILINE)
    assert indexes == [str(each.number) for each in described(machine)]


def test_the_environment_is_that_of_this_python() -> None:
    """One that another version made would not find its packages."""
    folder = obtained(offline.ensure_monitors)
    version = f"import sys; print(sys.version_info[:2] == {sys.version_info[:2]})"
    done = subprocess.run([folder / "python", "-c", version], capture_output=True, check=True)
    assert done.stdout == b"True\n"
