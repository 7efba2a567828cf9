"""How long a plan takes on 16 cards: tables once for a machine, then every question.

Run it with ``python -m pytest libs/gpucore/bench/bench_topology.py``; figures of a run are in
docs/topology.md. The machines are those that are hard for different reasons: all alike (NVSwitch),
bridges whose size does not divide the group, a tree of PCIe switches, two hybrid cube meshes, and
links drawn at random, which no machine has but which leave a search nothing to hold on to.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from gpucore.topology.links import score_of
from gpucore.topology.machines import DGX1_VOLTA, DGX2
from gpucore.topology.search import Search
from gpucore.topology.subsets import STEP, Scores, Table

CARDS = 16
ALL = (1 << CARDS) - 1
LIMITS = {"tables": 10e-3, "question": 1e-3}
KINDS = (10, 20, 30, 40, 50, 110, 150, 210, 230, 610)


def square(score: Callable[[int, int], int]) -> Scores:
    """Pair scores of a machine from a rule for a lower and a higher card."""
    cards = range(CARDS)
    return tuple(tuple(0 if a == b else score(min(a, b), max(a, b)) for b in cards) for a in cards)


def tree(a: int, b: int) -> int:
    """PCIe only: switches of two below switches of four below sockets of eight."""
    names = ("PIX", "PXB", "NODE")
    nearest = (name for name, size in zip(names, (2, 4, 8), strict=True) if a // size == b // size)
    return score_of([next(nearest, "SYS")])


def drawn(seed: int) -> Scores:
    """Links at random from :data:`KINDS`."""
    chance = random.Random(seed)
    scores = {(a, b): chance.choice(KINDS) for a in range(CARDS) for b in range(a + 1, CARDS)}
    return square(lambda a, b: scores[a, b])


MACHINES: dict[str, Scores] = {
    "nvswitch": square(lambda *_: 610),
    "dgx2": DGX2.matrix.scores,
    "bridges": square(lambda a, b: 410 if a // 2 == b // 2 else 30 if a // 8 == b // 8 else 10),
    "tree": square(tree),
    "two-dgx1": square(
        lambda a, b: DGX1_VOLTA.matrix.score(a % 8, b % 8) if a // 8 == b // 8 else 10
    ),
    "random-1": drawn(1),
    "random-2": drawn(2),
}


def complete(scores: Scores) -> Table:
    """Everything that is ever made once for a machine, for groups of all sizes."""
    table = Table(scores, [-1] * CARDS)
    for size in range(2, CARDS):
        if table.alike:
            continue
        table.groups(size)
        Search(table, size)
        if table.different > ALL and size < CARDS // 2:
            table.maxima(size)
    return table


def prepared(scores: Scores, size: int) -> Search:
    """A search with all its tables made and nothing learnt."""
    return Search(complete(scores), size)


def free_sets(size: int) -> list[int]:
    """Forty random sets of free cards that hold at least one group."""
    chance = random.Random(size)
    return [
        sum(1 << card for card in chance.sample(range(CARDS), chance.randint(size, CARDS)))
        for _ in range(40)
    ]


@pytest.mark.parametrize("machine", MACHINES)
def test_tables_of_a_machine(benchmark: Any, machine: str) -> None:
    """All that is made once for a machine, for all sizes of groups together."""
    table = benchmark.pedantic(complete, (MACHINES[machine],), rounds=20, warmup_rounds=2)
    assert table.sums[ALL] * STEP == sum(map(sum, MACHINES[machine])) // 2
    if not machine.startswith("random"):
        assert benchmark.stats.stats.min < LIMITS["tables"]


@pytest.mark.parametrize("size", range(2, 16))
@pytest.mark.parametrize("machine", MACHINES)
def test_first_question(benchmark: Any, machine: str, size: int) -> None:
    """The best group of all 16 cards by a search that has learnt nothing yet."""

    def setup() -> tuple[tuple[Search, int], dict[str, Any]]:
        return (prepared(MACHINES[machine], size), ALL), {}

    best = benchmark.pedantic(Search.best, setup=setup, rounds=3)
    assert best.mask.bit_count() == size
    if not machine.startswith("random"):
        assert benchmark.stats.stats.min < LIMITS["question"]


@pytest.mark.parametrize("size", range(2, 16))
@pytest.mark.parametrize("machine", MACHINES)
def test_forty_questions(benchmark: Any, machine: str, size: int) -> None:
    """Forty random sets of free cards, one after the other, asked of one search."""
    search, sets = prepared(MACHINES[machine], size), free_sets(size)
    found = benchmark.pedantic(lambda: [search.best(free) for free in sets], rounds=1)
    assert all(best.mask.bit_count() == size for best in found)
