"""What standard output is: a terminal of some width, or a pipe."""

import os
import shutil
import sys


def width() -> int | None:
    """Columns of the terminal; ``None`` for a pipe or a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def colourful() -> bool:
    """Colours are wanted: a terminal, and nobody has set NO_COLOR."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ
