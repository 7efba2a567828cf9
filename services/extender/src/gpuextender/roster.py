"""Nodes by number, so that what is kept of each is a list and not thousands of look-ups by name.

A question comes with up to 5,000 names, and looking them up in tables whose keys lie all over the
memory costs more than anything that is done with what is found. Here every name is looked up once,
in a table whose keys were made in a row; everything else is indexed by the number it gives, which
stays the node's own for as long as anything is known of it. Tests hold the rooms to the ledger's.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import Final

import msgspec

from gpucore.ledger import Ledger
from gpucore.units import NodeName

NOBODY: Final = 0
"""The number of every name that is not known."""


class Roster:
    """Numbers of the nodes of one ledger.

    Attributes:
        names: by number, of the node that has it or had it last.
        share_rooms: as in the ledger, by number; -1 where nobody is.
        whole_rooms: likewise.
        changes: counts nodes that came or went; while it stands, so do all numbers.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._numbers: dict[NodeName, int] = {}
        self._vacant: list[int] = []
        self.names: list[NodeName] = [NodeName("")]
        self.share_rooms = [-1]
        self.whole_rooms = [-1]
        self.changes = 0

    def __len__(self) -> int:
        """How long a list by number must be."""
        return len(self.names)

    def numbers(self, names: Sequence[NodeName]) -> list[int]:
        """The numbers of ``names``, in their order; ``NOBODY`` for those that are not known."""
        try:
            return list(map(self._numbers.__getitem__, names))
        except KeyError:  # rare, and a third slower
            return list(map(self._numbers.get, names, repeat(NOBODY)))

    def touch(self, name: NodeName) -> int:
        """The books of ``name`` changed, or it came, or it went; its number."""
        number = self._numbers.get(name, NOBODY)
        if self._ledger.node(name) is None:
            self._leave(name, number)
            return number
        if number == NOBODY:
            number = self._enter(name)
        self.share_rooms[number] = self._ledger.share_rooms[name]
        self.whole_rooms[number] = self._ledger.whole_rooms[name]
        return number

    def settle(self) -> None:
        """Lay the names out in a row; to be called once most nodes are known."""
        ordered = sorted(self._numbers, key=self._numbers.__getitem__)
        fresh = msgspec.json.decode(msgspec.json.encode(ordered), type=list[NodeName])
        self._numbers = {name: self._numbers[name] for name in fresh}

    def _enter(self, name: NodeName) -> int:
        if self._vacant:
            number = self._vacant.pop()
            self.names[number] = name
        else:
            number = len(self.names)
            self.names.append(name)
            self.share_rooms.append(-1)
            self.whole_rooms.append(-1)
        self._numbers[name] = number
        self.changes += 1
        return number

    def _leave(self, name: NodeName, number: int) -> None:
        if number == NOBODY:
            return
        del self._numbers[name]
        self.changes += 1
        self._vacant.append(number)
        self.share_rooms[number] = self.whole_rooms[number] = -1
