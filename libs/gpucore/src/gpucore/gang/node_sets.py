"""Sets of node names in little memory: one bit for each node that a cluster has.

A set of 5,000 names takes half a megabyte, and a namespace may have any number of PodGroups.
"""

from collections.abc import Callable
from itertools import compress
from typing import Final

import msgspec

from gpucore.units import NodeName

MOST_NAMES: Final = 50_000
"""Names of a table. Then another one begins, as nodes come and go and names are not removed."""
_DIGITS: Final = bytes.maketrans(b"\0\1", b"01")
_IS_ONE: Final[Callable[[str], bool]] = "1".__eq__


class NodeSet(msgspec.Struct, frozen=True):
    """A set of nodes.

    Attributes:
        table: names in the order of their bits, which other sets share.
        bits: a number whose lowest bit is that of the first name.
    """

    table: list[NodeName]
    bits: int

    @property
    def key(self) -> tuple[int, int]:
        """Equal for equal sets of one table."""
        return id(self.table), self.bits

    def names(self) -> frozenset[NodeName]:
        """The names of the nodes."""
        return frozenset(compress(self.table, map(_IS_ONE, reversed(f"{self.bits:b}"))))


class NodeSets:
    """Makes sets that share a table of names."""

    def __init__(self) -> None:
        self._table: list[NodeName] = []
        self._known = set[NodeName]()

    def of(self, names: frozenset[NodeName]) -> NodeSet:
        """The set of nodes with these names."""
        added = names - self._known
        if len(self._table) + len(added) > MOST_NAMES:
            self._table, self._known, added = [], set(), names
        self._table += sorted(added)
        self._known |= added
        held = bytes(map(names.__contains__, reversed(self._table)))
        return NodeSet(self._table, int(held.translate(_DIGITS) or b"0", 2))
