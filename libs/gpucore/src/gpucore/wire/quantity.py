"""Numbers in texts: Kubernetes quantities, decimal text of annotations, and times.

The API server rewrites amounts in canonical form, so 32000 units come back as ``32k``: an amount
that is read with ``int`` is lost exactly on the largest nodes. ``int`` also takes spaces, signs,
underscores and the digits of other scripts; an annotation that holds any of these was not written
by a member of this contract.
"""

import math
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from gpucore.wire.errors import WireError

_QUANTITY: Final = re.compile(
    r"\+?(?P<number>[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?"
)
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL: Final = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def amount(text: str) -> int:
    """The integer value of a quantity, a fraction rounded up as kubelet does.

    Raises:
        WireError: the text is no quantity, or a negative one.
    """
    if text.isascii() and text.isdigit() and len(text) <= 30:
        return int(text)
    numerator, denominator = exact(text)
    return -(-numerator // denominator)


def milli(text: str) -> int:
    """The thousandths of a quantity, rounded up as the scheduler counts cpu.

    Raises:
        WireError: as :func:`amount`.
    """
    numerator, denominator = exact(text)
    return -(-1000 * numerator // denominator)


def exact(text: str) -> tuple[int, int]:
    """The value of a quantity, unrounded: numerator and denominator in lowest terms.

    Raises:
        WireError: as :func:`amount`.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise WireError(f"{text[:40]!r} is no quantity")
    whole, _, part = match["number"].partition(".")
    suffix = match["suffix"] or ""
    value, exponent = int(whole + part) * 1024 ** _BINARY.get(suffix, 0), -len(part)
    if suffix in _DECIMAL:
        exponent += 3 * _DECIMAL[suffix]
    elif suffix not in _BINARY:
        exponent += int(suffix[1:])
    numerator, denominator = value * 10 ** max(exponent, 0), 10 ** max(-exponent, 0)
    common = math.gcd(numerator, denominator)
    return numerator // common, denominator // common


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


def unix_seconds(text: str | None) -> float:
    """Unix seconds of an RFC 3339 time; 0 where the text is no time with a zone."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return 0.0
    return found.timestamp() if found.tzinfo else 0.0
