"""The two searching policies over the cards of one machine: exact by tables, grown beyond 16 cards.

Cards are positions here, from 0 without a gap, and a set of them is a bit mask.
"""

from collections.abc import Collection
from typing import NamedTuple

from gpucore.topology import greedy
from gpucore.topology.search import search_of
from gpucore.topology.subsets import MAX_EXACT, STEP, Scores, table_of


class Ground(NamedTuple):
    """The cards that are searched.

    Attributes:
        scores: of their pairs, square and symmetric.
        numas: NUMA node of each, -1 unknown.
    """

    scores: Scores
    numas: tuple[int, ...]

    @property
    def exact(self) -> bool:
        """Few enough cards to look at all sets of them."""
        return len(self.scores) <= MAX_EXACT

    def best_effort(self, free: int, count: int, require: int) -> int:
        """The best group of the best cut of ``free``."""
        if not self.exact:
            return self._grown(free, count, require)
        return search_of(self.scores, self.numas, count).best(free, require).mask

    def bandwidth(self, free: int, count: int, require: int) -> int:
        """The group whose smallest pair is largest, then of the largest sum."""
        if not self.exact:
            return self._grown(free, count, require)
        groups = table_of(self.scores, self.numas).broadest(count)
        return next(mask for mask in groups if not (mask & ~free or require & ~mask))

    def total(self, free: int, count: int) -> int:
        """The total of the best cut of ``free`` into groups of ``count``."""
        if not self.exact:
            return greedy.cut(self.scores, positions(free), count)
        return search_of(self.scores, self.numas, count).total(free) * STEP

    def _grown(self, free: int, count: int, require: int) -> int:
        return mask_of(greedy.grow(self.scores, positions(free), count, positions(require)))


def mask_of(cards: Collection[int]) -> int:
    """The set of some positions."""
    return sum(1 << card for card in cards)


def positions(mask: int) -> tuple[int, ...]:
    """The positions in a set, ascending."""
    return tuple(card for card in range(mask.bit_length()) if mask >> card & 1)
