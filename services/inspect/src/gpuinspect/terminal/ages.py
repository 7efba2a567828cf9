"""Ages as kubectl writes them: ``45s``, ``12m``, ``3h``, ``5d``."""

from datetime import UTC, datetime
from typing import Final

UNKNOWN: Final = "-"
_UNITS: Final = ((86400, "d", 2), (3600, "h", 3), (60, "m", 3), (1, "s", 0))
"""Seconds of a unit, its letter, and from how many of them it is used."""


def now() -> datetime:
    """The time on this machine."""
    return datetime.now(UTC)


def age(moment: str, at: datetime) -> str:
    """The time since an RFC 3339 moment, in one unit; a dash where it is none."""
    try:
        since = datetime.fromisoformat(moment)
    except ValueError:
        return UNKNOWN
    if since.tzinfo is None:
        return UNKNOWN
    seconds = max(int((at - since).total_seconds()), 0)
    size, letter = next((size, letter) for size, letter, least in _UNITS if seconds >= size * least)
    return f"{seconds // size}{letter}"
