"""A clock for bounds that a stalled machine must not break."""

import pytest
import steadyclock
from steadyclock import STEP_SECONDS, SteadyClock


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the monotonic clock shows next, in order."""
    found: list[float] = []
    monkeypatch.setattr(steadyclock, "monotonic", lambda: found.pop(0))
    return found


def test_time_between_polls_counts(times: list[float]) -> None:
    """On a machine that does not stall it is a clock like any other."""
    times += [100.0, 100.1, 100.25, 100.45]
    clock = SteadyClock()
    assert [clock.tick() for _ in range(3)] == pytest.approx([0.1, 0.25, 0.45])


def test_a_stall_counts_as_one_step(times: list[float]) -> None:
    """Nothing that is watched ran meanwhile."""
    times += [100.0, 100.1, 130.1, 130.2]
    clock = SteadyClock()
    assert [clock.tick() for _ in range(3)] == pytest.approx(
        [0.1, 0.1 + STEP_SECONDS, 0.2 + STEP_SECONDS]
    )
