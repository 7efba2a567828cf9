"""Memory over the last hours: bounded, with gaps, and drawn as lines."""

import pytest

from gpuinspect.web import history as module
from gpuinspect.web.history import CLUSTER, SLOTS, STEP_SECONDS, Amounts, History
from gpuinspect.web.pages.charts import chart


def filled(*values: tuple[int, float]) -> History:
    """Allocated amounts by slot."""
    history = History()
    for slot, allocated in values:
        history.add(slot * STEP_SECONDS, {CLUSTER: Amounts(allocated)})
    return history


def shown(history: History) -> list[tuple[int, float]]:
    """Slot and allocated amount of each point."""
    return [(p.when // STEP_SECONDS, p.amounts.allocated) for p in history.of(CLUSTER)]


def test_the_newest_value_of_a_slot_counts() -> None:
    """Several reads fall into one slot."""
    history = filled((10, 1.0), (11, 2.0))
    history.add(11 * STEP_SECONDS + 60, {CLUSTER: Amounts(3.0, 0.5)})
    assert shown(history) == [(10, 1.0), (11, 3.0)]
    assert history.of(CLUSTER)[-1].amounts.used == 0.5


def test_slots_without_a_read_are_gaps() -> None:
    """Also when the ring has gone round since: old values do not come back."""
    assert shown(filled((10, 1.0), (13, 2.0))) == [(10, 1.0), (13, 2.0)]
    assert shown(filled((10, 1.0), (10 + SLOTS, 2.0))) == [(10 + SLOTS, 2.0)]
    assert shown(filled((10, 1.0), (10 + 5 * SLOTS, 2.0))) == [(10 + 5 * SLOTS, 2.0)]


def test_only_the_last_hours_are_kept() -> None:
    """A full ring has as many points as slots."""
    points = shown(filled(*((slot, float(slot)) for slot in range(10, 10 + 2 * SLOTS))))
    assert len(points) == SLOTS
    assert points[0] == (10 + SLOTS, float(10 + SLOTS))


def test_a_clock_that_steps_back_changes_nothing() -> None:
    """The points stay in order."""
    history = filled((10, 1.0), (12, 2.0), (11, 9.0))
    assert shown(history) == [(10, 1.0), (12, 2.0)]


def test_nodes_that_are_gone_are_dropped() -> None:
    """A node that comes back begins anew."""
    history = History()
    history.add(0, {"a": Amounts(1.0), "b": Amounts(1.0)})
    history.add(STEP_SECONDS, {"a": Amounts(2.0)})
    assert [point.amounts.allocated for point in history.of("a")] == [1.0, 2.0]
    assert history.of("b") == ()


def test_a_clock_that_jumps_costs_no_more_than_the_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a battery begins in 1970; years have millions of slots."""
    history, emptied = filled((0, 1.0)), list[int]()
    (series,) = history._series.values()
    monkeypatch.setattr(series, "put", lambda slot, _: emptied.append(slot))
    history.add(1000 * SLOTS * STEP_SECONDS, {CLUSTER: Amounts(2.0)})
    assert len(emptied) <= SLOTS


def test_the_number_of_series_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names beyond the bound have no history."""
    monkeypatch.setattr(module, "MOST", 2)
    history = History()
    history.add(0, {name: Amounts(1.0) for name in "abc"})
    assert [len(history.of(name)) for name in "abc"] == [1, 1, 0]


def test_a_chart_has_a_line_for_each_stretch_without_a_gap() -> None:
    """A long pause of the dashboard is not drawn as a line."""
    drawn = chart(filled((0, 0.0), (1, 5.0), (10, 10.0)).of(CLUSTER), 10)
    assert drawn is not None
    assert drawn.allocated == ["0.00,100.00 10.00,50.00", "100.00,0.00"]
    assert drawn.used == []
    assert drawn.summary.startswith(
        "Allocated (solid line) now 10 GiB, at most 10. Memory in use is unknown"
    )
    assert (drawn.first, drawn.last) == ("1970-01-01T00:00:00Z", "1970-01-01T00:20:00Z")


def test_a_chart_shows_memory_in_use() -> None:
    """Beside the allocated memory, in the same units."""
    history = History()
    history.add(0, {CLUSTER: Amounts(8.0, 4.0)})
    history.add(STEP_SECONDS, {CLUSTER: Amounts(6.0, 2.0)})
    drawn = chart(history.of(CLUSTER), 16)
    assert drawn is not None
    assert drawn.used == ["0.00,75.00 100.00,87.50"]
    assert drawn.summary == (
        "Allocated (solid line) now 6 GiB, at most 8. In use (dashed line) now 2.0 GiB, highest 4.0"
    )


def test_a_chart_states_where_only_a_part_of_the_gpus_is_measured() -> None:
    """A device plugin that restarts takes its GPUs' use from the line: no memory was freed."""
    history = History()
    history.add(0, {CLUSTER: Amounts(8.0, 4.0)})
    history.add(STEP_SECONDS, {CLUSTER: Amounts(8.0, 1.0, partial=True)})
    drawn = chart(history.of(CLUSTER), 16)
    assert drawn is not None
    assert drawn.summary.endswith(
        "In use (dashed line) now at least 1.0 GiB, highest 4.0. Where the use of some GPUs was"
        " unknown, the dashed line is the use of the others"
    )
    history.add(2 * STEP_SECONDS, {CLUSTER: Amounts(8.0, 4.0)})
    assert [point.amounts.partial for point in history.of(CLUSTER)] == [False, True, False]


def test_one_point_is_no_chart() -> None:
    """A line needs two."""
    assert chart(filled((0, 1.0)).of(CLUSTER), 10) is None
