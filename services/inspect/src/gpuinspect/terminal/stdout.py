"""Standard output as it may be: not in UTF-8, closed, on a full disk, or a pipe that ended."""

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_UNWRITABLE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


@contextmanager
def written() -> Iterator[None]:
    """Write what the block prints, or end with a sentence and exit code 1.

    Characters that the encoding of standard output lacks are escaped: they are text of tenants, and
    an error would hide everything else that is printed.
    """
    if sys.stdout is None:
        sys.exit("error: cannot write the output: standard output is closed")
    if isinstance(sys.stdout, io.TextIOWrapper) and not _is_utf8(sys.stdout):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in {errno.EPIPE, *_UNWRITABLE} or error.filename is not None:
            raise
        _discard_the_rest()
        if error.errno == errno.EPIPE:
            sys.exit(1)
        sys.exit(f"error: cannot write the output: {error.strerror}")


def _is_utf8(stream: io.TextIOWrapper) -> bool:
    return stream.encoding.lower().replace("_", "-") in {"utf-8", "utf8"}


def _discard_the_rest() -> None:
    """Or Python would try to write it again when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
