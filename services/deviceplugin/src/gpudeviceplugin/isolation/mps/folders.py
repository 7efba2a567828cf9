"""Directories of MPS daemons on the host, and their permissions.

``<root>`` and ``<root>/<uuid>`` are 0755: a daemon starts its servers as the client's user, and
both they and the clients must get through. ``pipe`` is 0755 as well, for root owns it: clients of
any user connect to the sockets in it, whose own modes the daemon opens, but no user can replace the
sockets of others. ``log`` is 0750, since it names the processes of all tenants. ``<root>/shm`` is
1777 like any /dev/shm; it leads to a volume where that bounds its size.

A pipe directory stays the same inode for ever: containers have it mounted.
"""

import errno
import fcntl
import os
import shutil
import socket
from pathlib import Path
from typing import Final, NamedTuple

from gpudeviceplugin.isolation.mps.errors import FolderError

SOCKETS: Final = ("control", "control_privileged")
LOCK: Final = "control_lock"
CUDA_FILES: Final = "cuda.shm."
"""Segments of daemons and clients."""
LONGEST_SOCKET: Final = 107
"""Maximum bytes of the path of a unix socket on Linux."""
LOG_BYTES: Final = 4 * 1024 * 1024
"""A log larger than this is emptied: under /run it would eat the node's memory."""
_OPEN: Final = 0o755
_PRIVATE: Final = 0o750
_STICKY: Final = 0o1777
_BLOCK: Final = 512
_NOBODY: Final = frozenset({errno.ECONNREFUSED, errno.ENOENT, errno.ENOTSOCK})


class Folders(NamedTuple):
    """The directories of one daemon."""

    pipe: Path
    log: Path


def lay_out(root: Path, volume: str = "") -> None:
    """Make what all daemons share.

    Args:
        root: of all daemons.
        volume: path on the host of the memory that is shared; empty: a directory of ``root``.

    Raises:
        FolderError: it cannot be made.
    """
    _make(root, _OPEN)
    if volume:
        _link(root / "shm", volume)
    else:
        _make(root / "shm", _STICKY)


def _link(path: Path, target: str) -> None:
    """Lead to ``target``, which changes with every pod of the plugin while ``path`` stays."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        fresh = path.with_name("shm.new")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target)
        fresh.replace(path)
    except OSError as error:
        raise FolderError(f"cannot make {path} lead to {target}: {error}") from error


def open_to_all(shm: Path) -> None:
    """Let every user make files there, and remove only their own. Raises FolderError."""
    _make(shm, _STICKY)


def sweep(shm: Path) -> None:
    """Remove what pods left in the shared memory, but for CUDA's own; only while no pod uses it."""
    for left in shm.iterdir():
        if left.name.startswith(CUDA_FILES):
            continue
        try:
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            else:
                left.unlink()
        except OSError:  # it went by itself, or is being written to: the next sweep finds it
            continue


def prepare(folders: Folders) -> None:
    """Make the directories of one daemon.

    Raises:
        FolderError: they cannot be made, or the sockets' paths would be too long.
    """
    longest = max(len(os.fsencode(folders.pipe / name)) for name in SOCKETS)
    if longest > LONGEST_SOCKET:
        raise FolderError(
            f"{folders.pipe} is too long for sockets: {longest} of {LONGEST_SOCKET} bytes"
        )
    _make(folders.pipe.parent, _OPEN)
    _make(folders.pipe, _OPEN)
    _make(folders.log, _PRIVATE)


def _make(folder: Path, mode: int) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(mode)  # mkdir's own mode is cut by the umask
    except OSError as error:
        raise FolderError(f"cannot make {folder}: {error.strerror}") from error


def held(pipe: Path) -> bool:
    """Whether a running daemon uses these pipes: a process listens, or holds the lock.

    Process ids do not help: the daemon may be in another process namespace.
    """
    return any(_listens(pipe / name) for name in SOCKETS) or _locked(pipe / LOCK)


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.settimeout(0)
        try:
            probe.connect(str(path))
        except OSError as error:
            return error.errno not in _NOBODY  # EAGAIN is one that listens but hangs
    return True


def _locked(path: Path) -> bool:
    try:
        with path.open("r+b") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def clear(pipe: Path) -> None:
    """Remove the files of a dead daemon, if no process holds its pipes. Raises FolderError."""
    try:
        for left in pipe.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            else:
                left.unlink()
    except OSError as error:
        raise FolderError(f"cannot clear {pipe}: {error}") from error


def trim_logs(log: Path) -> None:
    """Empty logs that have grown large; every look at a daemon adds some lines."""
    for file in log.glob("*.log"):
        try:
            if file.stat().st_blocks * _BLOCK > LOG_BYTES:
                os.truncate(file, 0)
        except OSError:  # gone, or not ours: no reason to give the daemon up
            continue
