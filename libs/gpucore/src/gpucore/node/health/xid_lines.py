"""Rate limit of log lines about XID errors: a program of a tenant can cause thousands of them."""

from collections import Counter
from typing import Final

INTERVAL_SECONDS: Final = 60.0
"""Minimum time between two lines about one XID of one GPU."""


class XidLines:
    """Decides which XID errors are logged. Not safe for several threads."""

    def __init__(self) -> None:
        self._next: dict[tuple[str, int], float] = {}
        self._suppressed = Counter[tuple[str, int]]()

    def suppressed(self, uuid: str, code: int, now: float) -> int | None:
        """The number of such errors that were not logged since the last line.

        Returns:
            ``None`` where this one is not to be logged either.
        """
        kind = uuid, code
        if now < self._next.get(kind, now):
            self._suppressed[kind] += 1
            return None
        self._next[kind] = now + INTERVAL_SECONDS
        return self._suppressed.pop(kind, 0)
