"""Sets of cards that differ in names only, so that what is learnt of one holds for the others.

Machines of 16 cards are made of two sockets or boards, each with its own pattern of links. A
renaming of the cards of a half keeps every score if it keeps the links inside and gives each card's
name to one that is joined to the other half in the same way; and where the halves are equal they
can be exchanged. Of the 65,536 sets of a machine some hundreds to few thousands are then really
different. Not promised: every symmetry is found; a machine without such halves has none here, and
is searched without this help.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gpucore.topology.bounds import Bounds

Square = Sequence[Sequence[int]]

WORTHWHILE: Final = 8
"""Sets there must be for each that is really different: with fewer it costs more than it saves."""

BYTE: Final = 255


class Halves(NamedTuple):
    """A machine of two halves.

    Attributes:
        width: cards of the low half.
        low, high: for every set of cards of a half the one that stands for it.
        equal: the halves can be exchanged.
        different: how many sets stand for others.
        boards: scores inside the low and inside the high half.
        across: the best score of a pair across.
    """

    width: int
    low: list[int]
    high: list[int]
    equal: bool
    different: int
    boards: tuple[Square, Square]
    across: int

    def stand_in(self, cards: int) -> int:
        """The set that stands for ``cards``: all its groups and cuts have the same scores."""
        low, high = self.low[cards & ((1 << self.width) - 1)], self.high[cards >> self.width]
        if self.equal and high > low:
            low, high = high, low
        return high << self.width | low

    def most(self, size: int) -> Callable[[int], int]:
        """Answers for a set of cards: no cut of it into groups of ``size`` is worth more."""
        return Bounds(*self.boards, self.across, size)


class Mixed(NamedTuple):
    """A machine whose cards are not numbered half by half.

    Attributes:
        there, back: names half by half for sets of the lower eight and of the other cards, and
            the cards' own names for sets of those.
    """

    halves: Halves
    there: tuple[list[int], list[int]]
    back: tuple[list[int], list[int]]

    @property
    def different(self) -> int:
        """How many sets stand for others."""
        return self.halves.different

    def stand_in(self, cards: int) -> int:
        """The set that stands for ``cards``, as :meth:`Halves.stand_in`."""
        found = self.halves.stand_in(self.there[0][cards & BYTE] | self.there[1][cards >> 8])
        return self.back[0][found & BYTE] | self.back[1][found >> 8]

    def most(self, size: int) -> Callable[[int], int]:
        """As :meth:`Halves.most`."""
        most, (low, high) = self.halves.most(size), self.there
        return lambda cards: most(low[cards & BYTE] | high[cards >> 8])


def halves_of(scores: Square) -> Halves | Mixed | None:
    """How a machine falls into halves; ``None`` where that saves nothing."""
    if len(scores) % 2:
        return None
    order = _half_by_half(scores)
    clear = order is not None
    order = order or list(range(len(scores)))
    found = _numbered([[scores[a][b] for b in order] for a in order])
    if not clear and found.different * WORTHWHILE > 1 << len(scores):
        return None
    if order == list(range(len(scores))):
        return found
    names = [order.index(card) for card in range(len(scores))]
    return Mixed(found, _by_bytes(names), _by_bytes(order))


def _half_by_half(scores: Square) -> list[int] | None:
    """The cards of one half, then the others; ``None`` where no halves stand out.

    Halves stand out where links above some score join the cards of each, and none joins the two.
    """
    cards = list(range(len(scores)))
    for most_across in sorted({score for row in scores for score in row}):
        half = _joined(scores, 0, most_across)
        if 2 * len(half) == len(cards):
            order = sorted(cards, key=lambda card: (card not in half, card))
            if len(_joined(scores, order[-1], most_across)) == len(half):
                return order
    return None


def _joined(scores: Square, first: int, above: int) -> set[int]:
    """The cards that links of more than ``above`` join to ``first``, over others too."""
    found, fresh = set(), [first]
    while fresh:
        card = fresh.pop()
        if card not in found:
            found.add(card)
            fresh += [other for other, score in enumerate(scores[card]) if score > above]
    return found


def _numbered(scores: Square) -> Halves:
    """The halves of a machine whose cards are numbered half by half."""
    width = len(scores) // 2
    low, high = ([row[at : at + width] for row in scores[at : at + width]] for at in (0, width))
    across = [tuple(row[width:]) for row in scores[:width]]
    back = [tuple(row[:width]) for row in scores[width:]]
    equal = low == high and across == back
    sets = _stand_ins(low, across), _stand_ins(high, back)
    lows, highs = (len(set(each)) for each in sets)
    different = lows * (lows + 1) // 2 if equal else lows * highs
    return Halves(width, *sets, equal, different, (low, high), max(map(max, across)))


def _stand_ins(scores: Square, across: Square) -> list[int]:
    """For every set of cards of a half the lowest one that some renaming turns it into."""
    renamed = [_images(renaming) for renaming in renamings(scores, across)]
    found = [-1] * (1 << len(scores))
    for lowest in range(len(found)):
        fresh = [lowest] if found[lowest] < 0 else []
        while fresh:
            cards = fresh.pop()
            if found[cards] < 0:
                found[cards] = lowest
                fresh += [images[cards] for images in renamed]
    return found


def _by_bytes(names: Sequence[int]) -> tuple[list[int], list[int]]:
    """For every set of the lower eight cards, and of the others, the set with their new names."""
    return _images(names[:8]), _images(names[8:])


def _images(renaming: Sequence[int]) -> list[int]:
    """For every set of cards the set with their new names."""
    images = [0]
    for name in renaming:
        images += [image | 1 << name for image in images]
    return images


def renamings(scores: Square, across: Square) -> list[tuple[int, ...]]:
    """Renamings that keep all scores; all there are can be put together from these.

    Args:
        scores: of the cards that are renamed.
        across: for each of them how it is joined to all others, who keep their names.
    """
    found: list[tuple[int, ...]] = []
    kinds = [(row, sorted(inside)) for row, inside in zip(across, scores, strict=True)]
    for card in reversed(range(len(scores))):
        reached = {card}
        for name in range(card + 1, len(scores)):
            if name not in reached and (names := _completed(scores, kinds, (*range(card), name))):
                found.append(names)
                reached = _reached(card, found)
    return found


def _reached(card: int, renamings: Sequence[Sequence[int]]) -> set[int]:
    """All names that the renamings, one after the other, can give to a card."""
    reached, fresh = set(), [card]
    while fresh:
        name = fresh.pop()
        if name not in reached:
            reached.add(name)
            fresh += [names[name] for names in renamings]
    return reached


def _completed(scores: Square, kinds: Sequence[object], names: tuple[int, ...]) -> tuple[int, ...]:
    """A renaming that begins with ``names`` and keeps all scores; empty where there is none.

    Args:
        kinds: what is the same of cards that can have each other's name.
    """
    last = len(names) - 1
    row, renamed = scores[last], scores[names[last]]
    if kinds[last] != kinds[names[last]]:
        return ()
    if any(row[card] != renamed[name] for card, name in enumerate(names[:last])):
        return ()
    if len(names) == len(scores):
        return names
    others = (name for name in range(len(scores)) if name not in names)
    return next((t for name in others if (t := _completed(scores, kinds, (*names, name)))), ())
