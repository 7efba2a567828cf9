"""Sets that stand for others: machines of equal halves, searched with and without knowing it."""

from itertools import permutations
from random import Random

import brute
import pytest

from gpucore.topology.machines import BRIDGES, DGX1_VOLTA, DGX2
from gpucore.topology.search import Search
from gpucore.topology.subsets import Table
from gpucore.topology.symmetry import halves_of, renamings

Square = tuple[tuple[int, ...], ...]


def boards(board: Square, cross: int) -> Square:
    """A machine of two such boards with equal links between them."""
    width = len(board)
    return tuple(
        tuple(
            cross if a // width != b // width else board[a % width][b % width]
            for b in range(2 * width)
        )
        for a in range(2 * width)
    )


def nested(chance: Random, doublings: int) -> Square:
    """A tree of switches, each level with a score of its own."""
    square: Square = ((0,),)
    for _ in range(doublings):
        square = boards(square, 10 * chance.randint(0, 9))
    return square


def shuffled(scores: Square) -> Square:
    """The same machine with its cards numbered at random."""
    order = Random(3).sample(range(len(scores)), len(scores))
    return tuple(tuple(scores[a][b] for b in order) for a in order)


def broken(scores: Square, first: int, second: int, score: int) -> Square:
    """The same machine with another link between two cards."""
    return tuple(
        tuple(score if {a, b} == {first, second} else old for b, old in enumerate(row))
        for a, row in enumerate(scores)
    )


MACHINES = {
    "bridges": boards(BRIDGES.matrix.scores, 0),
    "dgx2": DGX2.matrix.scores,
    "two-dgx1": boards(DGX1_VOLTA.matrix.scores, 10),
    "shuffled bridges": shuffled(boards(BRIDGES.matrix.scores, 0)),
    "broken bridges": broken(boards(BRIDGES.matrix.scores, 0), 1, 9, 20),
    "broken dgx2": broken(DGX2.matrix.scores, 3, 12, 510),
    "broken two-dgx1": broken(boards(DGX1_VOLTA.matrix.scores, 10), 0, 1, 50),
    "shuffled broken two-dgx1": shuffled(broken(boards(DGX1_VOLTA.matrix.scores, 10), 7, 10, 0)),
}


@pytest.mark.parametrize("seed", range(40))
def test_trees_of_switches_agree_with_enumeration(seed: int) -> None:
    """On machines full of equal parts the group is the one that enumeration prefers."""
    chance = Random(seed)
    scores, count = nested(chance, 3), chance.randint(2, 5)
    free = sorted(chance.sample(range(8), chance.randint(count, 8)))
    require = chance.sample(free, chance.randint(0, count - 1))
    expected = brute.best_effort(scores, [-1] * 8, free, count, require)
    mask, must = (sum(1 << card for card in cards) for cards in (free, require))
    assert Search(Table(scores, [-1] * 8), count).best(mask, must).mask == sum(
        1 << card for card in expected
    )


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("count", [2, 3, 5, 6])
def test_what_stands_for_others_changes_no_answer(machine: str, count: int) -> None:
    """Groups and totals of 16 cards are those of a search that knows of no symmetry."""
    scores, chance = MACHINES[machine], Random(count)
    helped = Search(Table(scores, [-1] * 16), count)
    plain = Search(Table(scores, [-1] * 16, symmetric=False), count)
    for _ in range(12):
        cards = chance.sample(range(16), chance.randint(count, 16))
        free, must = sum(1 << card for card in cards), 1 << cards[0]
        assert helped.best(free) == plain.best(free)
        assert helped.best(free, must) == plain.best(free, must)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_set_and_its_stand_in_have_the_same_scores(machine: str) -> None:
    """As many cards, the same pairs, and a stand-in that stands for itself."""
    scores, chance = MACHINES[machine], Random(7)
    halves = halves_of(scores)
    assert halves is not None

    def pairs(mask: int) -> list[int]:
        members = [card for card in range(16) if mask >> card & 1]
        return sorted(scores[a][b] for a in members for b in members if a < b)

    for cards in (chance.getrandbits(16) for _ in range(300)):
        other = halves.stand_in(cards)
        assert other.bit_count() == cards.bit_count()
        assert pairs(other) == pairs(cards)
        assert halves.stand_in(other) == other


def test_machines_that_have_halves_and_that_have_not() -> None:
    """Real machines of 16 cards fall into few different sets; a random one into none alike."""
    different = {name: found.different for name, m in MACHINES.items() if (found := halves_of(m))}
    assert different == {
        "bridges": 120,
        "dgx2": 231,
        "two-dgx1": 2926,
        "shuffled bridges": 225,
        "broken bridges": 820,
        "broken dgx2": 5184,
        "broken two-dgx1": 10336,
        "shuffled broken two-dgx1": 65536,
    }
    chance = Random(1)
    drawn = {(a, b): 10 * chance.randint(1, 60) for a in range(8) for b in range(a)}
    assert (
        halves_of([[drawn.get((max(a, b), min(a, b)), 0) for b in range(8)] for a in range(8)])
        is None
    )
    assert halves_of(BRIDGES.matrix.part((0, 1, 2)).scores) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(10))
def test_renamings_keep_scores_and_make_up_all_that_do(seed: int) -> None:
    """Put together they reach every renaming that enumeration finds, and no other."""
    scores = nested(Random(seed), 2) if seed % 2 else boards(((0, 10 * seed), (10 * seed, 0)), 20)
    width, across = len(scores), [(0,), (0,), (0,), (10 * (seed % 3),)]
    expected = {
        names
        for names in permutations(range(width))
        if all(
            scores[a][b] == scores[names[a]][names[b]] and across[a] == across[names[a]]
            for a in range(width)
            for b in range(width)
        )
    }
    found, fresh = set(), [tuple(range(width))]
    while fresh:
        names = fresh.pop()
        if names not in found:
            found.add(names)
            fresh += [
                tuple(renaming[name] for name in names) for renaming in renamings(scores, across)
            ]
    assert found == expected
