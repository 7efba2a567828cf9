"""How long a plan takes on 16 GPUs: tables once for a kind of machine, then every answer.

Run it with ``python -m pytest libs/gpucore/bench/bench_topology.py``; figures of a run are in
docs/topology.md. The machines are those that are hard for different reasons: all alike (NVSwitch),
bridges whose size does not divide the group, a tree of PCIe switches, two hybrid cube meshes; the
same with a link that failed, with GPUs numbered at random, or both; and links drawn at random,
which no machine has. The tables are computed in the background, the answers within a request.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from gpucore.model.links import score_of
from gpucore.testing.machines import DGX1_VOLTA, DGX2
from gpucore.topology.gpusets import Scores
from gpucore.topology.partition import Partitions

GPUS = 16
ALL = (1 << GPUS) - 1
LIMITS = {"tables": 1.0, "tables without equal GPUs": 2.0, "answer": 1e-3}
KINDS = (10, 20, 30, 40, 50, 110, 150, 210, 230, 610)


def square(score: Callable[[int, int], int]) -> Scores:
    """Pair scores of a machine from a rule for a lower and a higher GPU."""
    gpus = range(GPUS)
    return tuple(tuple(0 if a == b else score(min(a, b), max(a, b)) for b in gpus) for a in gpus)


def tree(a: int, b: int) -> int:
    """PCIe only: switches of two below switches of four below sockets of eight."""
    names = ("PIX", "PXB", "NODE")
    nearest = (name for name, size in zip(names, (2, 4, 8), strict=True) if a // size == b // size)
    return score_of([next(nearest, "SYS")])


def drawn(seed: int) -> Scores:
    """Links at random from :data:`KINDS`."""
    chance = random.Random(seed)
    scores = {(a, b): chance.choice(KINDS) for a in range(GPUS) for b in range(a + 1, GPUS)}
    return square(lambda a, b: scores[a, b])


def failed(scores: Scores, a: int, b: int, score: int) -> Scores:
    """The same machine where two GPUs have another link."""
    return square(lambda low, high: score if {low, high} == {a, b} else scores[low][high])


def shuffled(scores: Scores) -> Scores:
    """The same machine with its GPUs numbered at random."""
    names = random.Random(3).sample(range(GPUS), GPUS)
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


def complete(scores: Scores) -> tuple[Partitions, float]:
    """The tables for groups of all sizes, and the longest time between two pauses."""
    tables, longest = Partitions(scores, (-1,) * GPUS), 0.0
    began = time.thread_time()
    for _ in tables.prepare(range(1, GPUS + 1)):
        longest, began = max(longest, time.thread_time() - began), time.thread_time()
    return tables, longest


def free_sets(size: int) -> list[int]:
    """All GPUs, all but one, and forty random sets of free GPUs that hold at least one group."""
    chance = random.Random(size)
    drawn_sets = [chance.sample(range(GPUS), chance.randint(size, GPUS)) for _ in range(40)]
    almost = [ALL ^ 1 << chance.randrange(GPUS)] if size < GPUS else []
    return [ALL, *almost, *(sum(1 << gpu for gpu in gpus) for gpus in drawn_sets)]


def seconds(answer: Callable[[int, int, int], int], size: int, free: int, require: int) -> float:
    """Least time of a core for one answer."""
    found = []
    for _ in range(5):
        start = time.thread_time()
        group = answer(size, free, require)
        found.append(time.thread_time() - start)
        assert group.bit_count() == size
        assert not require & ~group
    return min(found)


@pytest.mark.benchmark(timer=time.thread_time)
@pytest.mark.parametrize("machine", MACHINES)
def test_tables_of_a_machine(benchmark: Any, machine: str) -> None:
    """All that is computed once for a kind of machine, for all sizes of groups together."""
    _, longest = benchmark.pedantic(complete, (MACHINES[machine],), rounds=3)
    print(f"{machine}: longest step {1e3 * longest:.2f} ms")
    different = machine.startswith(("random", "two-dgx1"))
    limit = LIMITS["tables without equal GPUs" if different else "tables"]
    assert benchmark.stats.stats.min < limit


@pytest.mark.parametrize("machine", MACHINES)
def test_worst_answer(machine: str) -> None:
    """Sets of free GPUs of each size, by themselves and with a GPU that is required."""
    tables, _ = complete(MACHINES[machine])
    found = {
        (policy, size, bin(free), require): seconds(getattr(tables, policy), size, free, require)
        for policy in ("best_effort", "bandwidth")
        for size in range(1, GPUS + 1)
        for free in free_sets(size)
        for require in (0, free & -free)
    }
    worst = max(found, key=found.__getitem__)
    mean = 1e3 * sum(found.values()) / len(found)
    print(f"{machine}: mean {mean:.3f} ms, worst {1e3 * found[worst]:.2f} ms for {worst}")
    assert found[worst] < LIMITS["answer"]
