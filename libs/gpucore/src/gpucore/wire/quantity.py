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
_INT64: Final = 2**63 - 1
_FINEST: Final = -9
"""Power of ten of the finest amount that Go keeps as an integer with a scale."""
_WRAPPED: Final = frozenset({0, 1, 2, 3, 6, 9})
"""Powers of ten by which Go multiplies at once; others overflow to 0."""
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


def counted(text: str, *, shift: int = 0) -> int:
    """The quantity as kubelet and kube-scheduler count it: Go's ``Quantity.Value``, rounded up.

    They count in 64 bits and ignore an overflow: of ``10E`` devices kubelet allocates none, and two
    of 18446744073709551618. At most :data:`MOST`.

    Args:
        shift: powers of ten by which it is multiplied; 3 for thousandths.

    Raises:
        WireError: as :func:`amount`.
    """
    if text.isascii() and text.isdigit() and len(text) + shift < len(str(MOST)):
        return int(text) * int(10**shift)
    match = _QUANTITY.fullmatch(text)
    if match is None or match["suffix"] in _BINARY:
        numerator, denominator = exact(text)
        if numerator > _INT64 * denominator:
            numerator, denominator = _INT64, 1
        value = _signed(-(-numerator * 10**shift // denominator))
    else:
        whole, _, part = match["number"].partition(".")
        digits = (whole.lstrip("0") or "0") + part
        places = _exponent(match["suffix"] or "") - len(part)
        value = _scaled(digits, places + shift, fast=len(digits) <= 18 and places >= _FINEST)
    return max(min(value, MOST), 0)


def _scaled(digits: str, places: int, *, fast: bool) -> int:
    """Digits times a power of ten; Go has one representation for few digits and one for many."""
    if places < 0:
        rest = digits[places:] if -places < len(digits) else digits
        return _signed(_low_bits(digits[:places]) + bool(rest.strip("0")))
    value: int = _low_bits(digits) * pow(10, places, 1 << 64)
    if fast and places not in _WRAPPED and int(digits) * 10 ** min(places, 19) > _INT64:
        return 0
    return _signed(value)


def _low_bits(digits: str) -> int:
    """The low 64 bits of a number of any length."""
    value = 0
    for place in range(0, len(digits), _DIGITS):
        piece = digits[place : place + _DIGITS]
        value = (value * 10 ** len(piece) + int(piece)) % (1 << 64)
    return value


def _signed(value: int) -> int:
    """The low 64 bits as a signed number."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


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
