"""Where a live command prints: the terminal's other screen, or a pipe one text after the other."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gpuinspect.terminal import output as terminal

HOME: Final = "\x1b[H"
REST_OF_LINE: Final = "\x1b[K"
REST_OF_SCREEN: Final = "\x1b[J"
OTHER_SCREEN: Final = "\x1b[?1049h\x1b[?25l"
BACK: Final = "\x1b[?25h\x1b[?1049l"
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


class Frames:
    """Draws texts over one another.

    Args:
        size: of the terminal, read again for every frame.
    """

    def __init__(self, size: Callable[[], os.terminal_size], *, bold: bool) -> None:
        self._size = size
        self._bold = bold
        self._before: list[str] | None = None

    def draw(self, text: str) -> str:
        """The characters that put ``text`` in the place of the text before."""
        size, lines = self._size(), text.splitlines()
        shown = self._marked(lines)
        if len(shown) > size.lines - 1:
            kept = max(size.lines - 2, 0)
            shown = [*shown[:kept], f"  ... {len(lines) - kept} more lines"]
        self._before = lines
        body = "".join(f"{line}{REST_OF_LINE}\n" for line in (self._cut(s, size) for s in shown))
        return f"{HOME}{body}{REST_OF_SCREEN}"

    def _marked(self, lines: list[str]) -> list[str]:
        known = set(lines if self._before is None else self._before)
        return [f"  {line}" if line in known else f"* {line}" for line in lines]

    def _cut(self, line: str, size: os.terminal_size) -> str:
        cut = line[: size.columns]
        return f"{_BOLD}{cut}{_PLAIN}" if self._bold and cut.startswith("* ") else cut


class Show:
    """Prints a text, over the one before where a terminal can."""

    def __init__(self, frames: Frames | None) -> None:
        self._frames = frames

    def __call__(self, text: str) -> None:
        sys.stdout.write(f"{text}\n" if self._frames is None else self._frames.draw(text))
        sys.stdout.flush()


@contextmanager
def screen() -> Iterator[Show]:
    """The terminal's other screen while the block runs; Ctrl-C ends the block."""
    if not terminal.obeys(sys.stdout):
        yield Show(None)
        return
    sys.stdout.write(OTHER_SCREEN)
    try:
        yield Show(Frames(shutil.get_terminal_size, bold=terminal.colourful()))
    except KeyboardInterrupt:
        pass
    finally:
        sys.stdout.write(BACK)
