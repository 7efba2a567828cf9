"""What a daemon in the foreground prints: kept in a file, and the last of it for the reason.

With ``-f`` NVIDIA's daemon opens no log file: what would be in ``control.log`` and ``server.log``
goes to its standard output (manual, option ``-f``).
"""

import os
import re
from pathlib import Path
from typing import Final

from gpudeviceplugin.isolation.mps.folders import LOG_BYTES

LOG_FILE: Final = "control.log"
LINE_BYTES: Final = 1000
"""Longest line in the file: a client's command is one, whatever its length."""
_LAST_WORDS: Final = 400
_MODE: Final = 0o640
_STAMP: Final = re.compile(r"^\[[^\]]*\] ")
_ROUTINE: Final = re.compile(
    r"Starting control daemon |To connect CUDA applications |"
    r"Accepting connection\.\.\.$|NEW UI$|UI closed$|Cmd:get_server_list$|Exit with status 0$"
)
"""Lines that every start, every look and every orderly end add; they explain no failure."""


class DaemonOutput:
    """The output of one daemon.

    Args:
        log: the directory of the file.
    """

    def __init__(self, log: Path) -> None:
        self._path = log / LOG_FILE
        self._line = b""
        self._column = 0
        self._words = ""

    def add(self, chunk: bytes) -> None:
        """Take in the next bytes."""
        self._save(self._cut(chunk))
        *lines, self._line = (self._line + chunk[-(1 << 16) :]).split(b"\n")
        self._line = self._line[-_LAST_WORDS:]
        for line in lines:
            self._keep(line)

    @property
    def words(self) -> str:
        """The last lines that may explain an end, without their times."""
        return f"{self._words}{_told(self._line)}".strip()

    def _keep(self, line: bytes) -> None:
        if told := _told(line):
            self._words = f"{self._words}{told}\n"[-_LAST_WORDS:]

    def _cut(self, chunk: bytes) -> bytes:
        """Without what is beyond the longest line."""
        first, *others = chunk.split(b"\n")
        kept = [first[: max(LINE_BYTES - self._column, 0)], *(line[:LINE_BYTES] for line in others)]
        self._column = len(others[-1]) if others else self._column + len(first)
        return b"\n".join(kept)

    def _save(self, chunk: bytes) -> None:
        """Append to the file, which is emptied first where it would exceed its limit.

        A log that cannot be written is no reason to stop a daemon.
        """
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        except OSError:
            return
        try:
            if os.fstat(file).st_size + len(chunk) > LOG_BYTES:
                os.ftruncate(file, 0)
            os.write(file, chunk)
        except OSError:
            return
        finally:
            os.close(file)


def _told(line: bytes) -> str:
    text = _STAMP.sub("", line.decode(errors="replace"))
    return "" if _ROUTINE.match(text) else text
