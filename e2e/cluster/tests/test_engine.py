"""An engine that answers is left alone; where none can be set up the error states what to do."""

import os
from pathlib import Path

import pytest

from cluster import engine
from cluster.__main__ import main
from host.errors import SetupError
from host.testing.fakeprograms import FakePrograms

pytestmark = pytest.mark.slow

STATUS = "Name:\tpytest\nCapPrm:\t000001ffffffffff\nCapEff:\t{mask}\n"


@pytest.mark.parametrize(
    ("mask", "lacking"), [("000001ffffffffff", False), ("000001fffeffffff", True)]
)
def test_the_missing_capability_is_read_from_the_effective_mask(
    mask: str, *, lacking: bool
) -> None:
    """Bit 24 of CapEff decides, whatever the other masks say."""
    assert engine.lacks_capability(STATUS.format(mask=mask)) is lacking


def test_a_pid_file_is_stale_when_its_process_is_gone_or_another(tmp_path: Path) -> None:
    """Only a live process of the right name keeps its file."""
    proc, pid_file = tmp_path / "proc", tmp_path / "docker.pid"
    assert not engine.stale(pid_file, "dockerd", proc)
    pid_file.write_text("42\n")
    assert engine.stale(pid_file, "dockerd", proc)
    (proc / "42").mkdir(parents=True)
    (proc / "42/comm").write_text("bash\n")
    assert engine.stale(pid_file, "dockerd", proc)
    (proc / "42/comm").write_text("dockerd\n")
    assert not engine.stale(pid_file, "dockerd", proc)


@pytest.fixture
def daemon(tmp_path: Path) -> tuple[Path, Path]:
    """The file with the number of a daemon that runs, and the processes there are."""
    pid_file, proc = tmp_path / "docker.pid", tmp_path / "proc"
    pid_file.write_text("42")
    (proc / "42").mkdir(parents=True)
    (proc / "42/comm").write_text("dockerd\n")
    return pid_file, proc


def test_a_daemon_that_is_ending_is_waited_for(
    programs: FakePrograms, daemon: tuple[Path, Path]
) -> None:
    """A second one would not start beside it; one that is needed then can."""
    _, proc = daemon
    programs.add("docker", f"echo bash > {proc}/42/comm; exit 1")
    assert not engine.settled(*daemon)


def test_a_daemon_that_is_starting_is_not_started_again(
    programs: FakePrograms, daemon: tuple[Path, Path]
) -> None:
    _, proc = daemon
    programs.add("docker", f"test -e {proc}/asked && exit 0; true > {proc}/asked; exit 1")
    assert engine.settled(*daemon)


def test_a_daemon_that_neither_answers_nor_ends_is_named(
    programs: FakePrograms,
    daemon: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "_CHANGE_TIMEOUT_S", 0.1)
    programs.add("docker", "exit 1")
    with pytest.raises(SetupError, match=r"dockerd runs \(pid in .*docker\.pid\), but"):
        engine.settled(*daemon)


def test_what_the_caller_left_open_is_not_given_to_the_daemon() -> None:
    """A lock that a wrapper holds must end with the wrapper, not with the engine."""
    kept, given = os.pipe()
    try:
        os.set_inheritable(given, True)
        found = engine.inherited_descriptors()
        assert given in found
        assert not {0, 1, 2, kept}.intersection(found)
    finally:
        os.close(kept)
        os.close(given)


def test_an_engine_that_answers_is_used_as_it_is(programs: FakePrograms) -> None:
    """With a working `docker info` nothing is installed, although nothing could be."""
    programs.add("docker", "exit 0")
    engine.ensure()


def test_without_docker_and_apt_the_error_names_what_to_install(programs: FakePrograms) -> None:
    """On a system without apt-get the user is instructed to install Docker."""
    programs.add("docker", "exit 1")
    with pytest.raises(SetupError, match=r"install Docker \(package docker.io"):
        engine.ensure()


@pytest.mark.usefixtures("no_root")
def test_without_root_the_error_names_root_and_sudo(programs: FakePrograms) -> None:
    """apt-get alone is not enough: neither root nor sudo without a password is here."""
    programs.add("apt-get", "exit 0")
    programs.add("sudo", "exit 1")
    with pytest.raises(SetupError, match="by root or with passwordless sudo"):
        engine.ensure()


def test_a_remote_engine_is_not_replaced_by_a_local_one(
    programs: FakePrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the address of DOCKER_HOST."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.9:2375")
    with pytest.raises(SetupError, match=r"DOCKER_HOST=tcp://10\.0\.0\.9:2375"):
        engine.ensure()


def test_the_command_line_prints_the_sentence_and_exits_1(
    programs: FakePrograms, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error goes to stderr without a traceback and leaves standard output empty."""
    assert main(["engine"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("cluster: error: no Docker engine answers")
    assert len(err.splitlines()) == 1
