"""The stand-in behaves as NVIDIA's manual describes, as far as others rely on it."""

import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from mpsstandin.servers import Servers

from host.waiting import until

PROGRAM = Path(__file__).parents[1] / "nvidia-cuda-mps-control"
SECONDS = 60

pytestmark = pytest.mark.slow


class Stand:
    """The directories of one daemon, and the control program on them."""

    def __init__(self, root: Path) -> None:
        self.pipe = root / "pipe"
        self._env = os.environ | {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(root / "log"),
            "CUDA_VISIBLE_DEVICES": "GPU-x",
        }

    def run(self, *flags: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, *flags], env=self._env, input=stdin, capture_output=True, text=True,
            timeout=SECONDS, check=False,
        )  # fmt: skip

    def start(self, *flags: str) -> None:
        """A daemon in the background that answers."""
        assert self.run("-d", *flags).returncode == 0
        until(
            "the daemon answers",
            lambda: not self.run(stdin="get_server_list\n").returncode,
            seconds=SECONDS,
        )

    def ask(self, command: str) -> str:
        """The answer to one command."""
        done = self.run(stdin=f"{command}\n")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def quit(self, *options: str) -> None:
        """Stopped, and gone: it answers before that. Its lock goes with its process."""
        self.ask(" ".join(["quit", *options]))
        until("the daemon has ended", self._unlocked, seconds=SECONDS)

    def _unlocked(self) -> bool:
        with (self.pipe / "control_lock").open("r+") as lock:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
        return True

    def client(self) -> socket.socket:
        """A client of this process's user."""
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        peer.settimeout(SECONDS)
        peer.connect(str(self.pipe / "control"))
        peer.send(b"client")
        return peer


@pytest.fixture
def stand() -> Iterator[Stand]:
    """Directories with a short path, without a daemon again at the end."""
    root = Path(tempfile.mkdtemp(prefix="mps"))
    made = Stand(root)
    yield made
    (root / "faults").unlink(missing_ok=True)
    if made.run(stdin="ps\n").returncode == 0:
        made.quit()
    shutil.rmtree(root)


def test_a_client_is_listed_with_its_server_until_it_ends(stand: Stand) -> None:
    """The server is started for it, and its device is the one the daemon sees."""
    stand.start()
    assert stand.ask("get_server_list") == ""
    with stand.client() as peer:
        word, server = peer.recv(100).decode().split()
        assert word == "server"
        assert stand.ask("get_server_list") == server
        assert stand.ask(f"get_client_list {server}") == str(os.getpid())
        assert stand.ask("get_device_client_list").split() == ["GPU-x", str(os.getpid())]
        assert stand.ask("ps").splitlines()[1].split()[:3] == [str(os.getpid()), "1", server]
    assert stand.ask(f"get_client_list {server}") == ""
    assert stand.ask("get_client_list 1") == "Server 1 not found"


def test_limits_are_kept_and_wrong_ones_refused(stand: Stand) -> None:
    """One daemon keeps what it is given; test_likeness.py compares all answers."""
    stand.start()
    assert stand.ask("get_default_active_thread_percentage") == "100.0"
    assert stand.ask("set_default_active_thread_percentage 20") == "20.0"
    assert stand.ask("set_default_active_thread_percentage 0") == "20.0"
    assert stand.ask("set_default_device_pinned_mem_limit 0 900M") == ""
    assert stand.ask("get_default_device_pinned_mem_limit 0") == "900M"
    assert stand.ask("dance") == 'Unknown command "dance"'


def test_users_take_turns() -> None:
    """Clients of another user wait until the last one has gone, and get a server of their own."""
    servers = Servers(multi_user=False)
    try:
        first = servers.connect(10, 1000)
        assert servers.connect(11, 1000) == first
        assert servers.connect(20, 1001) is None
        assert servers.leave(10)
        assert servers.connect(20, 1001) is None
        assert servers.leave(11)
        second = servers.connect(20, 1001)
        assert servers.pids() == [second]
        assert second != first
    finally:
        servers.end()


def test_in_multi_user_mode_one_server_serves_all() -> None:
    """As the daemon's own user."""
    servers = Servers(multi_user=True)
    try:
        server = servers.connect(10, 1000)
        assert server is not None
        assert servers.connect(20, 1001) == server
        assert Path(f"/proc/{server}").stat().st_uid == os.geteuid()
    finally:
        servers.end()


def test_a_directory_has_one_daemon(stand: Stand) -> None:
    """The second one reports it and ends; after quit the directory is free again."""
    stand.start()
    again = stand.run("-f")
    assert (again.returncode, again.stdout.strip()) == (
        1,
        "An instance of this daemon is already running",
    )
    stand.quit("-t", "1")
    left = ["control", "control_lock", "control_privileged"]
    assert sorted(file.name for file in stand.pipe.iterdir()) == left
    assert stand.run(stdin="ps\n").returncode == 1


def test_an_unknown_fault_is_refused(stand: Stand) -> None:
    """A fault that silently is none would prove nothing."""
    (stand.pipe.parent / "faults").write_text("crush")
    done = stand.run("-f")
    assert done.returncode != 0
    assert "unknown faults: crush" in done.stderr
