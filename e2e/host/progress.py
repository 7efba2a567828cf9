"""Progress of long steps on stderr, because a cold build takes minutes and silence looks hung.

Standard output stays free for the one value a command prints. Nothing is logged to a file here.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def say(text: str) -> None:
    """Write one progress line to stderr at once."""
    print(f"cluster: {text}", file=sys.stderr, flush=True)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Announce a step, run it, and report how many seconds it took or that it failed."""
    say(f"{name} ...")
    begin = time.monotonic()
    try:
        yield
    except BaseException:
        say(f"{name}: failed after {time.monotonic() - begin:.1f} s")
        raise
    say(f"{name}: {time.monotonic() - begin:.1f} s")
