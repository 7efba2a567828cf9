"""Where a live command prints: the terminal's other screen, or a pipe one text after the other."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gpuinspect.terminal import output as terminal
from gpuinspect.terminal.frames import BACK, OTHER_SCREEN, Frames


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
    if not sys.stdout.isatty():
        yield Show(None)
        return
    sys.stdout.write(OTHER_SCREEN)
    try:
        yield Show(Frames(shutil.get_terminal_size, bold=terminal.colourful()))
    except KeyboardInterrupt:
        pass
    finally:
        sys.stdout.write(BACK)
