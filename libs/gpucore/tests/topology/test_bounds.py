"""What a cut is worth at most: never too little, and on real machines hardly ever too much."""

from collections.abc import Iterator
from random import Random

import brute
import pytest

from gpucore.topology.bounds import Bounds
from gpucore.topology.lanes import best_beside, best_parts
from gpucore.topology.machines import BRIDGES, DGX1_VOLTA, DGX2
from gpucore.topology.search import Search
from gpucore.topology.subsets import STEP, Table

Square = list[list[int]]


def drawn(chance: Random, width: int, most_across: int) -> Square:
    """A machine of two random halves, its links across at most so good."""
    cards = range(2 * width)
    scores = [[0] * len(cards) for _ in cards]
    for a in cards:
        for b in range(a):
            inside = a // width == b // width
            scores[a][b] = scores[b][a] = chance.randint(0, 9 if inside else most_across)
    return scores


def bounds_of(scores: Square, count: int) -> Bounds:
    """The bounds of a machine whose cards are numbered half by half."""
    width = len(scores) // 2
    low, high = ([row[at : at + width] for row in scores[at : at + width]] for at in (0, width))
    across = max(max(row[width:]) for row in scores[:width])
    return Bounds(low, high, across, count)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("most_across", [1, 9])
def test_no_cut_is_worth_more_than_its_bound(count: int, most_across: int) -> None:
    """For all sets of eight cards, whether links across are weak or as good as those within."""
    scores = drawn(Random(10 * count + most_across), 4, most_across)
    most = bounds_of(scores, count)
    for mask in range(1 << 8):
        cards = [card for card in range(8) if mask >> card & 1]
        assert most(mask) >= brute.best_cut(scores, cards, count)


@pytest.mark.parametrize("count", [3, 4, 5])
def test_bounds_of_twelve_cards(count: int) -> None:
    """With three groups and a rest, too, the best cut is never above its bound."""
    chance = Random(count)
    scores = drawn(chance, 6, 2)
    most, search = bounds_of(scores, count), Search(Table(_tens(scores), [-1] * 12), count)
    for mask in (chance.getrandbits(12) for _ in range(60)):
        assert most(mask) >= search.best(mask).total


def _tens(scores: Square) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(STEP * score for score in row) for row in scores)


def twice(board: Square, across: int) -> Square:
    """A machine of two such boards."""
    rows = [[*row, *[across] * len(row)] for row in board]
    return rows + [row[len(board) :] + row[: len(board)] for row in rows]


def steps(scores: tuple[tuple[int, ...], ...]) -> Square:
    """Scores in the unit of the tables."""
    return [[score // STEP for score in row] for row in scores]


TIGHT = {
    "two DGX-1": (twice(steps(DGX1_VOLTA.matrix.scores), 1), (2, 3, 4)),
    "DGX-2": (steps(DGX2.matrix.scores), (2, 3, 4, 7)),
    "bridges": (twice(steps(BRIDGES.matrix.scores), 0), (2, 4, 6)),
}


@pytest.mark.parametrize("machine", TIGHT)
def test_bounds_are_reached_on_real_machines(machine: str) -> None:
    """Where the links across are the weakest, the best cut of all 16 cards is worth its bound."""
    scores, counts = TIGHT[machine]
    for count in counts:
        plain = Search(Table(_tens(scores), [-1] * 16), count)
        assert bounds_of(scores, count)((1 << 16) - 1) == plain.total((1 << 16) - 1)


def inside(whole: int) -> Iterator[int]:
    """All sets inside a set."""
    return (part for part in range(whole + 1) if not part & ~whole)


@pytest.mark.parametrize("seed", range(5))
def test_packed_parts_equal_a_recursion(seed: int) -> None:
    """For every set the best way to cut it into parts, of which some are forbidden."""
    chance = Random(seed)
    worths = [chance.randint(-3, 20) if mask.bit_count() > 1 else 1 for mask in range(1 << 5)]
    expected = [0]
    for whole in range(1, 1 << 5):
        parts = [part for part in inside(whole) if part and worths[part] >= 0]
        expected.append(max(worths[part] + expected[whole - part] for part in parts))
    assert list(best_parts(worths, 5)) == expected


@pytest.mark.parametrize("size", range(4))
def test_packed_rests_equal_a_loop(size: int) -> None:
    """For every set the best choice of so many of its cards beside what the others are worth."""
    chance = Random(size)
    worths, others = ([chance.randint(0, 50) for _ in range(1 << 5)] for _ in range(2))
    expected = [
        max(
            (worths[p] + others[whole - p] for p in inside(whole) if p.bit_count() == size),
            default=0,
        )
        for whole in range(1 << 5)
    ]
    assert list(best_beside(worths, others, 5, size)) == expected
