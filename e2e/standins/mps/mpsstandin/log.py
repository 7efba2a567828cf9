"""The log of a daemon: files for one in the background, standard output for one in the foreground.

NVIDIA's program writes no log file with `-f`.
"""

import os
import sys
import time
from pathlib import Path
from typing import TextIO

FILES = ("control.log", "server.log")


class DaemonLog:
    """Where one daemon writes.

    Args:
        folder: of the files; `None` for a daemon in the foreground.
    """

    def __init__(self, folder: Path | None) -> None:
        self._file: TextIO | None = None
        if folder is None:
            self._file = sys.stdout
        elif writable(folder):
            self._file, _ = [(folder / name).open("a", buffering=1) for name in FILES]

    def write(self, words: str) -> None:
        """Add lines, each with its time."""
        if self._file is None:
            return
        now = time.time()
        stamp = (
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now)) + f".{int(now % 1 * 1e3):03}"
        )
        for line in words.splitlines():
            self._file.write(f"[{stamp} Control {os.getpid():5}] {line}\n")
        self._file.flush()


def writable(folder: Path) -> bool:
    """Whether logs can be written there; the folder is made when its parent is there."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
