"""Waits after failures: the exact steps, with a source of jitter that a test chooses."""

import random

import pytest

from gpukube import backoff
from gpukube.backoff import Backoff


class Jitter(random.Random):
    """Answers always the same part of its range, and keeps the range."""

    def __init__(self, part: float) -> None:
        super().__init__()
        self.part = part

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * self.part


def waits(count: int, part: float = 1.0, **options: float) -> list[float]:
    """Waits of so many failures in a row."""
    one = Backoff(source=Jitter(part), **options)
    return [one.after_failure(lasted=0) for _ in range(count)]


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_steps_double_up_to_the_last_and_jitter_takes_at_most_half(part: float) -> None:
    """Replicas that lost the API server together return spread over half a step."""
    scale = 0.5 + part / 2
    expected = [step * scale for step in (1.0, 2.0, 4.0, 5.0, 5.0)]
    assert waits(5, part, first=1.0, last=5.0) == pytest.approx(expected)


def test_the_first_and_longest_wait_without_arguments() -> None:
    """As the documentation of the informer has them, however many failures there were."""
    found = waits(2000)
    assert found[0] == pytest.approx(0.8)
    assert found[-1] == pytest.approx(30.0)


@pytest.mark.parametrize(("lasted", "expected"), [(59.9, 4.0), (60.0, 1.0), (3600.0, 1.0)])
def test_success_for_long_enough_starts_over(lasted: float, expected: float) -> None:
    """Shorter success continues the series; after the new start it doubles again."""
    one = Backoff(first=1.0, last=64.0, healthy=60.0, source=Jitter(1.0))
    assert [one.after_failure(lasted=0) for _ in range(2)] == [1.0, 2.0]
    assert one.after_failure(lasted=lasted) == expected
    assert one.after_failure(lasted=0) == 2 * expected


def test_what_the_server_requested_is_the_least() -> None:
    """A longer step of our own stays, and the longest step is no limit for the server."""
    one = Backoff(first=8.0, last=64.0, source=Jitter(1.0))
    assert one.after_failure(lasted=0, retry_after=30.0) == 30.0
    assert one.after_failure(lasted=0, retry_after=1.0) == 16.0
    assert one.after_failure(lasted=0, retry_after=100.0) == 100.0


def test_jitter_differs_without_a_source() -> None:
    """Two processes do not wait alike."""
    found = {Backoff().after_failure(lasted=0) for _ in range(8)}
    assert len(found) > 1
    assert all(backoff.FIRST_SECONDS / 2 <= wait <= backoff.FIRST_SECONDS for wait in found)
