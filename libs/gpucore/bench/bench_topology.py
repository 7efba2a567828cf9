"""How long a plan takes on 16 cards: tables once for a machine, then every question.

Run it with ``python -m pytest libs/gpucore/bench/bench_topology.py``; figures of a run are in
docs/topology.md. The machines are those that are hard for different reasons: all alike (NVSwitch),
bridges whose size does not divide the group, a tree of PCIe switches, two hybrid cube meshes; the
same with a link that failed, with cards numbered at random, or both; and links drawn at random,
which no machine has but which leave a search nothing to hold on to.
"""

import random
import time
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


def failed(scores: Scores, a: int, b: int, score: int) -> Scores:
    """The same machine where two cards have another link."""
    return square(lambda low, high: score if {low, high} == {a, b} else scores[low][high])


def shuffled(scores: Scores) -> Scores:
    """The same machine with its cards numbered at random."""
    names = random.Random(3).sample(range(CARDS), CARDS)
    return square(lambda low, high: scores[names[low]][names[high]])


WHOLE: dict[str, Scores] = {
    "nvswitch": square(lambda *_: 610),
    "dgx2": DGX2.matrix.scores,
    "bridges": square(lambda a, b: 410 if a // 2 == b // 2 else 30 if a // 8 == b // 8 else 10),
    "tree": square(tree),
    "two-dgx1": square(
        lambda a, b: DGX1_VOLTA.matrix.score(a % 8, b % 8) if a // 8 == b // 8 else 10
    ),
}
WITHIN: dict[str, Scores] = {
    "nvswitch": failed(WHOLE["nvswitch"], 0, 1, 510),
    "dgx2": failed(WHOLE["dgx2"], 0, 1, 550),
    "bridges": failed(WHOLE["bridges"], 0, 1, 30),
    "tree": failed(WHOLE["tree"], 0, 1, 0),
    "two-dgx1": failed(WHOLE["two-dgx1"], 0, 1, 50),
}
ACROSS: dict[str, Scores] = {
    name: failed(scores, 7, 10, 510 if scores[7][10] > 510 else 0) for name, scores in WHOLE.items()
}
MACHINES: dict[str, Scores] = {
    **WHOLE,
    **{f"{name}-failed": scores for name, scores in WITHIN.items()},
    **{f"{name}-failed-across": scores for name, scores in ACROSS.items()},
    **{f"{name}-shuffled": shuffled(scores) for name, scores in WHOLE.items()},
    **{f"{name}-failed-across-shuffled": shuffled(scores) for name, scores in ACROSS.items()},
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
        if size < CARDS // 2:
            table.heaviest(size)
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


@pytest.mark.benchmark(timer=time.thread_time)
@pytest.mark.parametrize("machine", MACHINES)
def test_tables_of_a_machine(benchmark: Any, machine: str) -> None:
    """All that is made once for a machine, for all sizes of groups together."""
    table = benchmark.pedantic(complete, (MACHINES[machine],), rounds=20, warmup_rounds=2)
    assert table.sums[ALL] * STEP == sum(map(sum, MACHINES[machine])) // 2
    if not machine.startswith("random"):
        assert benchmark.stats.stats.min < LIMITS["tables"]


@pytest.mark.benchmark(timer=time.thread_time)
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


def seconds(table: Table, size: int, free: int, require: int) -> float:
    """Least time of a core for one question to a search that has learnt nothing yet."""
    found = []
    for _ in range(5):
        search = Search(table, size)
        start = time.thread_time()
        best = search.best(free, require)
        found.append(time.thread_time() - start)
        assert best.mask.bit_count() == size
        assert not require & ~best.mask
    return min(found)


@pytest.mark.parametrize("machine", MACHINES)
def test_worst_question(machine: str) -> None:
    """Forty sets of free cards of each size, by themselves and with a card that is required."""
    table = complete(MACHINES[machine])
    found = {
        (size, bin(free), require): seconds(table, size, free, require)
        for size in range(2, CARDS)
        for free in [ALL, *free_sets(size)]
        for require in (0, free & -free)
    }
    worst = max(found, key=found.__getitem__)
    mean = 1e3 * sum(found.values()) / len(found)
    print(f"{machine}: mean {mean:.3f} ms, worst {1e3 * found[worst]:.2f} ms for {worst}")
    if not machine.startswith("random"):
        assert found[worst] < LIMITS["question"]
