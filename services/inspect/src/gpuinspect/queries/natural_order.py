"""Names in the order that people expect: ``wait-2`` before ``wait-10``."""

import re
from typing import Final

_DIGITS: Final = re.compile(r"([0-9]+)")

NaturalKey = tuple[tuple[tuple[bool, int, str], ...], str]


def natural(name: str) -> NaturalKey:
    """Sorts runs of digits by their number; names that differ in zeros only, by their text."""
    parts = _DIGITS.split(name)
    return tuple(_part(part) for part in parts if part), name


def _part(text: str) -> tuple[bool, int, str]:
    """Numbers come before text, as digits do before letters."""
    digits = text.isascii() and text.isdigit()
    return (not digits, int(text[:_MOST_DIGITS]) if digits else 0, "" if digits else text)


_MOST_DIGITS: Final = 300
"""Of a number that is compared; Python refuses to read much longer ones."""
