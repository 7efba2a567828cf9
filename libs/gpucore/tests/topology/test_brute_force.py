"""All policies against plain enumeration, on machines of random links."""

from collections.abc import Sequence
from random import Random

import brute
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucore.model.links import Matrix
from gpucore.testing.machines import MACHINES
from gpucore.topology import gpusets
from gpucore.topology.choice import SearchSpace
from gpucore.topology.partition import Partitions
from gpucore.topology.policies import GpuGroup, plan

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
    """A machine of up to 8 GPUs, free GPUs, a size, and required GPUs: always answerable."""
    gpus = draw(st.integers(1, 8))
    kinds = draw(st.lists(st.sampled_from(LINKS), min_size=1, max_size=4))
    pairs = [(a, b) for a in range(gpus) for b in range(a + 1, gpus)]
    links = {pair: draw(st.sampled_from(kinds)) for pair in pairs}
    numa = draw(st.dictionaries(st.integers(0, gpus - 1), st.integers(0, 2)))
    free = sorted(draw(st.sets(st.integers(0, gpus - 1), min_size=1)))
    count = draw(st.integers(1, len(free)))
    require = sorted(draw(st.sets(st.sampled_from(free), max_size=count)))
    matrix = Matrix(gpus=tuple(range(gpus)), links=links, numa=numa)  # type: ignore[arg-type]
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
    assert plan(matrix, free, count, require) == GpuGroup(expected, score, score + rest)


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
    assert answer == GpuGroup(expected, score, score + rest)


@settings(max_examples=100, deadline=None)
@given(questions())
def test_simple_takes_the_lowest_gpus(question: tuple[Matrix, list[int], int, list[int]]) -> None:
    """Required GPUs, then the lowest free ones, with the scores of that group."""
    matrix, free, count, require = question
    expected = tuple([*require, *(gpu for gpu in free if gpu not in require)][:count])
    rest = brute.best_cut(matrix.scores, set(free) - set(expected), count)
    score = brute.total(matrix.scores, expected)
    answer = plan(matrix, free, count, require, policy="simple")
    assert answer == GpuGroup(expected, score, score + rest)


def tight_machine(chance: Random, gpus: int) -> tuple[tuple[int, ...], ...]:
    """Scores of one to three steps: nearly every cut has a rival that is equal or a step away."""
    drawn = {(a, b): 10 * chance.randint(1, 3) for a in range(gpus) for b in range(a)}
    return tuple(
        tuple(0 if a == b else drawn[max(a, b), min(a, b)] for b in range(gpus))
        for a in range(gpus)
    )


def unknown(gpus: int) -> tuple[int, ...]:
    """NUMA nodes of a machine without information on them."""
    return (-1,) * gpus


@pytest.mark.parametrize("seed", range(9))
def test_every_set_of_eight_gpus_has_the_best_partition(seed: int) -> None:
    """For all sets of free GPUs group and total are those of enumeration."""
    chance, count = Random(seed), 2 + seed % 3
    scores = tight_machine(chance, 8)
    space = SearchSpace(scores, unknown(8))
    for mask in range(1, 1 << 8):
        free = [gpu for gpu in range(8) if mask >> gpu & 1]
        if len(free) >= count:
            group = space.best_effort(free, count, ())
            assert group == brute.best_effort(scores, unknown(8), free, count, ())
        if len(free) <= 8 - count:
            assert space.total(free, count) == brute.best_cut(scores, free, count)


@pytest.mark.parametrize("seed", range(150))
def test_required_gpus_on_machines_full_of_ties(seed: int) -> None:
    """With a GPU required, the group is the one that enumeration prefers."""
    chance = Random(seed)
    scores, free = tight_machine(chance, 8), sorted(chance.sample(range(8), chance.randint(5, 8)))
    count, require = chance.choice((2, 3)), chance.choice(free)
    expected = brute.best_effort(scores, unknown(8), free, count, [require])
    assert SearchSpace(scores, unknown(8)).best_effort(free, count, [require]) == expected


def boards(board: tuple[tuple[int, ...], ...], cross: int) -> tuple[tuple[int, ...], ...]:
    """A machine of two such boards with equal links between them."""
    width = len(board)
    return tuple(
        tuple(
            cross if a // width != b // width else board[a % width][b % width]
            for b in range(2 * width)
        )
        for a in range(2 * width)
    )


@pytest.mark.parametrize("seed", range(40))
def test_trees_of_switches_agree_with_enumeration(seed: int) -> None:
    """On machines full of equal parts the group is the one that enumeration prefers."""
    chance = Random(seed)
    scores: tuple[tuple[int, ...], ...] = ((0,),)
    for _ in range(3):
        scores = boards(scores, 10 * chance.randint(0, 9))
    count = chance.randint(2, 5)
    free = sorted(chance.sample(range(8), chance.randint(count, 8)))
    require = sorted(chance.sample(free, chance.randint(0, count - 1)))
    expected = brute.best_effort(scores, unknown(8), free, count, require)
    assert SearchSpace(scores, unknown(8)).best_effort(free, count, require) == expected


@pytest.mark.parametrize("machine", [name for name in MACHINES if name != "dgx2"])
def test_shipped_machines_agree_with_enumeration(machine: str) -> None:
    """Every set of free GPUs of every shipped machine of up to eight GPUs, for pairs to fours."""
    matrix = MACHINES[machine].matrix
    for mask in range(1, 1 << len(matrix.gpus)):
        free = [gpu for gpu in matrix.gpus if mask >> gpu & 1]
        for count in (size for size in (2, 3, 4) if size <= len(free)):
            expected = brute.best_effort(matrix.scores, matrix.numas, free, count, ())
            answer = plan(matrix, free, count)
            assert isinstance(answer, GpuGroup)
            assert answer.gpus == expected


def odd_machine(gpus: int) -> tuple[tuple[int, ...], ...]:
    """Scores without a pattern that a search could use."""
    return tuple(
        tuple(
            0 if a == b else 10 * (1 + (7 * min(a, b) + 5 * max(a, b) ** 2) % 23)
            for b in range(gpus)
        )
        for a in range(gpus)
    )


CUTS = [(12, count) for count in (3, 4, 5, 6, 7)] + [(16, count) for count in (2, 8, 12, 16)]


@pytest.mark.parametrize(("gpus", "count"), CUTS)
def test_large_machines_agree_with_a_plain_recursion(gpus: int, count: int) -> None:
    """Beyond the reach of plain enumeration, the total is that of a recursion over all sets."""
    scores = odd_machine(gpus)
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

    space, every = SearchSpace(scores, unknown(gpus)), tuple(range(gpus))
    group = space.best_effort(every, count, ())
    rest = [gpu for gpu in every if gpu not in group]
    assert brute.total(scores, group) + space.total(rest, count) == best(every)


def test_two_equal_halves_of_a_machine_are_computed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No two GPUs are alike, but the halves are: the tables equal those of all sets computed."""
    half, numas = MACHINES["dgx1-volta"].matrix.scores, (0,) * 8 + (1,) * 8
    rows = [(*row, *[10] * 8) for row in half] + [(*[10] * 8, *row) for row in half]
    scores = tuple(rows)

    def computed() -> tuple[list[list[int]], int]:
        tables = Partitions(scores, numas)
        for _ in tables.prepare((4,)):
            pass
        copied = sum(1 for row in tables._sets.equal for other in row if other)
        return [list(row) for row in tables._best[4]], copied

    short, copied = computed()
    monkeypatch.setattr(gpusets, "_mirrored", lambda _: False)
    assert computed() == (short, 0)
    assert copied == (2**16 - 2**8) // 2


def test_tables_are_complete_before_they_are_used() -> None:
    """Between two pauses a size is either answered from its whole table or not at all."""
    scores = odd_machine(9)
    tables = Partitions(scores, unknown(9))
    for _ in tables.prepare([2, 3]):
        if tables.ready(2):
            assert tables.total(2, 0b11) == scores[7][8]
    assert tables.ready(2)
    assert tables.ready(3)
