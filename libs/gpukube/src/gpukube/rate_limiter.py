"""Rate limit of event writes, so that they do not delay the requests that they report.

A burst goes at once. More than that is written at a steady rate, a lower one while new events
arrive, because then pods are being bound and every event would take a request from a bind. This
module reads no clock.
"""

from typing import Final

BUSY_SECONDS: Final = 1.0
"""Seconds after a new event during which more are expected."""


class RateLimiter:
    """Turns of one writer; times are in seconds of one clock.

    Args:
        burst: number of events that go at once after a quiet time.
        quiet: events per second while no new ones arrive.
        busy: events per second otherwise.
    """

    def __init__(self, *, burst: int, quiet: float, busy: float) -> None:
        self._burst, self._quiet, self._busy = burst, quiet, busy
        self._left = float(burst)
        self._at = self._arrived = float("-inf")

    def arrived(self, now: float) -> None:
        """There is a new event to write."""
        self._arrived = now

    def turn(self, now: float) -> float:
        """Take the next turn; seconds to wait for it."""
        rate = self._busy if now - self._arrived < BUSY_SECONDS else self._quiet
        self._left = min(float(self._burst), self._left + (now - self._at) * rate) - 1
        wait = max(0.0, -self._left / rate)
        self._at = now
        return wait
