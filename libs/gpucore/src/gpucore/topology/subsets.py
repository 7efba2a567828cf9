"""Tables over all sets of cards of one machine, for the searches that answer exactly.

A set of cards is a bit mask. For 16 cards there are 65,536 sets: few enough to write down once what
each is worth, after which a question is a few look-ups. The sums are made with the table, the
groups of a size in order when that size is first asked for, what is heaviest inside a set when that
set is. Not for more than 16 cards: see :mod:`gpucore.topology.greedy`.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache, partial
from typing import Final

from gpucore.topology.groups import Bucket, Groups, orders
from gpucore.topology.lanes import pair_sums, subset_maxima, unions
from gpucore.topology.symmetry import halves_of

MAX_EXACT: Final = 16
"""Cards up to which answers are exact."""

STEP: Final = 10
"""Every pair score is a multiple of this; tables hold scores in this unit, to fit 15 bits."""

KEPT_TABLES: Final = 32
"""Machine shapes whose tables are kept; one of 16 cards takes some 5 MB when all is asked."""

Scores = tuple[tuple[int, ...], ...]
"""Square, symmetric, in multiples of :data:`STEP`, 0 on the diagonal."""

SEARCHED: Final = 1200
"""Really different sets up to which what is learnt of them is help enough for a search."""


class Table:
    """What one machine's links say about all sets of its cards. Grows as questions are asked.

    Args:
        scores, numas: as in :func:`table_of`.
        symmetric: look for sets that can stand for others; answers are the same without.

    Attributes:
        cards: how many there are.
        sums: for every set of cards the sum over its pairs, in steps.
        lower: for every set the cards that are lower than one of its members and interchangeable
            with it.
        nodes: for every set a bit for each NUMA node it touches, where more than one is known.
        stand_in: gives the set that is looked at instead of one; what is asked here is the same.
        alike: nothing tells any two cards apart: an NVSwitch, one host bridge, or no links known.
    """

    def __init__(self, scores: Scores, numas: Sequence[int], *, symmetric: bool = True) -> None:
        self.cards = len(scores)
        self.steps = [[score // STEP for score in row] for row in scores]
        self.sums = pair_sums(self.steps)
        twins = _twins(scores, numas)
        self.alike = all(lower == (1 << card) - 1 for card, lower in enumerate(twins))
        self.lower = unions(twins)
        self._node_bits = _node_bits(numas)
        self.nodes = unions(self._node_bits)
        self._halves = halves_of(self.steps) if symmetric and not self.alike else None
        self.stand_in = self._halves.stand_in if self._halves else _itself
        self._groups: dict[int, Groups] = {}
        self._maxima: dict[int, array[int]] = {}
        self._heaviest: dict[tuple[int, int], int] = {}
        self._broadest: dict[int, list[int]] = {}

    def groups(self, size: int) -> Iterable[Bucket]:
        """All groups of ``size`` cards, heaviest first."""
        if size not in self._groups:
            self._groups[size] = Groups(self.sums, self._node_bits, size)
        return self._groups[size]

    @property
    def different(self) -> int:
        """How many sets differ in more than the names of their cards, as far as is known."""
        return self._halves.different if self._halves else 1 << self.cards

    def most(self, size: int) -> Callable[[int], int] | None:
        """Answers for a set of cards: no cut of it into groups of ``size`` is worth more.

        ``None`` where nothing is known, or cuts are of so few groups that it would save nothing.
        """
        if self._halves is None or self.different <= SEARCHED:
            return None
        if size < 2 or size * 5 > self.cards * 2:
            return None
        return self._halves.most(size)

    def heaviest(self, size: int) -> Callable[[int], int]:
        """Answers for a set of cards: the weight of the best group of ``size`` inside, 0 if none.

        On a machine without symmetry from a table of all sets, for there every set is another.
        """
        if size < 2:
            return _nothing
        if self._halves is None:
            return self.maxima(size).__getitem__
        return partial(self._remembered, size)

    def _remembered(self, size: int, free: int) -> int:
        key = size, free
        if key not in self._heaviest:
            self._heaviest[key] = self._found(size, free)
        return self._heaviest[key]

    def maxima(self, size: int) -> "array[int]":
        """For every set of cards the weight of the best group of ``size`` inside it."""
        if size not in self._maxima:
            weights = array("H", bytes(2 << self.cards))
            for mask in orders(self._node_bits)[size].masks:
                weights[mask] = self.sums[mask]
            self._maxima[size] = subset_maxima(weights, self.cards)
        return self._maxima[size]

    def _found(self, size: int, free: int) -> int:
        more, sums = free.bit_count() - size, self.sums
        if more < 2:
            rests = [free ^ 1 << card for card in range(self.cards) if free >> card & 1]
            return 0 if more < 0 else max(sums[rest] for rest in rests) if more else sums[free]
        taken = ~free
        groups = self.groups(size)
        return next(weight for weight, masks in groups for mask in masks if not mask & taken)

    def broadest(self, size: int) -> list[int]:
        """All groups of ``size`` cards, the one whose smallest pair is largest first."""
        if size not in self._broadest:
            masks = [mask for _, bucket in self.groups(size) for mask in bucket]
            masks.sort(key=self.weakest.__getitem__, reverse=True)
            self._broadest[size] = masks
        return self._broadest[size]

    @cached_property
    def weakest(self) -> list[int]:
        """For every set of cards its smallest pair, in steps; very large for a single card."""
        found = [sum(map(sum, self.steps))]
        for card, row in enumerate(self.steps):
            to_card = found[:1]
            for score in row[:card]:
                to_card += [min(weakest, score) for weakest in to_card]
            found += map(min, found, to_card)
        return found


def _itself(free: int) -> int:
    return free


def _nothing(free: int) -> int:
    del free  # groups of one card have no pairs
    return 0


@lru_cache(maxsize=KEPT_TABLES)
def table_of(scores: Scores, numas: tuple[int, ...]) -> Table:
    """The table of a machine, made once.

    Args:
        scores: of its cards in order of index; at most :data:`MAX_EXACT` rows.
        numas: NUMA node of each card, negative where unknown.
    """
    return Table(scores, numas)


def _node_bits(numas: Sequence[int]) -> tuple[int, ...]:
    """For each card a bit for its NUMA node; none where only one node is known, or no node."""
    known = sorted({numa for numa in numas if numa >= 0})
    bits = {numa: 1 << at for at, numa in enumerate(known)} if known[1:] else {}
    return tuple(bits.get(numa, 0) for numa in numas)


def _twins(scores: Scores, numas: Sequence[int]) -> list[int]:
    """For each card the lower cards that nothing tells apart from it."""
    cards = range(len(scores))

    def alike(a: int, b: int) -> bool:
        others = (c for c in cards if c not in {a, b})
        return numas[a] == numas[b] and all(scores[a][c] == scores[b][c] for c in others)

    return [sum(1 << a for a in range(b) if alike(a, b)) for b in cards]
