"""What the cuts of a machine of two halves are worth at most, told without looking for them.

A group is a part in the one half and a part in the other, and no link across is better than the
best of them. So give each part half of what its links across can be worth, and cut each half by
itself, whatever the parts of the other: no cut of the machine is worth more than the two together.
The cards that are left over are a part in each half too, of sizes that are known together. Where
the links across are the weakest, as they are on real machines, hardly any cut is worth less than
the best one by this reckoning, and a search can leave nearly all others alone.
"""

from collections.abc import Sequence
from operator import add

from gpucore.topology.lanes import best_beside, best_parts, pair_sums

Square = Sequence[Sequence[int]]
Shares = Sequence[Sequence[int]]
Rows = Sequence[tuple[int, ...]]


class Bounds:
    """Answers for a set of cards: no cut of it into groups of ``size`` is worth more.

    Args:
        low, high: scores inside the halves, which have equally many cards.
        across: the best score of a pair across.
        size: cards of a group.
    """

    def __init__(self, low: Square, high: Square, across: int, size: int) -> None:
        self._size, self._width = size, len(low)
        # For a single group what is left over is reckoned as a part like others: too much, but
        # nobody needs it.
        lefts = max(1, min(size, 2 * self._width - 2 * size + 1))
        lows = _shares(low, across, size, lefts)
        highs = lows if low == high else _shares(high, across, size, lefts)
        sides = [_side(lows, highs, across, over) for over in range(lefts)]
        self._sides = sides + sides[:1] * (size - lefts)

    def __call__(self, cards: int) -> int:
        low, high = self._sides[cards.bit_count() % self._size]
        width = self._width
        most: int = max(map(add, low[cards & (1 << width) - 1], high[cards >> width]))
        return most >> 1


def _side(lows: Shares, highs: Shares, across: int, over: int) -> tuple[Rows, Rows]:
    """For every set of each half a row by the cards that are left over in the low half."""
    mirrored = [
        [worth + 2 * across * left * (over - left) for worth in highs[over - left]]
        if 0 < left < over
        else highs[over - left]
        for left in range(over + 1)
    ]
    return list(zip(*lows[: over + 1], strict=True)), list(zip(*mirrored, strict=True))


def _shares(scores: Square, across: int, size: int, lefts: int) -> Shares:
    """For each number of cards left over: twice the most that the cuts of a half are worth."""
    cards = len(scores)
    twice = [2 * inside for inside in pair_sums(scores)]
    sizes = [mask.bit_count() for mask in range(1 << cards)]
    parts = [
        inside + across * count * (size - count) if count <= size else -1
        for inside, count in zip(twice, sizes, strict=True)
    ]
    whole = best_parts(parts, cards)
    return [whole, *(best_beside(twice, whole, cards, left) for left in range(1, lefts))]
