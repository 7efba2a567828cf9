"""Tables over all sets of cards of one machine, for the searches that answer exactly.

A set of cards is a bit mask. For 16 cards there are 65,536 sets: few enough to write down once what
each is worth, after which a question is a few look-ups. The sums are made with the table (a few
milliseconds), the rest when a group size is first asked for. Not for more than 16 cards: see
:mod:`gpucore.topology.greedy`.
"""

from array import array
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Final

from gpucore.topology.lanes import LIMIT, best_pairings, subset_maxima

MAX_EXACT: Final = 16
"""Cards up to which answers are exact."""

STEP: Final = 10
"""Every pair score is a multiple of this; tables hold scores in this unit, to fit 15 bits."""

KEPT_TABLES: Final = 32
"""Machine shapes whose tables are kept; one of 16 cards takes some 10 MB when all is asked."""

Scores = tuple[tuple[int, ...], ...]
"""Square, symmetric, in multiples of :data:`STEP`, 0 on the diagonal."""


Group = tuple[int, int, int]
"""A possible group of cards: its weight (sum over its pairs, in steps), its mask, and what bars it:
its cards, and :data:`MAX_EXACT` bits higher those that must not be free (see :func:`veto`)."""


class Table:
    """What one machine's links say about all sets of its cards. Grows as questions are asked.

    Attributes:
        cards: how many there are.
        sums: for every set of cards the sum over its pairs, in steps.
        alike: nothing tells any two cards apart: an NVSwitch, one host bridge, or no links known.
    """

    def __init__(self, scores: Scores, numas: Sequence[int]) -> None:
        self.cards = len(scores)
        self.sums = _sums(scores)
        self._scores = scores
        self._nodes = _unions(_node_bits(numas))
        twins = _twins(scores, numas)
        self.alike = all(lower == (1 << card) - 1 for card, lower in enumerate(twins))
        self._lower = _unions(twins)
        self._groups: dict[int, list[Group]] = {}
        self._heaviest: dict[int, array[int]] = {}
        self._broadest: dict[int, list[int]] = {}

    def groups(self, size: int) -> list[Group]:
        """All groups of ``size`` cards: heaviest, then fewest NUMA nodes, then lowest indexes."""
        if size not in self._groups:
            masks, nodes, lower = list(_masks(self.cards, size)), self._nodes, self._lower
            if nodes[-1]:
                masks.sort(key=lambda mask: max(nodes[mask].bit_count(), 1))
            by_weight: dict[int, list[int]] = {}
            for mask in masks:
                by_weight.setdefault(self.sums[mask], []).append(mask)
            self._groups[size] = [
                (weight, mask, mask | (lower[mask] & ~mask) << MAX_EXACT)
                for weight in sorted(by_weight, reverse=True)
                for mask in by_weight[weight]
            ]
        return self._groups[size]

    def heaviest(self, size: int) -> "array[int]":
        """For every set of cards the weight of the best group of ``size`` inside it, 0 if none."""
        if size not in self._heaviest:
            weights = array("H", bytes(2 << self.cards))
            if size > 1:
                for mask in _masks(self.cards, size):
                    weights[mask] = self.sums[mask]
                weights = subset_maxima(weights, self.cards)
            self._heaviest[size] = weights
        return self._heaviest[size]

    def ceilings(self, size: int) -> "array[int]":
        """For every set of cards a total that no cut into groups of ``size`` exceeds.

        For pairs it is exact, because a search among many small groups is the hardest; for others
        it says nothing yet.
        """
        if size == 2:
            return best_pairings([[score // STEP for score in row] for row in self._scores])
        return array("H", [LIMIT]) * (1 << self.cards)

    def broadest(self, size: int) -> list[int]:
        """All groups of ``size`` cards, the one whose smallest pair is largest first."""
        if size not in self._broadest:
            masks = [mask for _, mask, _ in self.groups(size)]
            masks.sort(key=self.weakest.__getitem__, reverse=True)
            self._broadest[size] = masks
        return self._broadest[size]

    @cached_property
    def weakest(self) -> list[int]:
        """For every set of cards its smallest pair, in steps; very large for a single card."""
        found = [sum(map(sum, self._scores))]
        for card, row in enumerate(self._scores):
            to_card = found[:1]
            for score in row[:card]:
                to_card += [min(weakest, score // STEP) for weakest in to_card]
            found += map(min, found, to_card)
        return found


def veto(free: int) -> int:
    """What bars a group when ``free`` are the free cards, to be compared with its own veto.

    A group is barred by each of its cards that is not free, and by each free card that is lower
    than one of its cards and interchangeable with it: the group with that card is as good.
    """
    return (free << MAX_EXACT) | (~free & ((1 << MAX_EXACT) - 1))


@lru_cache(maxsize=KEPT_TABLES)
def table_of(scores: Scores, numas: tuple[int, ...]) -> Table:
    """The table of a machine, made once.

    Args:
        scores: of its cards in order of index; at most :data:`MAX_EXACT` rows.
        numas: NUMA node of each card, negative where unknown.
    """
    return Table(scores, numas)


def _sums(scores: Scores) -> list[int]:
    """The sum over the pairs of every set, by doubling: with each card come all sets with it."""
    sums = [0]
    for card, row in enumerate(scores):
        to_card = [0]
        for score in row[:card]:
            to_card += [joined + score // STEP for joined in to_card]
        sums += [a + b for a, b in zip(sums, to_card, strict=True)]
    return sums


def _unions(masks: Sequence[int]) -> list[int]:
    """For every set of cards the union of the masks of its members."""
    if not any(masks):
        return [0] * (1 << len(masks))
    unions = [0]
    for mask in masks:
        unions += [union | mask for union in unions]
    return unions


def _node_bits(numas: Sequence[int]) -> list[int]:
    """For each card a bit for its NUMA node; none where only one node is known, or no node."""
    known = sorted({numa for numa in numas if numa >= 0})
    return [1 << known.index(numa) if numa >= 0 and known[1:] else 0 for numa in numas]


def _twins(scores: Scores, numas: Sequence[int]) -> list[int]:
    """For each card the lower cards that nothing tells apart from it."""
    cards = range(len(scores))

    def alike(a: int, b: int) -> bool:
        others = (c for c in cards if c not in {a, b})
        return numas[a] == numas[b] and all(scores[a][c] == scores[b][c] for c in others)

    return [sum(1 << a for a in range(b) if alike(a, b)) for b in cards]


@lru_cache(maxsize=64)
def _masks(cards: int, size: int) -> tuple[int, ...]:
    """All sets of ``size`` cards, in order of their lowest, next lowest ... card."""
    return tuple(map(sum, combinations([1 << card for card in range(cards)], size)))
