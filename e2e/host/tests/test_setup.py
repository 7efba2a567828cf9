"""`make setup` on a network that cuts transfers, with programs in place of pip and uv."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

MAKEFILE = Path(__file__).parents[3] / "Makefile"
PROGRAM = """#!/bin/sh
echo "$(basename "$0") $*" >> calls
left=$(cat "failures-$(basename "$0")" 2>/dev/null || echo 0)
[ "$left" -gt 0 ] || exit 0
echo $((left - 1)) > "failures-$(basename "$0")"
exit 1
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder that has what `make setup` reads, and a pip and a uv that install nothing."""
    for name in ("requirements/dev.txt", "requirements/uv.txt", ".venv/bin/python", ".venv/bin/uv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PROGRAM)
        path.chmod(0o755)
    return tmp_path


def setup(checkout: Path, program: str, failures: int) -> tuple[int, list[str]]:
    """Exit status of `make setup` and the calls of a program that fails so often at first."""
    (checkout / f"failures-{program}").write_text(str(failures))
    done = subprocess.run(
        ["make", "-f", MAKEFILE, "setup", "MEMBERS=", "VENV=.venv"],
        cwd=checkout,
        env={key: value for key, value in os.environ.items() if not key.startswith("MAKE")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    calls = (checkout / "calls").read_text().splitlines()
    return done.returncode, [call for call in calls if call.startswith(program)]


@pytest.mark.parametrize("program", ["python", "uv"])
def test_an_installation_is_tried_again_when_a_transfer_was_cut(
    checkout: Path, program: str
) -> None:
    status, calls = setup(checkout, program, failures=3)

    installations = [call for call in calls if "requirements" in call]
    assert (status, len(installations)) == (0, 4)
    assert (checkout / ".venv/.ready").exists()


@pytest.mark.parametrize("program", ["python", "uv"])
def test_an_installation_that_always_fails_ends_the_setup(checkout: Path, program: str) -> None:
    status, calls = setup(checkout, program, failures=99)

    assert (status, len(calls)) == (2, 4)
    assert not (checkout / ".venv/.ready").exists()
