"""Stages run in order and beside each other; the first that fails ends the run and is named."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from stages import runner, summary
from stages.plan import IPV6, ROOT, Phase, Stage, plan
from stages.runner import Run, StageResult, not_run


class Python(Stage):
    """A stage that is a Python script instead of a target of make."""

    def command(self) -> list[str]:
        return [sys.executable, "-c", *self.target]


def stage(name: str, script: str = "print('done')") -> Stage:
    return Python(name, (script,))


FAILS = "print('FAILED tests/test_x.py::test_y - assert 1 == 2'); raise SystemExit(3)"
WAITS = """
import time
end = time.monotonic() + 60
while 'nice 0' in open('/proc/self/autogroup').read() and time.monotonic() < end:
    time.sleep(0.01)
"""
ENDLESS = """
import time, sys
try:
    print('endless', flush=True)
    while True: time.sleep(0.05)
except KeyboardInterrupt:
    print('cluster removed')
    sys.exit(2)
"""


def names(run: Run) -> list[str]:
    return [each.name for each in run.results]


@pytest.mark.slow
def test_stages_of_a_lane_run_in_order_and_their_output_is_kept(tmp_path: Path) -> None:
    run = Run(tmp_path / "logs")
    run.run([[[stage("first", "print('a'); print('b')"), stage("second, third")]]])
    assert names(run) == ["first", "second, third"]
    assert (tmp_path / "logs" / "first.log").read_text() == "a\nb\n"
    assert (tmp_path / "logs" / "second-third.log").read_text() == "done\n"
    assert run.failures == []


@pytest.mark.slow
def test_the_first_failure_ends_the_run(tmp_path: Path) -> None:
    """What runs beside it is interrupted, so that it cleans up; what comes later is not started."""
    waits_for_endless = f"""
import pathlib, time
log = pathlib.Path({str(tmp_path)!r}, 'endless.log')
end = time.monotonic() + 60
while not (log.exists() and 'endless' in log.read_text()) and time.monotonic() < end:
    time.sleep(0.02)
{FAILS}
"""
    phases: list[Phase] = [
        [[stage("endless", ENDLESS), stage("after")], [stage("fails", waits_for_endless)]],
        [[stage("last")]],
    ]

    run = Run(tmp_path)
    run.run(phases)
    outcomes = {each.name: summary.outcome(each) for each in run.results}
    assert outcomes == {"fails": "FAILED", "endless": "interrupted"}
    assert "cluster removed" in (tmp_path / "endless.log").read_text()
    assert not_run(phases, run.results) == ["after", "last"]
    assert [each.name for each in run.failures] == ["fails"]


@pytest.mark.slow
def test_all_stages_run_where_that_is_wanted(tmp_path: Path) -> None:
    run = Run(tmp_path, keep_going=True)
    run.run([[[stage("fails", FAILS), stage("next")]], [[stage("last")]]])
    assert names(run) == ["fails", "next", "last"]
    assert [each.name for each in run.failures] == ["fails"]


def result(name: str, status: int = 0, **other: Any) -> StageResult:
    return StageResult(name, seconds=185.4, busy=1.26, status=status, **other)


def test_the_table_names_every_stage_and_what_did_not_run() -> None:
    """Names are aligned; times are minutes and seconds."""
    results = [
        result("lint"),
        result("cases on 1.20", 2),
        result("unit", 2, interrupted=True),
    ]
    assert summary.table(results, ["cases on demand"]).splitlines() == [
        "STAGE                TIME  BUSY CORES  OUTCOME",
        "lint               3m 05s         1.3  passed",
        "cases on 1.20      3m 05s         1.3  FAILED",
        "unit               3m 05s         1.3  interrupted",
        "cases on demand         -           -  not run",
    ]


def test_the_reason_is_what_pytest_names() -> None:
    """Without a summary of pytest it is the end of the output, without what make adds."""
    failed = "FAILED e2e/cases/test_x.py::test_y - AssertionError: no"
    assert summary.reason_lines(["x", failed, "1 failed in 3s"]) == [failed]
    assert summary.reason_lines(["a", "", "it broke", "make: *** [lint] Error 1"]) == [
        "a",
        "it broke",
    ]
    text = summary.reasons([result("unit", 2, lines=("x", failed))], Path("logs"))
    assert text == f"unit failed (exit status 2); output: logs/unit.log\n  {failed}"


def test_job_slots_stay_with_the_make_that_has_them() -> None:
    """Variables of the command line go on to the stages."""
    given = {"MAKEFLAGS": " -j4 --jobserver-auth=3,4 -- KUBERNETES=1.20"}
    assert runner.environment(given)["MAKEFLAGS"].split() == ["--", "KUBERNETES=1.20"]
    assert runner.environment({})["PYTHONUNBUFFERED"] == "1"


@pytest.mark.parametrize("assignment", ["ARGS=", "ARGS:="])
def test_arguments_for_the_cases_on_the_newest_reach_no_other_stage(assignment: str) -> None:
    """Make passes variables on in two ways: as its flags, and by `export` in the Makefile."""
    quoted = rf"{assignment}-k\ \"a\ or\ b\"\ $$$$x\y"
    given = {"MAKEFLAGS": f" -- {quoted} KUBERNETES=1.20", "ARGS": '-k "a or b" $x', "CASES": "e2e"}
    found = runner.environment(given)
    assert found["MAKEFLAGS"].split() == ["--", "KUBERNETES=1.20"]
    assert "ARGS" not in found
    assert found["CASES"] == "e2e"


def test_busy_time_counts_all_but_idle_and_waiting(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 100 100 9999 9999 50 50 0 0 0\ncpu0 1 1 1 1 1 1 1\n")
    assert runner.busy_seconds(stat) == pytest.approx(4.0)


def test_cases_on_demand_are_in_the_long_plan_only() -> None:
    """Every stage has a name of its own, and the cluster's name reaches the cases."""

    def flat(phases: list[Phase]) -> list[Stage]:
        return [each for phase in phases for lane in phase for each in lane]

    short = flat(plan(cluster="mine", ondemand=False))
    long = flat(plan(cluster="mine", ondemand=True))
    ondemand = {
        "cases on demand",
        "cases with IPv6 alone",
        "a machine in QEMU",
        "unit tests on arm64",
    }
    assert {each.name for each in long} - {each.name for each in short} == ondemand
    assert len({each.name for each in long}) == len(long)
    assert "CLUSTER=mine" in next(e.target for e in short if e.name == "cases on the newest")
    assert next(e.target for e in long if e.name == "a machine in QEMU")[0] == "machine"
    ipv6 = next(e.target for e in long if e.name == "cases with IPv6 alone")
    assert "GPUSHARE_IP_FAMILY=ipv6" in ipv6
    assert all((ROOT / path).exists() for path in IPV6)


