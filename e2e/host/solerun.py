"""One run at a time of what uses clusters of fixed names, by whatever checkout it is started.

The lock is a file of the cache folder. It is free again when the process that holds it ends, in
whatever way, and so has every process to which that passed its descriptor. Processes that a holder
starts are part of its run.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from host import cachedir
from host.errors import SetupError
from host.progress import say

WAIT_SECONDS = 2 * 3600.0
_POLL_SECONDS = 1.0


@contextmanager
def sole_run(name: str, *, wait_s: float = WAIT_SECONDS) -> Iterator[tuple[int, ...]]:
    """Hold the lock of this name; another run that holds it is named and waited for.

    Yields the file descriptor of the lock, for ``pass_fds`` of a process that may outlive this one;
    none within a run that has the lock.

    Args:
        name: of what only one run may use, such as ``cases``.
        wait_s: how long to wait for the other run.

    Raises:
        SetupError: the other run did not end in time.
    """
    variable = f"GPUSHARE_{name.upper().replace('-', '_')}_RUN"
    if variable in os.environ:
        yield ()
        return
    with (cachedir.root() / f".{name}.run").open("a+") as file:
        _acquire(file, name, wait_s)
        file.truncate(0)
        file.write(f"process {os.getpid()} in {Path.cwd()}, since {time.strftime('%H:%M')}")
        file.flush()
        os.environ[variable] = str(os.getpid())
        try:
            yield (file.fileno(),)
        finally:
            del os.environ[variable]


def _acquire(file: IO[str], name: str, wait_s: float) -> None:
    end = time.monotonic() + wait_s
    told = False
    while not _free(file):
        file.seek(0)
        holder = file.read() or "another process"
        if not told:
            say(f"{name}: {holder} uses its clusters; this run waits for its end (Ctrl-C gives up)")
            told = True
        if time.monotonic() >= end:
            raise SetupError(f"{name}: {holder} still uses its clusters after {wait_s:g} s")
        time.sleep(_POLL_SECONDS)


def _free(file: IO[str]) -> bool:
    """Take the lock if nobody has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
