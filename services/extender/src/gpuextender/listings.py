"""Node names as a scheduler lists them, read once though two verbs are asked about them.

kube-scheduler asks prioritize about the very names that filter answered, in their order: both lists
are the same bytes. What was read and looked up of the last few lists that filter sent is kept by
these bytes, since reading thousands of names again costs more than rating their nodes. Any other
list, as after another extender's filter, is simply read.
"""

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from gpucore.units import NodeName
from gpuextender import messages
from gpuextender.roster import Roster

KEPT: Final = 8
"""Lists that are kept: those of a few schedulers that ask at the same time."""


class Listing:
    """Node names of one request.

    Args:
        names: in the order they are listed in.
        roster: numbers of the nodes.
        raw: the names as JSON, where they came so.
    """

    def __init__(self, names: Sequence[NodeName], roster: Roster, raw: bytes | None = None) -> None:
        self.names = names
        self._roster = roster
        self._raw = raw
        self._numbers = roster.numbers(names)
        self._changes = roster.changes

    @property
    def numbers(self) -> Sequence[int]:
        """Of each name, as of now; found again only where nodes came or went."""
        if self._changes != self._roster.changes:
            self._numbers = self._roster.numbers(self.names)
            self._changes = self._roster.changes
        return self._numbers

    @property
    def raw(self) -> bytes:
        """The names as JSON."""
        if self._raw is None:
            self._raw = messages.encode(self.names)
        return self._raw

    def without(self, places: Collection[int]) -> "Listing":
        """The names but those at ``places``, counted from 0."""
        if not places:
            return self
        kept = [name for place, name in enumerate(self.names) if place not in places]
        return Listing(kept, self._roster)


class Listings:
    """Lists of one roster's nodes."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._sent: deque[Listing] = deque(maxlen=KEPT)

    def of(self, names: Sequence[NodeName]) -> Listing:
        """A list of names that came otherwise than as JSON."""
        return Listing(names, self._roster)

    def read(self, raw: msgspec.Raw) -> Listing:
        """A list of names as JSON.

        Raises:
            MessageError: it is no list of names.
        """
        given = bytes(raw)
        for sent in self._sent:
            if sent.raw == given:
                return sent
        return Listing(messages.names_of(raw), self._roster, given)

    def sent(self, listing: Listing) -> msgspec.Raw:
        """What is sent of ``listing``, which is then known when it comes back."""
        self._sent.appendleft(listing)
        return msgspec.Raw(listing.raw)
