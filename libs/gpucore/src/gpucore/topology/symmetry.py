"""Sets of cards that differ in names only, so that what is learnt of one holds for the others.

Machines of 16 cards are made of two sockets or boards, each with its own pattern of links, and
between them all pairs are alike. Within a half any renaming of cards that keeps its links keeps
every score, and where the halves are equal so does exchanging them. Of the 65,536 sets of a machine
some hundreds to few thousands are then really different. Not promised: every symmetry is found; a
machine without two such halves has none here, and is searched without this help.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

Square = Sequence[Sequence[int]]

WORTHWHILE: Final = 8
"""Sets there must be for each that is really different: with fewer it costs more than it saves."""


class Halves(NamedTuple):
    """A machine of two halves.

    Attributes:
        width: cards of the low half.
        low, high: for every set of cards of a half the one that stands for it.
        equal: the halves can be exchanged.
        different: how many sets stand for others.
    """

    width: int
    low: list[int]
    high: list[int]
    equal: bool
    different: int

    def stand_in(self, cards: int) -> int:
        """The set that stands for ``cards``: all its groups and cuts have the same scores."""
        low, high = self.low[cards & ((1 << self.width) - 1)], self.high[cards >> self.width]
        if self.equal and high > low:
            low, high = high, low
        return high << self.width | low


def halves_of(scores: Square) -> Halves | None:
    """How a machine falls into halves; ``None`` where that saves nothing."""
    width = len(scores) // 2
    if len(scores) % 2 or len({score for row in scores[:width] for score in row[width:]}) > 1:
        return None
    low, high = ([row[at : at + width] for row in scores[at : at + width]] for at in (0, width))
    equal = low == high
    sets = _stand_ins(low), _stand_ins(high)
    lows, highs = (len(set(each)) for each in sets)
    different = lows * (lows + 1) // 2 if equal else lows * highs
    if different * WORTHWHILE > 1 << len(scores):
        return None
    return Halves(width, *sets, equal, different)


def _stand_ins(scores: Square) -> list[int]:
    """For every set of cards the lowest one that some renaming turns it into."""
    renamed = [_images(renaming) for renaming in renamings(scores)]
    found = [-1] * (1 << len(scores))
    for lowest in range(len(found)):
        fresh = [lowest] if found[lowest] < 0 else []
        while fresh:
            cards = fresh.pop()
            if found[cards] < 0:
                found[cards] = lowest
                fresh += [images[cards] for images in renamed]
    return found


def _images(renaming: Sequence[int]) -> list[int]:
    """For every set of cards the set with their new names."""
    images = [0]
    for name in renaming:
        images += [image | 1 << name for image in images]
    return images


def renamings(scores: Square) -> Iterator[tuple[int, ...]]:
    """Renamings that keep all scores; all there are can be put together from these."""
    for card in range(len(scores)):
        for name in range(card + 1, len(scores)):
            found = _completed(scores, (*range(card), name))
            if found:
                yield found


def _completed(scores: Square, names: tuple[int, ...]) -> tuple[int, ...]:
    """A renaming that begins with ``names`` and keeps all scores; empty where there is none."""
    last = len(names) - 1
    row, renamed = scores[last], scores[names[last]]
    if any(row[card] != renamed[name] for card, name in enumerate(names[:last])):
        return ()
    if len(names) == len(scores):
        return names
    others = (name for name in range(len(scores)) if name not in names)
    return next((found for name in others if (found := _completed(scores, (*names, name)))), ())
