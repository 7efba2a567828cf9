"""Histories of several nodes are one, whatever their order, and measured no longer than nodes were.

A time without a sample on any node counts as on one node, and samples fade as on one node.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_usage_history import DAY, GIB, KEY, NOW, amounts, histories, history_of, percents

from gpucore.sizing.evidence import days_of
from gpucore.sizing.merging import merged
from gpucore.sizing.usage_history import FADE_SECONDS, LimitEvent, UsageHistory, WorkloadKey


def sum_of(*nodes: UsageHistory, now: float = 0.0) -> UsageHistory:
    """What they measured together."""
    found = merged(nodes, now)
    assert found is not None
    return found


def node(first: float, last: float) -> UsageHistory:
    """A node that measured between two days."""
    found = UsageHistory(KEY)
    for day in (first, last):
        found.record(NOW + day * DAY, GIB)
    found.first_seen = NOW + first * DAY
    return found


@pytest.mark.slow
@given(histories(), histories())
def test_merging_does_not_depend_on_the_order(one: UsageHistory, other: UsageHistory) -> None:
    """Nodes may be read in any order."""
    assert merged((one, other)) == merged((other, one))


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), min_size=1, max_size=6), st.data()
)
def test_the_measured_time_does_not_depend_on_the_order(
    days: list[tuple[int, int]], data: st.DataObject
) -> None:
    """With gaps between the nodes as well, and it is never longer than the whole time."""
    nodes = [node(first, first + length) for first, length in days]
    found = sum_of(*nodes)
    assert sum_of(*data.draw(st.permutations(nodes))).first_seen == found.first_seen
    whole = max(first + length for first, length in days) - min(first for first, _ in days)
    assert max(length for _, length in days) <= days_of(found) <= whole


@given(st.lists(amounts), st.lists(amounts), percents)
def test_a_merged_history_is_that_of_all_samples(
    one: list[int], other: list[int], percent: float
) -> None:
    """Two nodes with half of the samples each are as one node with all."""
    both = sum_of(history_of(*one), history_of(*other))
    whole = history_of(*one, *other)
    assert both.percentile(percent) == whole.percentile(percent)
    assert both.samples == whole.samples == len(one) + len(other)


def test_a_merged_history_has_the_settings_of_the_later_sample() -> None:
    """A workload that was resized is compared with what it requests now, not with what it did."""
    old, new = UsageHistory(KEY, pods=1, starts=2), UsageHistory(KEY, pods=3, starts=4)
    old.record(NOW, GIB, requested_bytes=9 * GIB, limit_bytes=9 * GIB, gpus=4, claims=True)
    new.record(NOW + 60, 2 * GIB, requested_bytes=3 * GIB, limit_bytes=4 * GIB, gpus=1)
    for both in (sum_of(old, new), sum_of(new, old)):
        assert (both.requested_bytes, both.limit_bytes) == (3 * GIB, 4 * GIB)
        assert (both.gpus, both.claims) == (1, False)
        assert (both.first_seen, both.last_seen, both.faded_at) == (NOW, NOW + 60, NOW)
        assert (both.pods, both.starts) == (4, 6)
        assert (both.peak_bytes, both.week_peak_bytes) == (2 * GIB, 2 * GIB)


def test_a_history_without_samples_has_no_first_one() -> None:
    """It counts pods alone, and a merged history begins with the other's first sample."""
    empty, found = UsageHistory(KEY, pods=1), history_of(GIB)
    assert sum_of(empty, found).first_seen == sum_of(found, empty).first_seen == NOW
    assert sum_of(empty, found).faded_at == NOW


def test_different_workloads_are_not_merged() -> None:
    """The sum of two workloads is the history of neither."""
    other = UsageHistory(WorkloadKey("team", "Deployment", "other", "main"))
    with pytest.raises(ValueError, match="different workloads"):
        merged((history_of(1), other))


@pytest.mark.slow
@given(histories(), histories())
def test_a_merged_history_has_the_later_event(one: UsageHistory, other: UsageHistory) -> None:
    """And the number of all of them."""
    both = sum_of(one, other)
    assert both.ran_out.at == max(one.ran_out.at, other.ran_out.at)
    assert both.reached in {one.reached, other.reached}
    assert both.out_of_memory == one.out_of_memory + other.out_of_memory


@pytest.mark.parametrize(
    ("nodes", "days"),
    [
        ([(0, 0), (7, 7)], 1),
        ([(0, 2), (9, 10)], 4),
        ([(0, 2), (1, 3)], 3),
        ([(0, 1), (1.5, 2)], 2),
        ([(0, 1), (4, 5), (2.5, 2.5)], 4),
        ([(0, 10), (20, 21), (12, 13)], 14),
        ([(0, 10), (2, 3), (12, 12)], 11),
    ],
)
def test_a_time_without_samples_between_nodes_counts_as_one_day(
    nodes: list[tuple[float, float]], days: float
) -> None:
    """Two nodes with a minute each, a week apart, have not measured for a week."""
    for order in (nodes, nodes[::-1]):
        assert days_of(sum_of(*(node(*each) for each in order))) == pytest.approx(days)


def test_an_event_after_the_last_sample_is_no_measuring() -> None:
    """The time before it counts as any other without a sample."""
    failed = UsageHistory(KEY)
    failed.fail(NOW + 9 * DAY, GIB)
    assert days_of(sum_of(node(0, 2), failed)) == pytest.approx(3)


def test_samples_of_a_node_that_the_workload_left_fade() -> None:
    """The plugin of that node changes its history no more."""
    left = history_of(*[GIB] * 8)
    new = history_of(GIB, now=NOW + 2 * FADE_SECONDS)
    assert sum_of(left, new, now=NOW + 2 * FADE_SECONDS).samples == 3


def test_a_peak_of_a_node_that_the_workload_left_is_forgotten() -> None:
    """With its last sample, and its pods and starts go as well."""
    left, new = history_of(20 * GIB), history_of(GIB, now=NOW + 3 * FADE_SECONDS)
    left.start_peak_bytes, left.pods, left.starts = 20 * GIB, 4, 5
    found = sum_of(left, new, now=NOW + 3 * FADE_SECONDS)
    assert (found.peak_bytes, found.start_peak_bytes) == (GIB, 0)
    assert (found.pods, found.starts, found.first_seen) == (0, 0, new.first_seen)


def test_an_event_of_a_node_that_the_workload_left_stays_for_four_weeks() -> None:
    """Also where no sample is left: the limit was not enough."""
    left, new = history_of(GIB), history_of(*[GIB] * 9, now=NOW + 3 * FADE_SECONDS)
    left.fail(NOW, 8 * GIB)
    assert sum_of(left, new, now=NOW + 3 * FADE_SECONDS).ran_out == LimitEvent(NOW, 8 * GIB)
    new.record(NOW + 5 * FADE_SECONDS, GIB)
    assert not sum_of(left, new, now=NOW + 5 * FADE_SECONDS).ran_out.at


def test_a_workload_of_which_nothing_is_left_has_no_history() -> None:
    """It is unknown, as one that was never measured."""
    assert merged([history_of(GIB)], NOW + 3 * FADE_SECONDS) is None
    assert merged([]) is None
