"""A list of the API server as shorter lists, cut while its bytes arrive.

An API server takes seconds to encode the pods of a large cluster and sends them meanwhile. A piece
is cut where one item ends and the next begins with its metadata, as the API server writes the items
of its own resources. A list that is written otherwise becomes one piece.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

import msgspec

from gpucore.wire.errors import WireError, decoded

_ITEMS: Final = re.compile(rb'"items":\s*\[')
_NEXT_ITEM: Final = b',{"metadata":{'
"""Never part of a JSON string: a quotation mark in one has a backslash before it."""


P = TypeVar("P")


class _RawList(msgspec.Struct):
    metadata: msgspec.Raw
    items: msgspec.Raw


_LIST: Final = msgspec.json.Decoder(_RawList)


class ListPieces(Generic[P]):
    """Cuts one list.

    Args:
        decode: reads a list; raises WireError where the bytes are none.
        size: of a piece in bytes, about.
    """

    def __init__(self, decode: Callable[[bytes], P], *, size: int) -> None:
        self._decode = decode
        self._size = self._due = size
        self._head = b""
        self._rest = bytearray()

    def add(self, chunk: bytes) -> Iterator[P]:
        """Take the next bytes of the list; the pieces that are complete with them.

        Raises:
            WireError: a piece is a list, but not one that ``decode`` reads.
        """
        self._rest += chunk
        while len(self._rest) >= self._due:
            piece = self._cut()
            if piece is None:
                self._due *= 2
                return
            self._due = self._size
            yield piece

    def last(self) -> P:
        """The piece with what is left.

        Raises:
            WireError: what came is no list.
        """
        return self._decode(self._head + self._rest)

    def _cut(self) -> P | None:
        """A piece from the front; ``None`` where none can be cut from what has arrived."""
        if not self._head:
            self._behead()
        end = self._rest.rfind(_NEXT_ITEM) if self._head else -1
        if end < 0:
            return None
        with memoryview(self._rest) as arrived:
            raw = b"".join((self._head, arrived[:end], b"]}"))
        try:
            piece = self._decode(raw)
        except WireError:
            if _is_list(raw):
                raise
            return None  # what was found is part of an item
        del self._rest[: end + 1]
        return piece

    def _behead(self) -> None:
        """Keep all that stands before the items; a piece behind anything else is no list."""
        found = _ITEMS.search(self._rest)
        if found:
            self._head = bytes(self._rest[: found.end()])
            del self._rest[: found.end()]


def _is_list(raw: bytes) -> bool:
    try:
        decoded(_LIST, raw, "no list")
    except WireError:
        return False
    return True
