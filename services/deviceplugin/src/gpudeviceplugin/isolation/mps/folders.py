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
import secrets
import socket
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

from gpudeviceplugin.isolation.mps.errors import FolderError
from gpudeviceplugin.sockets import LONGEST_SOCKET, connect_error

SOCKETS: Final = ("control", "control_privileged")
LOCK: Final = "control_lock"
CUDA_FILES: Final = "cuda.shm."
"""Segments of daemons and clients."""
SWEEP_ENTRIES: Final = 100_000
"""Maximum entries that are removed at once: the names of directories are kept in memory."""
LOG_BYTES: Final = 4 * 1024 * 1024
"""A log larger than this is emptied: under /run it would eat the node's memory."""
_OPEN: Final = 0o755
_PRIVATE: Final = 0o750
_STICKY: Final = 0o1777
_BLOCK: Final = 512
_NOBODY: Final = frozenset({errno.ECONNREFUSED, errno.ENOENT, errno.ENOTSOCK})
_NO_LOCK: Final = frozenset({errno.ENOENT, errno.ELOOP, errno.ENXIO})
"""A missing file, a link, and a socket."""


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
            _empty(path)
            path.rmdir()
        fresh = path.with_name("shm.new")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target)
        fresh.replace(path)
    except OSError as error:
        raise FolderError(f"cannot make {path} lead to {target}: {error}") from error


def open_to_all(shm: Path) -> None:
    """Let every user make files there, and remove only their own. Raises FolderError."""
    _make(shm, _STICKY)


def sweep(shm: Path, stopped: Callable[[], bool]) -> None:
    """Remove what pods left in the shared memory, but for CUDA's own; only while no pod uses it.

    At most ``SWEEP_ENTRIES`` entries: the next sweep goes on. Raises OSError.

    Args:
        shm: the directory.
        stopped: is called before each entry; true ends the sweep.
    """
    changes = 0
    with _opened(shm) as top, closing(_removals(top, kept=CUDA_FILES)) as removals:
        for changed in removals:
            changes += changed
            if changes >= SWEEP_ENTRIES or stopped():
                return


def _empty(folder: Path, most: float = inf) -> None:
    """Remove all that is in a directory, or this number of entries.

    Raises OSError where something stays.
    """
    with _opened(folder) as top:
        for count, _ in enumerate(_removals(top), start=1):
            if count > most:
                raise OSError(f"more than {most} files, which are removed step by step")
    for left in folder.iterdir():
        left.unlink()  # raises the reason


def _removals(top: int, kept: str | tuple[str, ...] = ()) -> Generator[bool, None, None]:
    """Remove the entries of a directory; each step yields whether one was removed or moved.

    Tenants choose how deep their directories are: those inside of others are moved to the top and
    removed from there, which takes neither recursion nor long paths. No link is followed.
    """
    moved: list[str] = []
    with os.scandir(top) as entries:
        for entry in entries:
            if not entry.name.startswith(kept):
                yield from _removal(top, entry.name, moved)
            while moved:
                yield from _removal(top, moved.pop(), moved)


def _removal(top: int, name: str, moved: list[str]) -> Iterator[bool]:
    """Remove one entry; ``moved`` gets the directories from inside it, now at the top."""
    if _removed(top, name):
        yield True
        return
    with suppress(OSError), _opened(name, top) as folder, os.scandir(folder) as entries:
        for entry in entries:
            if _removed(folder, entry.name):
                yield True
                continue
            fresh = f".gpushare-{secrets.token_hex(8)}"
            with suppress(OSError):
                os.rename(entry.name, fresh, src_dir_fd=folder, dst_dir_fd=top)
                moved.append(fresh)
            yield bool(moved) and moved[-1] == fresh
    yield _removed(top, name)


def _removed(folder: int, name: str) -> bool:
    """Remove a file or an empty directory; false where it stays."""
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        try:
            os.rmdir(name, dir_fd=folder)
        except OSError:
            return False
    except OSError:  # it went by itself, or is not ours to remove
        return False
    return True


@contextmanager
def _opened(path: Path | str, parent: int | None = None) -> Iterator[int]:
    """A directory, which is no link."""
    folder = os.open(path, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        yield folder
    finally:
        os.close(folder)


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
    error = connect_error(path, socket.SOCK_SEQPACKET)
    return error is None or error.errno not in _NOBODY  # EAGAIN is one that listens but hangs


def _locked(path: Path) -> bool:
    """Whether a process has the write lock of POSIX, as NVIDIA's daemon does.

    Other locks are no daemon's: tenants can take them, for whom the file is read-only. Neither are
    pipes and links, with which root in a container could make this wait or look elsewhere.
    """
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        return error.errno not in _NO_LOCK
    try:
        fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return stat.S_ISREG(os.fstat(lock).st_mode)
    finally:
        os.close(lock)
    return False


def clear(pipe: Path) -> None:
    """Remove the files of a dead daemon, if no process holds its pipes. Raises FolderError.

    Root in a container with writable pipes chooses how many there are.
    """
    try:
        _empty(pipe, SWEEP_ENTRIES)
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
