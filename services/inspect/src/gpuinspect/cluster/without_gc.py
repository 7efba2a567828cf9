"""No garbage collection while a whole cluster is read: all that is made then is kept.

The collector would look through tens of thousands of new objects again and again and find none to
free, which is a sixth of the time of ``gpushare inspect`` on 1,000 nodes.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Hold the collector back while the block runs, in all threads of the process."""
    held = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if held:
            gc.enable()


@contextmanager
def uncollected_for_good() -> Iterator[None]:
    """As :func:`uncollected`, and no later collection looks through what the block has made.

    For commands that print it and end; the first collection afterwards would look through all.
    """
    with uncollected():
        yield
        gc.freeze()
