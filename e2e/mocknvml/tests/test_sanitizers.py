"""The library under the compiler's sanitizers: no race, leak or overrun, whatever the file has."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from mocknvml import build

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # a compiler runs in each

COMPILE_SECONDS = 140
RUN_SECONDS = 140
COPIES = 60
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-pthread", "-fno-sanitize-recover=all")


def compile_with(sanitizer: str, folder: Path) -> Path:
    """Return the stress program, built with the library's sources in it."""
    program = folder / f"stress-{sanitizer[:5]}"
    sources = [build.HERE / "tests" / "stress.c", *sorted((build.HERE / "src").glob("*.c"))]
    command = ["gcc", *FLAGS, f"-fsanitize={sanitizer}", *map(str, sources), "-o", str(program)]
    subprocess.run(command, check=True, timeout=COMPILE_SECONDS)
    return program


def run(program: Path, *, machine: Path, state: Path) -> subprocess.CompletedProcess[str]:
    """Run the stress program to its end."""
    environment = os.environ | {
        "GPUSHARE_MOCK_NVML_MACHINE": str(machine),
        "GPUSHARE_MOCK_NVML_STATE": str(state),
    }
    return subprocess.run(
        [program], env=environment, check=False, capture_output=True, text=True, timeout=RUN_SECONDS
    )


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stress program with the address, leak and undefined-behaviour sanitizers."""
    return compile_with("address,undefined", tmp_path_factory.mktemp("checked"))


def test_threads_and_edits_leak_nothing(checked: Path, tmp_path: Path) -> None:
    """Many threads and a file that keeps changing leave no leak, overrun or undefined step."""
    outcome = run(checked, machine=build.machine("dgx1-volta"), state=tmp_path / "state")
    assert outcome.returncode == 0, outcome.stderr
    assert "Sanitizer" not in outcome.stderr


def test_threads_do_not_race(tmp_path: Path) -> None:
    """The same use shows the thread sanitizer no race."""
    racing = compile_with("thread", tmp_path)
    outcome = run(racing, machine=build.machine("dgx1-volta"), state=tmp_path / "state")
    assert outcome.returncode == 0, outcome.stderr
    assert "Sanitizer" not in outcome.stderr


def test_damaged_machine_files_are_refused_not_crashed(checked: Path, tmp_path: Path) -> None:
    """Descriptions with random damage either load or make nvmlInit say what is wrong (exit 2)."""
    dice = random.Random(7)
    whole = build.machine("a100-mig-2x40").read_bytes()
    machine = tmp_path / "machine"
    codes = set()
    for copy in range(COPIES):
        damaged = bytearray(whole)
        for _ in range(1 + copy % 4):
            damaged[dice.randrange(len(damaged))] = dice.choice(b"\n\0 =[]-#9z\xff:.")
        machine.write_bytes(damaged)
        outcome = run(checked, machine=machine, state=tmp_path / f"state-{copy}")
        assert outcome.returncode in {0, 2}, outcome.stderr
        assert outcome.returncode == 0 or outcome.stderr.startswith(f"mocknvml: {machine}:")
        codes.add(outcome.returncode)
    assert codes == {0, 2}
