"""What the decoders share: their error, and what they do with values that are nested too deep.

No other error ever leaves ``gpucore.wire``, whatever is put in.

The API server stores what a tenant nests 5,000 deep: the parameters of a ResourceClaim, the
``managedFields`` of a pod. A parser that uses the C stack refuses such a text even where it would
skip the value, and with it the list of all pods. Nothing that is read here lies that deep.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import accumulate, islice
from operator import indexOf
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

DEEPEST: Final = 100
"""Levels that are kept; an object of Kubernetes has about twenty."""
RESERVE: Final = 500
"""Levels of the stack that a later reader may use in addition; half of Python's limit."""
_CUTS: Final = range(DEEPEST, DEEPEST // 2, -1)
"""The level below which a deep text is cut is one of these: the one with the fewest values."""
_COUNTED: Final = range(DEEPEST // 2, DEEPEST + 2)
_STRING: Final = rb'"(?:[^"\\]++|\\.)*+\\?(?:"|\Z)'
"""A string that does not end is one token, or each quotation mark in it would begin a search."""
_STRINGS: Final = re.compile(_STRING, re.DOTALL)
_BRACKETS: Final = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+[\[\]{}]", re.DOTALL)
"""Each match ends with the next bracket that is not part of a string."""
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_OTHERS: Final = bytes(set(range(256)) - set(b"[{]}"))
_JSON: Final = msgspec.json.Decoder(msgspec.Raw)


class _Metadata(msgspec.Struct):
    namespace: str = ""
    name: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata


_OBJECT: Final = msgspec.json.Decoder(_Object)


WRONG_TYPE: Final = "a field does not have the type that the Kubernetes API defines"
"""For an object whose fields are read without a decoder."""


class WireError(ValueError):
    """The input is not what the Kubernetes API, or the contract, promises."""


def decoded(decoder: msgspec.json.Decoder[T], raw: bytes | str | msgspec.Raw, fault: str) -> T:
    """The value that a decoder reads; what is nested too deep for it is ``null``.

    Args:
        fault: begins the message where it reads none, such as ``no pod``.

    Raises:
        WireError: it reads none.
    """
    try:
        try:
            return decoder.decode(raw)
        except RecursionError:
            return decoder.decode(shallow(raw.encode() if isinstance(raw, str) else bytes(raw)))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"{fault}: {error}") from error


def each_decoded(
    raws: Iterable[msgspec.Raw], decode: Callable[[msgspec.Raw], T]
) -> tuple[tuple[T, ...], tuple[str, ...]]:
    """The objects that ``decode`` reads, and of each other one its name and the reason."""
    items: list[T] = []
    unreadable: list[str] = []
    for raw in raws:
        try:
            items.append(decode(raw))
        except WireError as error:
            unreadable.append(f"{name_of(raw)}: {error}")
    return tuple(items), tuple(unreadable)


def name_of(raw: msgspec.Raw) -> str:
    """Namespace and name of an object of any kind, for messages."""
    try:
        metadata = decoded(_OBJECT, raw, "no object").metadata
    except WireError:
        return "an object without a name"
    return f"{metadata.namespace}/{metadata.name}"


def shallow(raw: bytes) -> bytes:
    """The text with ``null`` in place of what is too deep, where it has more than the levels kept.

    It is cut where it has the fewest values, so that many short and deep values take no longer than
    one that is long.
    """
    steps = memoryview(_STRINGS.sub(b"", raw).translate(_STEPS, _OTHERS)).cast("b")
    values = Counter(filter(_COUNTED.__contains__, accumulate(steps)))
    if not values[DEEPEST + 1]:
        return raw
    deepest = min(_CUTS, key=values.__getitem__)
    levels, brackets = accumulate(steps), _BRACKETS.finditer(raw)
    parts: list[bytes] = []
    end = 0
    with suppress(ValueError):  # no bracket leads to that level any more
        while True:
            opening = next(islice(brackets, indexOf(levels, deepest + 1), None))
            parts += raw[end : opening.end() - 1], b"null"
            end = len(raw)
            end = next(islice(brackets, indexOf(levels, deepest), None)).end()
    return b"".join(parts) + raw[end:]


def has_more_values(raw: bytes, most: int) -> bool:
    """Whether the text has more strings, arrays and objects than this; it need not be JSON.

    The strings are counted without a look at each, which would take longer than decoding them.
    """
    escapes = raw.replace(rb"\\", b"")
    strings = (escapes.count(b'"') - escapes.count(rb"\"")) // 2
    if strings > most or strings + raw.count(b"[") + raw.count(b"{") <= most:
        return strings > most
    bare = _STRINGS.sub(b"", raw)
    return strings + bare.count(b"[") + bare.count(b"{") > most


def parsable(raw: bytes) -> bytes:
    """The text itself, JSON or not, or a shallow one where a parser might refuse its depth.

    The text may be parsed again deeper in the stack, so it must parse inside of :data:`RESERVE`
    arrays here.
    """
    try:
        _JSON.decode(b"".join((b"[" * RESERVE, raw, b"]" * RESERVE)))
    except RecursionError:
        return shallow(raw)
    except (msgspec.MsgspecError, ValueError):
        return raw
    return raw
