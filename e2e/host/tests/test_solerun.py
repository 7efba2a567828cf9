"""What has clusters of fixed names runs once at a time, and a second run knows of the first."""

import subprocess
import sys
from pathlib import Path

import pytest

from host.errors import SetupError
from host.solerun import sole_run

E2E = Path(__file__).parents[2]
HOLD = """
from host.solerun import sole_run
with sole_run('cases'):
    print('has it', flush=True)
    input()
"""
TAKE = "from host.solerun import sole_run\nwith sole_run('cases', wait_s=0.1): print('ran')"


@pytest.fixture(autouse=True)
def no_run_around_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make test`, which runs these tests, holds a lock of the same name itself."""
    monkeypatch.delenv("GPUSHARE_CASES_RUN", raising=False)


def other_process(script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=E2E,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
def test_a_second_run_waits_names_the_first_and_gives_up_in_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The lock is free once the first has ended, however it ended."""
    with other_process(HOLD) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "has it\n"
        named = rf"process {first.pid} in .*still uses its clusters"
        with pytest.raises(SetupError, match=named), sole_run("cases", wait_s=0.1):
            pytest.fail("both have it")
        assert f"process {first.pid} in {E2E}" in capsys.readouterr().err
        first.kill()
    with sole_run("cases", wait_s=0.1):
        pass


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
def test_what_a_run_starts_is_part_of_it() -> None:
    """`make test` holds the lock for the cases that it starts."""
    with sole_run("cases"):
        with other_process(TAKE) as beside:
            assert beside.communicate(timeout=30)[0] == "ran\n"
        assert beside.returncode == 0


@pytest.mark.usefixtures("cache")
def test_runs_of_different_names_do_not_wait_for_each_other() -> None:
    """A demo is brought up while the cases run."""
    with sole_run("cases"), sole_run("gpushare-demo", wait_s=0):
        pass
