"""A clock that a stalled machine does not advance, for bounds that the product promises.

A test polls the cluster. While the machine stalls, neither the test nor what it watches runs: such
a pause between two polls counts as :data:`STEP_SECONDS`, however long it was.
"""

from time import monotonic
from typing import Final

STEP_SECONDS: Final = 0.5
"""More than a poll and the pause after it take where the machine does not stall."""


class SteadyClock:
    """Seconds since the start, without those in which the machine stalled."""

    def __init__(self) -> None:
        self._last = monotonic()
        self._seconds = 0.0

    def tick(self) -> float:
        """The seconds until now; for each poll once."""
        now = monotonic()
        self._seconds += min(now - self._last, STEP_SECONDS)
        self._last = now
        return self._seconds
