"""Turns of one writer, in seconds of a clock that the test reads itself."""

import pytest

from gpukube.rate_limiter import BUSY_SECONDS, RateLimiter


def limiter() -> RateLimiter:
    """Three at once, then ten a second in quiet times and two a second in busy ones."""
    return RateLimiter(burst=3, quiet=10, busy=2)


def turns(one: RateLimiter, now: float, count: int) -> list[float]:
    """Waits of turns that are all taken at the same time."""
    return [one.turn(now) for _ in range(count)]


def test_a_burst_goes_at_once_and_the_rest_at_the_quiet_rate() -> None:
    """Each further turn waits a tenth of a second longer."""
    assert turns(limiter(), 100.0, 6) == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3])


def test_while_events_arrive_the_rate_is_lower() -> None:
    """Until a second after the last one."""
    one = limiter()
    one.arrived(100.0)
    assert turns(one, 100.0, 5) == pytest.approx([0, 0, 0, 0.5, 1.0])
    one = limiter()
    one.arrived(100.0)
    assert turns(one, 100.0 + BUSY_SECONDS, 4) == pytest.approx([0, 0, 0, 0.1])
    one = limiter()
    one.arrived(100.0)
    assert turns(one, 99.9 + BUSY_SECONDS, 4) == pytest.approx([0, 0, 0, 0.5])


def test_turns_that_were_saved_are_no_more_than_a_burst() -> None:
    """However long nothing was written."""
    one = limiter()
    turns(one, 0.0, 3)
    assert turns(one, 1000.0, 4) == pytest.approx([0, 0, 0, 0.1])


def test_time_that_passed_pays_for_turns() -> None:
    """Two tenths of a second are two turns at ten a second."""
    one = limiter()
    turns(one, 0.0, 3)
    assert turns(one, 0.2, 3) == pytest.approx([0, 0, 0.1])


def test_who_waited_as_instructed_waits_as_long_for_the_next_turn() -> None:
    """The rate holds for as long as there is something to write."""
    one, now, waits = limiter(), 0.0, list[float]()
    turns(one, now, 3)
    for _ in range(3):
        waits.append(one.turn(now))
        now += waits[-1]
    assert waits == pytest.approx([0.1, 0.1, 0.1])
