"""A stage's time and outcome are noted, whatever the command does, and shown in a table."""

import sys
from pathlib import Path

import pytest

from stages import __main__ as stages


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


@pytest.mark.parametrize(("status", "outcome"), [(0, "passed"), (3, "failed")])
def test_the_status_is_the_commands(tmp_path: Path, status: int, outcome: str) -> None:
    """Make stops at a stage that fails, and the table states which it was."""
    file = tmp_path / "build/stages"
    assert stages.main(["run", str(file), "unit", *python(f"raise SystemExit({status})")]) == status
    name, seconds, noted = file.read_text().rstrip("\n").split("\t")
    assert (name, noted) == ("unit", outcome)
    assert int(seconds) >= 0


def test_the_table_has_a_line_for_each_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names are aligned, and times are in minutes and seconds."""
    file = tmp_path / "stages"
    file.write_text("lint\t7\tpassed\ncases on Kubernetes 1.20\t185\tfailed\n")
    assert stages.main(["table", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "STAGE                         TIME  OUTCOME",
        "lint                        0m 07s  passed",
        "cases on Kubernetes 1.20    3m 05s  failed",
    ]


def test_what_is_no_command_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, and the usage on standard error."""
    usage_error = 2
    assert stages.main(["run", "file", "name"]) == usage_error
    assert "stages/__main__.py run" in capsys.readouterr().err
