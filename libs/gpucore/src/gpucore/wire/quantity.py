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
from typing import Annotated, Final

import msgspec

from gpucore.wire.errors import WireError

Quantity = Annotated[str, msgspec.Meta(pattern=r"^[-+.0-9eEinumkKMGTP]+\Z")]
Texts = dict[str, str]
Amounts = dict[str, str | int | float]
"""Quantities by resource name, as found; a file made by hand may write numbers."""


_QUANTITY: Final = re.compile(
    r"\+?(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?"
)
MOST: Final = 2**60
"""Larger amounts count as this much, 1Ei: the API server takes ``1e999`` and 5,000 digits."""
_DIGITS: Final = 40
"""Orders of magnitude, up and down, within which a quantity is read exactly."""
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL: Final = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def amount(text: str) -> int:
    """The integer value of a quantity, at most :data:`MOST`, a fraction rounded up as by kubelet.

    Raises:
        WireError: the text is no quantity, or a negative one.
    """
    if text.isascii() and text.isdigit() and len(text) < len(str(MOST)):
        return int(text)
    numerator, denominator = exact(text)
    return min(-(-numerator // denominator), MOST)


def milli(text: str) -> int:
    """The thousandths of a quantity, at most :data:`MOST`, rounded up as the scheduler counts cpu.

    Raises:
        WireError: as :func:`amount`.
    """
    numerator, denominator = exact(text)
    return min(-(-1000 * numerator // denominator), MOST)


def exact(text: str) -> tuple[int, int]:
    """The value of a quantity, unrounded: numerator and denominator in lowest terms.

    Beyond forty orders of magnitude it is one of that magnitude.

    Raises:
        WireError: as :func:`amount`.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise WireError(f"{text[:40]!r} is no quantity")
    whole, _, part = match["number"].partition(".")
    digits = (whole + part).lstrip("0")
    if not digits:
        return 0, 1
    exponent = _exponent(match["suffix"] or "") - len(part)
    if len(digits) + exponent > _DIGITS:
        return 10**_DIGITS, 1
    if len(digits) + exponent < -_DIGITS:
        return 1, 10**_DIGITS
    kept = digits[: 3 * _DIGITS]
    exponent += len(digits) - len(kept)
    value = int(kept) * 1024 ** _BINARY.get(match["suffix"] or "", 0)
    numerator, denominator = value * 10 ** max(exponent, 0), 10 ** max(-exponent, 0)
    common = math.gcd(numerator, denominator)
    return numerator // common, denominator // common


def _exponent(suffix: str) -> int:
    """Of ten; one of many digits is as large as one of nine."""
    if suffix in _BINARY:
        return 0
    if suffix in _DECIMAL:
        return 3 * _DECIMAL[suffix]
    sign = -1 if suffix[1] == "-" else 1
    return sign * int(suffix[1:].lstrip("+-0")[:9] or "0")


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
