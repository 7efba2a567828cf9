"""Lets a change be undone when the process is to end: by ``kill``, systemd or a closed terminal."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_SHELL_OFFSET: Final = 128
"""Exit status of a program that a signal ended, less the number of the signal."""


@contextmanager
def raised() -> Iterator[None]:
    """Raise SystemExit in the block for the first of :data:`ENDING`, and ignore later ones.

    A signal with another handler keeps it; ``nohup`` ignores SIGHUP. For the main thread only.
    """
    caught = [each for each in ENDING if signal.getsignal(each) is signal.SIG_DFL]

    def end(number: int, _frame: FrameType | None) -> None:
        for each in caught:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(_SHELL_OFFSET + number)

    for each in caught:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each in caught:
            signal.signal(each, signal.SIG_DFL)
