"""Unix time that goes on evenly while the process runs, also where the machine's clock is set anew.

Reservations and what namespaces owe age by it. By the machine's clock, one that is set an hour
ahead would end them all at once, those of binds that are under way too.
"""

from time import monotonic_ns, time_ns
from typing import Final

_AHEAD_NS: Final = time_ns() - monotonic_ns()


def unix_ns() -> int:
    """Nanoseconds; as far from the true time as the machine's clock was when the process began."""
    return _AHEAD_NS + monotonic_ns()
