"""When a certificate ends, read from its file, so that somebody is told before it does.

The standard library shows this of a peer's certificate alone, never of one's own. Only the path to
the end of validity is walked (RFC 5280, 4.1); nothing is verified here.
"""

import ssl
from datetime import UTC, datetime
from typing import Final

import msgspec

_HEAD: Final = "-----BEGIN CERTIFICATE-----"
_TAIL: Final = "-----END CERTIFICATE-----"
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_LONG: Final = 0x80
_CENTURIES: Final = 50
"""UTCTime has two digits for the year: below this it is 20.., else 19.. (RFC 5280, 4.1.2.5.1)."""


class ExpiryError(ValueError):
    """The text holds no certificate that can be read."""


class _Element(msgspec.Struct, frozen=True):
    """One value of DER: its tag, what it holds, and what comes after it."""

    tag: int
    held: bytes
    rest: bytes


def not_after(pem: str) -> float:
    """Unix seconds at which the first certificate of ``pem``, the listener's own, ends.

    Raises:
        ExpiryError: there is none, or it is cut off.
    """
    begin, end = pem.find(_HEAD), pem.find(_TAIL)
    if begin < 0 or end < begin:
        raise ExpiryError("no certificate in the text")
    try:
        return _end(ssl.PEM_cert_to_DER_cert(pem[begin : end + len(_TAIL)]))
    except (IndexError, ValueError) as error:
        raise ExpiryError(f"not a certificate: {error}") from error


def _end(certificate: bytes) -> float:
    """Of the validity: after version, serial number, signature algorithm and issuer."""
    fields = _read(_read(certificate).held).held
    first = _read(fields)
    before = 4 if first.tag == _VERSION else 3
    for _ in range(before):
        fields = _read(fields).rest
    times = _read(fields).held
    return _moment(_read(_read(times).rest))


def _read(text: bytes) -> _Element:
    """The first element of ``text``."""
    length, start = text[1], 2
    if length & _LONG:
        start += length & ~_LONG
        length = int.from_bytes(text[2:start], "big")
    if len(text) < start + length:
        raise ExpiryError("cut off")
    return _Element(text[0], text[start : start + length], text[start + length :])


def _moment(element: _Element) -> float:
    digits = element.held.decode("ascii")
    if element.tag == _UTC_TIME:
        digits = ("20" if int(digits[:2]) < _CENTURIES else "19") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
