"""Arrivals drawn from a trace."""

import random
from collections import Counter
from itertools import islice

import pytest

from gpucore.simulate.traces import TracePod, drawn, once, shuffled

PODS = [TracePod(f"p{number}", 1, 1, 1 + number % 2, 1000) for number in range(10)]
MILLI = sum(pod.milli for pod in PODS)


@pytest.mark.parametrize("seed", range(5))
def test_every_pod_comes_once_and_then_copies(seed: int) -> None:
    """Copies fill up to the limit, which one GPU of the next pod would exceed."""
    pick = random.Random(seed).randrange
    found = once(PODS, 2 * MILLI, pick)
    assert Counter(found) >= Counter(PODS)
    assert 2 * MILLI - 1000 <= sum(pod.milli for pod in found) <= 2 * MILLI + 1000
    assert found[: len(PODS)] != PODS


def test_pods_are_left_out_where_the_trace_requests_more() -> None:
    """Down to the limit, no pod twice."""
    found = once(PODS, MILLI // 2, random.Random(1).randrange)
    assert sum(pod.milli for pod in found) <= MILLI // 2
    assert set(Counter(found).values()) == {1}


def test_draws_repeat_with_their_seed() -> None:
    """The same seed gives the same pods in the same order."""
    runs = [once(PODS, 3 * MILLI, random.Random(7).randrange) for _ in range(2)]
    assert runs[0] == runs[1]
    draws = [list(islice(drawn(PODS, random.Random(7).randrange), 20)) for _ in range(2)]
    assert draws[0] == draws[1]


def test_shuffled_keeps_all() -> None:
    """Nothing is lost, and the argument stays as it is."""
    numbers = list(range(20))
    found = shuffled(numbers, random.Random(3).randrange)
    assert sorted(found) == numbers == list(range(20))
    assert found != numbers
