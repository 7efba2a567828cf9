"""A Docker engine that answers: the one that runs, or Debian's package started by us.

An engine that already answers is used as it is. One that we start outlives this process, writes
to `dockerd.log` in the cache folder and is never stopped by us. Only Debian and its relatives,
with root or passwordless sudo, are set up; elsewhere the error states what to install.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from cluster import daemonconfig, runcwrapper
from host import apt, cachedir
from host.commands import succeeds
from host.errors import SetupError
from host.privilege import as_root, can_be_root, installed
from host.progress import step
from host.waiting import DeadlineError, until

_CAP_SYS_RESOURCE = 24
_WRAPPER = Path("/usr/local/libexec/gpushare/runc-without-sys-resource")
_DAEMON_CONFIG = Path("/etc/docker/daemon.json")
_PID_FILE = Path("/run/docker.pid")
_PID_FILES = {
    _PID_FILE: "dockerd",
    Path("/run/docker/containerd/containerd.pid"): "containerd",
}
_START_TIMEOUT_S = 60.0
_CHANGE_TIMEOUT_S = 60.0


def ensure() -> None:
    """Return once `docker info` works; install and start the engine where that is possible."""
    if answers():
        return
    _demand_setup_is_possible()
    with cachedir.locked("engine"):
        if not answers():
            _install()
            if not settled():
                _start()


def answers() -> bool:
    """True when a Docker client is here and its daemon replies."""
    return succeeds(["docker", "info"], timeout_s=20)


def lacks_capability(status: str, bit: int = _CAP_SYS_RESOURCE) -> bool:
    """True when the `CapEff` mask in a /proc/<pid>/status text lacks capability number `bit`."""
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return not int(mask, 16) >> bit & 1


def stale(pid_file: Path, program: str, proc: Path = Path("/proc")) -> bool:
    """True when `pid_file` names a process that is gone or is another program by now.

    A daemon refuses to start while the number in its file is in use by anyone, which after a
    restart of the machine is likely and means nothing.
    """
    try:
        pid = pid_file.read_text().strip()
    except OSError:
        return False
    try:
        return (proc / pid / "comm").read_text().strip() != program
    except OSError:
        return True


def settled(pid_file: Path = _PID_FILE, proc: Path = Path("/proc")) -> bool:
    """Wait while a daemon starts or ends; true when it then answers, false when there is none.

    Raises:
        SetupError: it does neither; names it.
    """

    def running() -> bool:
        return pid_file.exists() and not stale(pid_file, "dockerd", proc)

    try:
        until(
            "the engine that runs answers or ends",
            lambda: not running() or answers(),
            seconds=_CHANGE_TIMEOUT_S,
        )
    except DeadlineError as error:
        raise SetupError(
            f"dockerd runs (pid in {pid_file}), but `docker info` has failed for "
            f"{_CHANGE_TIMEOUT_S:g} s: end it, or check that this user may reach the Docker socket"
        ) from error
    return running()


def _demand_setup_is_possible() -> None:
    if "DOCKER_HOST" in os.environ:
        raise SetupError(
            f"no Docker engine answers at DOCKER_HOST={os.environ['DOCKER_HOST']}: start it, or "
            "unset DOCKER_HOST to use a local one"
        )
    if shutil.which("apt-get") is None or not can_be_root():
        raise SetupError(
            "no Docker engine answers `docker info`: install Docker (package docker.io on Debian "
            "and Ubuntu), start it and let this user reach it; it can be set up here only on "
            "Debian or Ubuntu by root or with passwordless sudo"
        )


def _install() -> None:
    if not installed("dockerd"):
        with step("install docker.io"):
            apt.update()
            apt.install("docker.io")
    if not installed("docker"):
        # A package of its own from Debian trixie on.
        apt.install("docker-cli")
    # Requested as root: an ordinary user lacks every capability, which is no proof.
    if lacks_capability(as_root(["cat", "/proc/self/status"], timeout_s=20)):
        _install_wrapper()


def _install_wrapper() -> None:
    if not Path("/usr/bin/python3").exists():
        apt.install("python3-minimal")
    before = _DAEMON_CONFIG.read_text() if _DAEMON_CONFIG.exists() else ""
    after = daemonconfig.with_runtime(before, wrapper=_WRAPPER, source=_DAEMON_CONFIG)
    as_root(["install", "-D", "-m", "0755", runcwrapper.__file__, _WRAPPER], timeout_s=20)
    if after != before:
        as_root(["mkdir", "-p", _DAEMON_CONFIG.parent], timeout_s=20)
        as_root(["tee", _DAEMON_CONFIG], timeout_s=20, stdin=after)


def _start() -> None:
    with step("start the Docker engine"):
        for pid_file, program in _PID_FILES.items():
            if stale(pid_file, program):
                as_root(["rm", "-f", pid_file], timeout_s=20)
        if Path("/run/systemd/system").is_dir():
            as_root(["systemctl", "restart", "docker"], timeout_s=90)
            _wait_for_answer(log="journalctl -u docker")
        else:
            _start_detached(cachedir.root() / "dockerd.log")


def _start_detached(log: Path) -> None:
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    command = [*sudo, "dockerd"]
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    # A session of its own and no Popen: the daemon outlives this process and its terminal.
    daemon = os.posix_spawnp(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in inherited_descriptors()),
        ],
        setsid=True,
    )
    _wait_for_answer(log=str(log), daemon=daemon)


def inherited_descriptors() -> list[int]:
    """What whoever started us has left open: the daemon would keep it, and a lock with it."""
    found = []
    for path in Path("/proc/self/fd").iterdir():
        descriptor = int(path.name)
        with suppress(OSError):  # that of the listing itself is closed by now
            if descriptor > 2 and os.get_inheritable(descriptor):
                found.append(descriptor)
    return found


def _wait_for_answer(*, log: str, daemon: int | None = None) -> None:
    def answering() -> bool:
        if daemon is not None and os.waitpid(daemon, os.WNOHANG) != (0, 0):
            raise SetupError(f"dockerd ended right after its start; its last words are in {log}")
        return answers()

    try:
        until("`docker info` succeeds", answering, seconds=_START_TIMEOUT_S)
    except DeadlineError as error:
        raise SetupError(
            f"`docker info` still fails {_START_TIMEOUT_S:g} s after dockerd was started; read "
            f"{log} and check that this user may reach the Docker socket"
        ) from error
