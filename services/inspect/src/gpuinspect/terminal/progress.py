"""A line on standard error that shows how far a long command is; it is removed at the end.

Only people see it: it needs a terminal, and appears after the first second.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TextIO, TypeVar

from gpuinspect.terminal import output as terminal

T = TypeVar("T")

START_SECONDS: Final = 1.0
"""Seconds until the line appears; most commands have ended by then."""
EVERY_SECONDS: Final = 0.1
_CLEAR: Final = "\r\x1b[K"


class Progress:
    """Counts what is done; several threads may count.

    Args:
        words: what is counted, such as ``pods placed``.
        goal: final number; 0 where it is unknown.
        stream: where the line is written; ``None`` writes nothing.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        words: str,
        goal: float = 0,
        *,
        stream: TextIO | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._words, self._goal, self._stream, self._clock = words, goal, stream, clock
        self._done = 0.0
        self._next = clock() + START_SECONDS
        self._shown = False
        self._lock = threading.Lock()

    def add(self, number: float = 1) -> None:
        """Add a number of finished objects."""
        with self._lock:
            self._done += number
            self._show()

    def reach(self, done: float) -> None:
        """Set the number of finished objects."""
        with self._lock:
            self._done = done
            self._show()

    def counted(self, items: Iterable[T]) -> Iterator[T]:
        """The same items; each is done when the next one is taken."""
        for item in items:
            yield item
            self.add()

    def clear(self) -> None:
        """Remove the line."""
        with self._lock:
            if self._stream is not None and self._shown:
                self._stream.write(_CLEAR)
                self._stream.flush()
            self._shown = False

    def _show(self) -> None:
        now = self._clock()
        if self._stream is None or now < self._next:
            return
        self._next = now + EVERY_SECONDS
        self._shown = True
        part = f" of {self._goal:,.0f}" if self._goal else ""
        line = f"{self._words}: {self._done:,.0f}{part}"
        columns = terminal.width(self._stream)
        self._stream.write(_CLEAR + line[: columns - 1 if columns else None])
        self._stream.flush()


@contextmanager
def shown(words: str, goal: float = 0) -> Iterator[Progress]:
    """Progress on standard error where that is a terminal, for as long as the block runs."""
    stream = sys.stderr if terminal.obeys(sys.stderr) else None
    progress = Progress(words, goal, stream=stream)
    try:
        yield progress
    finally:
        progress.clear()


def counting(words: str) -> Callable[[Sequence[T]], Iterator[T]]:
    """A function that gives the items of a list and shows how many were used."""

    def counted(items: Sequence[T]) -> Iterator[T]:
        with shown(words, len(items)) as progress:
            yield from progress.counted(items)

    return counted
