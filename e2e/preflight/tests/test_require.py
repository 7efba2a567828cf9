"""Before a cluster is made, root raises what is too low; others get the command to type."""

from dataclasses import replace
from pathlib import Path

import pytest

from host.errors import SetupError
from host.testing.fakeprograms import FakePrograms
from host.testing.fixtures import programs
from preflight import __main__ as command
from preflight import readings
from preflight.require import require
from preflight.tests.test_checks import ENOUGH

__all__ = ["programs"]
LOW = replace(ENOUGH, inotify_instances=128, instances_used=100)
SYSCTL = "sysctl -w fs.inotify.max_user_instances=1024"


@pytest.fixture
def low(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "read", lambda: LOW)


def as_user(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    monkeypatch.setattr("os.geteuid", lambda: uid)


@pytest.mark.usefixtures("low")
def test_root_raises_a_parameter_and_names_it(
    programs: FakePrograms, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_user(monkeypatch, 0)
    programs.add("env", 'shift; exec "$@"')
    programs.add("sysctl", "exit 0")
    require()
    assert SYSCTL in programs.calls()
    said = capsys.readouterr().err
    assert "raised fs.inotify.max_user_instances from 128 to 1,024, until the next boot" in said


@pytest.mark.usefixtures("low", "programs")
def test_a_user_without_rights_is_stopped_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster is begun that would fail half an hour later."""
    as_user(monkeypatch, 1000)
    with pytest.raises(SetupError, match=r"sudo sysctl fs\.inotify\.max_user_instances=1024"):
        require()


@pytest.mark.usefixtures("low")
def test_a_parameter_that_root_cannot_raise_stops_the_run_too(
    programs: FakePrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container /proc/sys may be read-only."""
    as_user(monkeypatch, 0)
    programs.add("env", 'shift; exec "$@"')
    programs.add("sysctl", "echo 'Read-only file system' >&2; exit 1")
    with pytest.raises(SetupError, match="inotify instances: 128, needed"):
        require()


def test_memory_that_lacks_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "read", lambda: replace(ENOUGH, memory_available=0))
    with pytest.raises(SetupError, match=r"free memory: 0\.0 GiB, needed 2\.2 GiB; type: "):
        require()


def test_a_machine_that_has_all_is_not_touched(
    programs: FakePrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "read", lambda: ENOUGH)
    require()
    assert programs.calls() == []


@pytest.mark.parametrize(("machine", "status"), [(ENOUGH, 0), (LOW, 1)])
def test_the_table_is_shown_at_any_time(
    machine: object,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It changes nothing; its status tells a script whether something is missing."""
    monkeypatch.setattr(readings, "read", lambda: machine)
    assert command.main(["--nodes", "3"]) == status
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["CHECK", "HAS", "NEEDS", "OUTCOME"]
    assert printed[1].startswith("inotify instances")
    assert any("-> sudo sysctl" in line for line in printed) is bool(status)


def test_a_fix_that_is_not_possible_has_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(readings, "read", lambda: replace(ENOUGH, open_files=1024))
    assert command.main(["--fix"]) == 1
    assert "preflight: this machine lacks what 3 more nodes" in capsys.readouterr().err


def test_this_machine_can_be_read(programs: FakePrograms, tmp_path: Path) -> None:
    """The readings are those of the kernel; the clusters those of the engine that answers."""
    inspected = (
        '[{"Created": "2026-01-01T00:00:00.1Z", "State": {"Running": true},'
        ' "Config": {"Labels": {"io.x-k8s.kind.cluster": "demo"}}}]'
    )
    programs.add("docker", f"case \"$1\" in ps) echo abc ;; inspect) echo '{inspected}' ;; esac")
    machine = readings.read()
    assert machine.inotify_instances == int(
        Path("/proc/sys/fs/inotify/max_user_instances").read_text()
    )
    assert machine.memory_available > 0
    assert [(each.name, each.nodes, each.running) for each in machine.clusters] == [("demo", 1, 1)]
    assert machine.clusters[0].age_hours > 24
