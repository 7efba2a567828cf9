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
    """Colours are wanted: a terminal, and nobody has set NO_COLOR."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ
