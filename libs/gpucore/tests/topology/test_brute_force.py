"""All policies against plain enumeration, on machines of random links."""

from collections.abc import Sequence
from random import Random

import brute
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucore.topology.lanes import best_pairings, subset_maxima
from gpucore.topology.links import Matrix
from gpucore.topology.policies import Group, plan
from gpucore.topology.search import Search
from gpucore.topology.subsets import Table

pytestmark = pytest.mark.slow

LINKS: Sequence[tuple[str, ...]] = [
    (),
    ("SYS",),
    ("PHB",),
    ("PIX",),
    ("NV1", "SYS"),
    ("NV2", "PIX"),
    ("NV2",),
    ("NV18", "PSB"),
]
"""Few kinds, so that ties, the hard part, are common."""


@st.composite
def questions(draw: st.DrawFn) -> tuple[Matrix, list[int], int, list[int]]:
    """A machine of up to 8 cards, free cards, a size, and required cards: always answerable."""
    cards = draw(st.integers(1, 8))
    kinds = draw(st.lists(st.sampled_from(LINKS), min_size=1, max_size=4))
    pairs = [(a, b) for a in range(cards) for b in range(a + 1, cards)]
    links = {pair: draw(st.sampled_from(kinds)) for pair in pairs}
    numa = draw(st.dictionaries(st.integers(0, cards - 1), st.integers(0, 2)))
    free = sorted(draw(st.sets(st.integers(0, cards - 1), min_size=1)))
    count = draw(st.integers(1, len(free)))
    require = sorted(draw(st.sets(st.sampled_from(free), max_size=count)))
    matrix = Matrix(gpus=tuple(range(cards)), links=links, numa=numa)  # type: ignore[arg-type]
    return matrix, free, count, require


@settings(max_examples=200, deadline=None)
@given(questions())
def test_best_effort_is_what_enumeration_finds(
    question: tuple[Matrix, list[int], int, list[int]],
) -> None:
    """Group, score and total are those of the best cut, ties by group, NUMA, then index."""
    matrix, free, count, require = question
    expected = brute.best_effort(matrix.scores, matrix.numas, free, count, require)
    rest = brute.best_cut(matrix.scores, set(free) - set(expected), count)
    score = brute.total(matrix.scores, expected)
    assert plan(matrix, free, count, require) == Group(expected, score, score + rest)


@settings(max_examples=150, deadline=None)
@given(questions())
def test_bandwidth_is_what_enumeration_finds(
    question: tuple[Matrix, list[int], int, list[int]],
) -> None:
    """The group has the largest smallest pair, then sum; its total is that of the best cut left."""
    matrix, free, count, require = question
    expected = brute.bandwidth(matrix.scores, matrix.numas, free, count, require)
    rest = brute.best_cut(matrix.scores, set(free) - set(expected), count)
    score = brute.total(matrix.scores, expected)
    answer = plan(matrix, free, count, require, policy="bandwidth")
    assert answer == Group(expected, score, score + rest)


@settings(max_examples=100, deadline=None)
@given(questions())
def test_simple_is_what_it_says(question: tuple[Matrix, list[int], int, list[int]]) -> None:
    """Required cards, then the lowest free ones, with the scores of that group."""
    matrix, free, count, require = question
    expected = tuple([*require, *(card for card in free if card not in require)][:count])
    rest = brute.best_cut(matrix.scores, set(free) - set(expected), count)
    score = brute.total(matrix.scores, expected)
    answer = plan(matrix, free, count, require, policy="simple")
    assert answer == Group(expected, score, score + rest)


@settings(max_examples=80, deadline=None)
@given(questions(), st.randoms(use_true_random=False))
def test_earlier_questions_change_no_answer(
    question: tuple[Matrix, list[int], int, list[int]], random: Random
) -> None:
    """What a search has learnt from other questions never changes what it answers."""
    matrix, free, count, require = question
    mask, must = (sum(1 << card for card in cards) for cards in (free, require))
    fresh = Search(Table(matrix.scores, matrix.numas), count)
    used = Search(Table(matrix.scores, matrix.numas), count)
    masks = list(range(1, 1 << len(matrix.gpus)))
    random.shuffle(masks)
    for other in masks[:40]:
        used.best(other)
        used.best(other, other & -other)
    assert used.best(mask, must) == fresh.best(mask, must)
    assert used.best(mask) == fresh.best(mask)


def tight_machine(chance: Random, cards: int) -> tuple[tuple[int, ...], ...]:
    """Scores of one to three steps: nearly every cut has a rival that is equal or a step away."""
    drawn = {(a, b): 10 * chance.randint(1, 3) for a in range(cards) for b in range(a)}
    return tuple(
        tuple(0 if a == b else drawn[max(a, b), min(a, b)] for b in range(cards))
        for a in range(cards)
    )


@pytest.mark.parametrize("seed", range(9))
def test_one_search_answers_for_every_set_of_cards(seed: int) -> None:
    """Asked about all sets of eight cards in any order, the totals stay those of enumeration."""
    chance, count = Random(seed), 2 + seed % 3
    scores = tight_machine(chance, 8)
    search, masks = Search(Table(scores, [-1] * 8), count), list(range(1, 1 << 8))
    chance.shuffle(masks)
    for mask in masks:
        cards = [card for card in range(8) if mask >> card & 1]
        best = search.best(mask)
        assert best.total * 10 == brute.best_cut(scores, cards, count)
        assert best.mask.bit_count() == (count if len(cards) >= count else 0)


@pytest.mark.parametrize("seed", range(150))
def test_required_cards_on_machines_full_of_ties(seed: int) -> None:
    """With a card required, the group is the one that enumeration prefers."""
    chance = Random(seed)
    scores, free = tight_machine(chance, 8), sorted(chance.sample(range(8), chance.randint(5, 8)))
    count, require = chance.choice((2, 3)), chance.choice(free)
    mask = sum(1 << card for card in free)
    expected = brute.best_effort(scores, [-1] * 8, free, count, [require])
    found = Search(Table(scores, [-1] * 8), count).best(mask, 1 << require).mask
    assert found == sum(1 << card for card in expected)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 7).flatmap(
        lambda n: st.tuples(
            st.just(n), st.lists(st.integers(0, 32767), min_size=1 << n, max_size=1 << n)
        )
    )
)
def test_packed_maxima_equal_a_loop(table: tuple[int, list[int]]) -> None:
    """The packed table holds for every set the largest value of any set inside it."""
    cards, values = table
    expected = [
        max(values[inner] for inner in range(1 << cards) if not inner & ~outer)
        for outer in range(1 << cards)
    ]
    assert list(subset_maxima(values, cards)) == expected


@settings(max_examples=100, deadline=None)
@given(questions())
def test_packed_pairings_equal_enumeration(
    question: tuple[Matrix, list[int], int, list[int]],
) -> None:
    """The packed table of pairings holds for every set the total of its best cut into pairs."""
    matrix, free, _, _ = question
    table = best_pairings(matrix.scores)
    assert table[sum(1 << card for card in free)] == brute.best_cut(matrix.scores, free, 2)


def odd_machine(cards: int) -> tuple[tuple[int, ...], ...]:
    """Scores without a pattern that a search could use."""
    return tuple(
        tuple(
            0 if a == b else 10 * (1 + (7 * min(a, b) + 5 * max(a, b) ** 2) % 23)
            for b in range(cards)
        )
        for a in range(cards)
    )


CUTS = [(12, count) for count in (3, 4, 5, 6, 7)] + [(16, count) for count in (2, 8, 12, 16)]


@pytest.mark.parametrize(("cards", "count"), CUTS)
def test_large_machines_agree_with_a_plain_recursion(cards: int, count: int) -> None:
    """Beyond the reach of plain enumeration, the total is that of a recursion over all sets."""
    scores = odd_machine(cards)
    known: dict[tuple[int, ...], int] = {}

    def best(left: tuple[int, ...]) -> int:
        if len(left) < count:
            return brute.total(scores, left)
        if left not in known:
            first = left[:1] if len(left) % count == 0 else ()
            known[left] = max(
                brute.total(scores, group) + best(tuple(c for c in left if c not in group))
                for group in brute.groups(left, count, first)
            )
        return known[left]

    search = Search(Table(scores, [-1] * cards), count)
    assert search.best((1 << cards) - 1).total * 10 == best(tuple(range(cards)))
