"""When the limit of a container was not enough, or was reached."""

from typing import Final

import msgspec

REACHED_PERCENT: Final = 98
"""Part of the limit from which memory in use counts as having reached it."""
KEPT_SECONDS: Final = 28 * 24 * 3600.0
"""After this time an event is forgotten."""


class LimitEvent(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """The last time that a limit was not enough, or was reached; of two, the later is greater.

    Attributes:
        at: Unix seconds; 0 for never.
        limit_bytes: the limit at that time.
    """

    at: float = 0.0
    limit_bytes: int = 0

    def kept(self, now: float) -> "LimitEvent":
        """The event, or none where it is older than :data:`KEPT_SECONDS`."""
        return self if now - self.at < KEPT_SECONDS else NEVER

    def until(self, now: float) -> "LimitEvent":
        """The event, at this time where it is later."""
        return LimitEvent(min(self.at, now), self.limit_bytes)


NEVER: Final = LimitEvent()


def reaches(used_bytes: int, limit_bytes: int) -> bool:
    """The memory in use is nearly all that the limit allows; false without a limit."""
    return 0 < REACHED_PERCENT * limit_bytes <= 100 * used_bytes
