"""The histories of a node on its disk.

The file belongs to root in a directory that only root may write. Links are not followed, and a file
that cannot be read is set aside: it is data of unknown origin, as a reply from the network is.
"""

import os
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import structlog

from gpucore.sizing.history_documents import MOST_BYTES, decode_histories, encode_histories
from gpucore.sizing.usage_history import UsageHistory
from gpucore.wire.errors import WireError

log = structlog.get_logger()

NAME: Final = "usage-history.json"
UNFINISHED: Final = f"{NAME}.unfinished"
UNREADABLE: Final = f"{NAME}.unreadable"
_OPEN: Final = os.O_CLOEXEC | os.O_NOFOLLOW
_PRIVATE: Final = 0o600
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class HistoryFile:
    """One file in a directory of the node. All calls block, and none of them raises.

    Args:
        directory: of the plugin alone.
    """

    def __init__(self, directory: Path, node: str) -> None:
        self._directory, self._node = directory, node
        self._lock = threading.Lock()

    def load(self) -> list[UsageHistory]:
        """The histories that were saved; none where there is no file, or it cannot be read."""
        try:
            with self._opened() as folder:
                return _load(folder)
        except OSError as error:
            log.warning("no usage history", directory=str(self._directory), why=str(error))
            return []

    def save(self, histories: Iterable[UsageHistory]) -> None:
        """Replace the file at once; it stays as it is where that fails."""
        content = encode_histories(self._node, histories)
        try:
            with self._lock, self._opened() as folder:
                _save(folder, content)
        except OSError as error:
            log.warning(
                "the usage history is not saved", directory=str(self._directory), why=str(error)
            )

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """The directory, which is created where it is missing."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | _OPEN)
        try:
            _check(os.fstat(folder))
            yield folder
        finally:
            os.close(folder)


def _check(found: os.stat_result) -> None:
    """Refuse what another user owns or may write.

    Raises:
        PermissionError: somebody else could have written it.
    """
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
        raise PermissionError("another user owns it or may write to it")


def _load(folder: int) -> list[UsageHistory]:
    try:
        return decode_histories(_read(folder))
    except FileNotFoundError:
        return []
    except (OSError, WireError) as error:
        log.warning("the usage history is damaged and was renamed", to=UNREADABLE, why=str(error))
        os.replace(NAME, UNREADABLE, src_dir_fd=folder, dst_dir_fd=folder)
        return []


def _read(folder: int) -> bytes:
    descriptor = os.open(NAME, os.O_RDONLY | os.O_NONBLOCK | _OPEN, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is not a regular file")
        _check(found)
        return file.read(MOST_BYTES + 1)


def _save(folder: int, content: bytes) -> None:
    with suppress(FileNotFoundError):
        os.unlink(UNFINISHED, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN
    descriptor = os.open(UNFINISHED, flags, _PRIVATE, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    os.replace(UNFINISHED, NAME, src_dir_fd=folder, dst_dir_fd=folder)