def test_a_stage_that_was_interrupted_interrupts_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its status is not 0, but the stages beside it still remove their clusters."""
    run = Run(tmp_path)
    stops: list[str] = []
    monkeypatch.setattr(run, "_stop", lambda: stops.append("stop"))

    def interrupted(stage: Stage) -> StageResult:
        return StageResult(stage.name, 1.0, 1.0, 2, interrupted=True)

    monkeypatch.setattr(run, "_stage", interrupted)
    run.run([[[stage("removes its cluster")]]])
    assert stops == []


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="sessions are not scheduled")
def test_a_stage_that_gives_way_does_so_as_a_session(tmp_path: Path) -> None:
    """A nice value alone does not count beside the processes of other sessions."""
    shows = "print(open('/proc/self/autogroup').read())"
    run = Run(tmp_path)
    run.run([[[Python("first", (WAITS + shows,), nice=True), stage("second", shows)]]])
    assert "nice 10" in (tmp_path / "first.log").read_text()
    assert "nice 0" in (tmp_path / "second.log").read_text()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise a priority")
@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="sessions are not scheduled")
def test_a_stage_gives_way_until_the_lanes_beside_it_have_ended(tmp_path: Path) -> None:
    """Beside other work of the machine it would hardly get a turn."""
    last = f"""
import os, time
os.nice(10)
{WAITS}
print('gave way', flush=True)
end = time.monotonic() + 60
while time.monotonic() < end and (
    os.getpriority(os.PRIO_PROCESS, 0) or 'nice 0' not in open('/proc/self/autogroup').read()
):
    time.sleep(0.01)
print(os.getpriority(os.PRIO_PROCESS, 0), open('/proc/self/autogroup').read())
"""
    beside = f"""
import pathlib, time
log = pathlib.Path({str(tmp_path)!r}, 'last.log')
end = time.monotonic() + 60
while not (log.exists() and 'gave way' in log.read_text()) and time.monotonic() < end:
    time.sleep(0.02)
"""
    run = Run(tmp_path)
    run.run([[[stage("beside", beside)], [Python("last", (last,), nice=True)]]])
    assert names(run) == ["beside", "last"]
    gave, then = (tmp_path / "last.log").read_text().split("\n")[:2]
    assert (gave, then.split()[0], then.split()[-1]) == ("gave way", "0", "0")


def test_a_kernel_that_schedules_processes_alone_is_no_error(tmp_path: Path) -> None:
    runner.give_way(1, processes=tmp_path)
    assert list(tmp_path.iterdir()) == []
