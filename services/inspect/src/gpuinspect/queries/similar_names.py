"""Names that are similar to a mistyped one, for messages."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

SHOWN: Final = 3
_CUTOFF: Final = 0.75


def similar_names(name: str, names: Iterable[str]) -> str:
    """``; near: a, b``, or nothing where no name is similar."""
    found = get_close_matches(name, sorted(set(names)), n=SHOWN, cutoff=_CUTOFF)
    return f"; near: {', '.join(found)}" if found else ""
