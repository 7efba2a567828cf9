"""What standard output and standard error are: a terminal of some width, or a pipe."""

import os
import shutil
import sys
from typing import TextIO


def width(stream: TextIO | None = None) -> int | None:
    """Columns of the terminal that a stream (standard output) is; ``None`` for a pipe or file."""
    written = sys.stdout if stream is None else stream
    return shutil.get_terminal_size().columns if written.isatty() else None


def colourful() -> bool:
    """Whether to use colours: on a terminal without NO_COLOR."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def shows(characters: str) -> bool:
    """Whether standard output can encode these characters."""
    try:
        characters.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
