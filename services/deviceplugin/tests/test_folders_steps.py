"""Whether a living daemon has a directory of pipes, and which logs are emptied."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from gpudeviceplugin.isolation.mps.errors import FolderError
from gpudeviceplugin.isolation.mps.folders import LOCK, LOG_BYTES, clear, held, trim_logs


@pytest.fixture
def pipe() -> Iterator[Path]:
    """A directory of pipes; its path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="mps") as folder:
        yield Path(folder)


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    """Closes what the test opened."""
    with ExitStack() as stack:
        yield stack


def listener(sockets: ExitStack, path: Path) -> socket.socket:
    """A daemon that takes one waiting connection."""
    made = sockets.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    made.bind(str(path))
    made.listen(0)
    return made


def test_pipes_are_held_while_somebody_listens(pipe: Path, sockets: ExitStack) -> None:
    """Not by an empty directory, and not by the socket of a dead daemon."""
    assert not held(pipe)
    living = listener(sockets, pipe / "control")
    assert held(pipe)
    living.close()
    assert not held(pipe)


def test_a_daemon_that_hangs_holds_its_pipes(pipe: Path, sockets: ExitStack) -> None:
    """A socket that accepts no connection and has a full queue counts as in use."""
    listener(sockets, pipe / "control_privileged")
    while True:
        waiting = sockets.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        waiting.setblocking(False)
        try:
            waiting.connect(str(pipe / "control_privileged"))
        except BlockingIOError:
            break
    assert held(pipe)


LOCKING = """
import fcntl, sys
lock = open(sys.argv[1], sys.argv[2])
getattr(fcntl, sys.argv[3])(lock, getattr(fcntl, sys.argv[4]))
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def locking(path: Path, mode: str, call: str, kind: str) -> Iterator[None]:
    """Another process has a lock on the file; a process gets no answer about locks of its own."""
    words = [sys.executable, "-c", LOCKING, str(path), mode, call, kind]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"locked\n"
        yield
        process.stdin.close()


def test_pipes_are_held_by_who_has_their_lock(pipe: Path) -> None:
    """A daemon that starts has the lock before it has sockets; a file alone is no lock."""
    (pipe / LOCK).touch()
    assert not held(pipe)
    with locking(pipe / LOCK, "r+b", "lockf", "LOCK_EX"):
        assert held(pipe)
    assert not held(pipe)


@pytest.mark.parametrize(
    ("call", "kind"), [("flock", "LOCK_EX"), ("flock", "LOCK_SH"), ("lockf", "LOCK_SH")]
)
def test_no_tenant_holds_the_pipes(pipe: Path, call: str, kind: str) -> None:
    """Its mount is read-only, which leaves it every lock but the one that a daemon has."""
    (pipe / LOCK).touch()
    with locking(pipe / LOCK, "rb", call, kind):
        assert not held(pipe)


@pytest.mark.parametrize("kind", ["pipe", "link", "socket"])
def test_what_is_no_file_is_no_lock(pipe: Path, sockets: ExitStack, kind: str) -> None:
    """Root in a container with writable pipes can put it there.

    The plugin neither waits for it nor looks where it leads.
    """
    if kind == "pipe":
        os.mkfifo(pipe / LOCK)
    elif kind == "link":
        (pipe / "other").touch()
        (pipe / LOCK).symlink_to(pipe / "other")
    else:
        sockets.enter_context(socket.socket(socket.AF_UNIX)).bind(str(pipe / LOCK))
    with ExitStack() as locked:
        if kind == "link":
            locked.enter_context(locking(pipe / "other", "r+b", "lockf", "LOCK_EX"))
        assert not held(pipe)


def test_any_number_of_files_in_the_pipes_is_removed_step_by_step(
    pipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt to start the daemon removes some, and the plugin goes on in between."""
    monkeypatch.setattr("gpudeviceplugin.isolation.mps.folders.SWEEP_ENTRIES", 3)
    for number in range(5):
        (pipe / f"{number}").touch()
    with pytest.raises(FolderError, match="more than 3 files"):
        clear(pipe)
    assert len(list(pipe.iterdir())) < 3
    clear(pipe)
    assert list(pipe.iterdir()) == []


def test_a_log_is_emptied_when_it_is_larger_than_its_limit(tmp_path: Path) -> None:
    """Other files are left alone."""
    sizes = {"control.log": LOG_BYTES + 1, "server.log": LOG_BYTES // 2, "other": LOG_BYTES + 1}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"x" * size)
    trim_logs(tmp_path)
    assert {name: (tmp_path / name).stat().st_size for name in sizes} == sizes | {"control.log": 0}


def test_a_log_with_a_hole_counts_by_the_memory_that_it_takes(tmp_path: Path) -> None:
    """A daemon goes on writing where it was when its log was emptied, and the rest is a hole."""
    log = tmp_path / "control.log"
    with log.open("wb") as file:
        file.seek(LOG_BYTES)
        file.write(b"the last line")
    trim_logs(tmp_path)
    assert log.read_bytes().endswith(b"the last line")
