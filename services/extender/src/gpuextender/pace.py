"""How fast events may be written, so that they give way to what they speak of.

A few go at once. More than that are written at a steady pace, a slow one while more is being said,
because then pods are being bound and every event would take the API server from a bind; the rest
follows when it is quiet. Reads no clock itself.
"""

from typing import Final

BUSY_SECONDS: Final = 1.0
"""Something was said so lately: there is more to come."""


class Pace:
    """Turns for one writer; times are in seconds of one clock.

    Args:
        burst: how many go at once after a quiet time.
        quiet: how many a second while nothing new is said.
        busy: how many a second otherwise.
    """

    def __init__(self, *, burst: int, quiet: float, busy: float) -> None:
        self._burst, self._quiet, self._busy = burst, quiet, busy
        self._left = float(burst)
        self._at = self._said = float("-inf")

    def said(self, now: float) -> None:
        """Something new is to be written."""
        self._said = now

    def turn(self, now: float) -> float:
        """Take the next turn: how long to wait for it."""
        rate = self._busy if now - self._said < BUSY_SECONDS else self._quiet
        self._left = min(float(self._burst), self._left + (now - self._at) * rate) - 1
        wait = max(0.0, -self._left / rate)
        self._at = now
        return wait
