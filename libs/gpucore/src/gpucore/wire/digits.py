"""Decimal text to numbers, strictly.

``int`` also takes spaces, signs, underscores and the digits of other scripts; an annotation that
holds any of these was not written by a member of this contract.
"""

from collections.abc import Iterable


def number(text: str, *, below: int = 1 << 63) -> int | None:
    """The non-negative number that ``text`` spells, or ``None`` for any other text."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        return None
    value = int(text)
    return value if value < below else None


def first_number(texts: Iterable[str | None]) -> int:
    """The first of several texts that spells a number; 0 where none does."""
    for text in texts:
        value = None if text is None else number(text)
        if value is not None:
            return value
    return 0
