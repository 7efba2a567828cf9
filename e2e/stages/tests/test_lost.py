"""A run whose terminal or process is lost: its stages clean up, and no other run comes between."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from host.errors import SetupError
from host.solerun import sole_run
from host.waiting import until

E2E = Path(__file__).parents[2]
SECONDS = 120
RUN = """
import sys
from stages import __main__ as stages
from stages.plan import Stage

class Script(Stage):
    def command(self):
        return [sys.executable, "-c", *self.target]

stages.plan = lambda **options: [[[Script("cases", (sys.argv[1],))]]]
sys.exit(stages.main(["test"]))
"""
CLEANS_UP = f"""
import time
end = time.monotonic() + {SECONDS}
try:
    print('started', flush=True)
    while time.monotonic() < end: time.sleep(0.02)
except KeyboardInterrupt:
    print('removes it', flush=True)
    print('cluster removed', flush=True)
"""
OUTLIVES = f"""
import pathlib, time
end = time.monotonic() + {SECONDS}
print('started', flush=True)
while not pathlib.Path('go').exists() and time.monotonic() < end: time.sleep(0.02)
"""

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cache")]


@pytest.fixture(autouse=True)
def _no_run_around_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make test`, which runs these tests, holds a lock of the same name itself."""
    monkeypatch.delenv("GPUSHARE_CASES_RUN", raising=False)


def run(folder: Path, stage: str, *before: str, output: int) -> "subprocess.Popen[bytes]":
    """A run with one stage, that has started."""
    process = subprocess.Popen(
        [*before, sys.executable, "-c", RUN, stage],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(E2E)},
        stdout=output,
        stderr=subprocess.DEVNULL,
    )
    log = folder / "build/stages/cases.log"
    until("the stage runs", lambda: log.exists() and log.read_text(), seconds=SECONDS)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_told_to_end_has_its_stages_clean_up(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C, `kill` and a closed terminal end it alike."""
    with run(tmp_path, CLEANS_UP, output=subprocess.DEVNULL) as process:
        process.send_signal(number)
        assert process.wait(SECONDS) == 130
    assert "cluster removed" in (tmp_path / "build/stages/cases.log").read_text()


def test_stages_clean_up_where_the_terminal_takes_no_more_output(tmp_path: Path) -> None:
    """A write to a terminal that is gone fails, and the log has the rest."""
    ours, terminal = os.openpty()
    try:
        process = run(tmp_path, CLEANS_UP, output=terminal)
    finally:
        os.close(terminal)
        os.close(ours)
    with process:
        process.send_signal(signal.SIGHUP)
        process.wait(SECONDS)
    assert "cluster removed" in (tmp_path / "build/stages/cases.log").read_text()


def test_a_run_that_ignores_the_end_of_its_terminal_goes_on(tmp_path: Path) -> None:
    """As `nohup make test` promises."""
    ignores = ["env", "--ignore-signal=HUP"]
    with run(tmp_path, OUTLIVES, *ignores, output=subprocess.DEVNULL) as process:
        process.send_signal(signal.SIGHUP)
        (tmp_path / "go").touch()
        assert process.wait(SECONDS) == 0


def test_the_lock_of_a_killed_run_is_held_until_its_stages_have_ended(tmp_path: Path) -> None:
    """They still remove the cluster of the cases, which the next run would use."""
    with run(tmp_path, OUTLIVES, output=subprocess.DEVNULL) as process:
        process.kill()
    named = f"process {process.pid} in .*still uses its clusters"
    with pytest.raises(SetupError, match=named), sole_run("cases", wait_s=0):
        pytest.fail("both have it")
    (tmp_path / "go").touch()
    with sole_run("cases", wait_s=SECONDS):
        pass
