"""What the decoders share: their error, and what they do with values that are nested too deep.

No other error ever leaves ``gpucore.wire``, whatever is put in.

The API server stores what a tenant nests 5,000 deep: the parameters of a ResourceClaim, the
``managedFields`` of a pod. A parser that uses the C stack refuses such a text even where it would
skip the value, and with it the list of all pods. Nothing that is read here lies that deep.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

DEEPEST: Final = 100
"""Levels that are kept; an object of Kubernetes has about twenty."""
RESERVE: Final = 500
"""Levels of the stack that a later reader may use in addition; half of Python's limit."""
_TOKENS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+\\?(?:"|\Z)|[\[{]|[\]}]', re.DOTALL)
"""A string that does not end is one token, or each quotation mark in it would begin a search."""
_JSON: Final = msgspec.json.Decoder(msgspec.Raw)
_OPENING: Final = b"[{"
_QUOTE: Final = b'"'


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
    """The text with ``null`` in place of every array and object below :data:`DEEPEST` levels."""
    parts: list[bytes] = []
    level = begin = 0
    for token in _TOKENS.finditer(raw):
        first = raw[token.start() : token.start() + 1]
        if first == _QUOTE:
            continue
        if first in _OPENING:
            level += 1
            if level == DEEPEST + 1:
                parts += raw[begin : token.start()], b"null"
        else:
            if level == DEEPEST + 1:
                begin = token.end()
            level -= 1
    return b"".join(parts) + raw[begin:]


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
