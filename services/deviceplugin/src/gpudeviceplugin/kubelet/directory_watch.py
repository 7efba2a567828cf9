"""Notices of changes in a directory by inotify, on the event loop: nothing wakes in between."""

import asyncio
import ctypes
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

_CREATED, _DELETED, _MOVED = 0x100, 0x200, 0xC0
_DIRECTORY_DELETED, _DIRECTORY_MOVED, _ONLY_DIRECTORY = 0x400, 0x800, 0x1000000
_WATCHED: Final = (
    _CREATED | _DELETED | _MOVED | _DIRECTORY_DELETED | _DIRECTORY_MOVED | _ONLY_DIRECTORY
)
_EVENT_BYTES: Final = 16
_BUFFER_BYTES: Final = 1 << 16
SETTLE_SECONDS: Final = 0.05
"""Changes that come together are one notice."""


async def changes(directory: Path) -> AsyncIterator[None]:
    """A notice for each change of the entries of a directory, until the directory is gone.

    Raises:
        OSError: the directory cannot be watched.
    """
    descriptor = _watch(directory)
    loop, changed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, changed.set)
    try:
        there = True
        while there:
            await changed.wait()
            await asyncio.sleep(SETTLE_SECONDS)
            changed.clear()
            there = _read(descriptor)
            yield
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _watch(directory: Path) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        raise _failure(directory)
    if libc.inotify_add_watch(descriptor, os.fsencode(directory), _WATCHED) < 0:
        error = _failure(directory)
        os.close(descriptor)
        raise error
    return descriptor


def _failure(directory: Path) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), str(directory))


def _read(descriptor: int) -> bool:
    """Take all events; False where the directory is not at its path any more."""
    try:
        events = os.read(descriptor, _BUFFER_BYTES)
    except BlockingIOError:
        return True
    place = 0
    while place < len(events):
        mask = int.from_bytes(events[place + 4 : place + 8], sys.byteorder)
        if mask & (_DIRECTORY_DELETED | _DIRECTORY_MOVED):
            return False
        place += _EVENT_BYTES + int.from_bytes(events[place + 12 : place + 16], sys.byteorder)
    return True
