"""Files that the command line names; ``-`` is standard input."""

import errno
import sys
from pathlib import Path
from typing import Final

STDIN: Final = Path("-")


def content(path: Path) -> bytes:
    """The content of a file, or of standard input for ``-``.

    Raises:
        OSError: it cannot be read, or standard input is closed.
    """
    if path != STDIN:
        return path.read_bytes()
    if sys.stdin is None:
        raise OSError(errno.EBADF, "standard input is closed")
    return sys.stdin.buffer.read()
