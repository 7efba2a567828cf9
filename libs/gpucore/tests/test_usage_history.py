"""Histories of memory in use stay small, and their percentiles never exceed what was measured."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.sizing.buckets import FIRST_WIDTH, MIB, MOST_BUCKETS, UPPER_EDGES, bucket_of
from gpucore.sizing.evidence import SizingRules, is_too_short
from gpucore.sizing.history_documents import decode_histories, encode_histories
from gpucore.sizing.usage_history import (
    FADE_SECONDS,
    KEPT_SECONDS,
    LimitEvent,
    UsageHistory,
    WorkloadKey,
)

GIB = 1024 * MIB
KEY = WorkloadKey("team", "Deployment", "server", "main")
NOW = 1.7e9
DAY = 86400.0

amounts = st.integers(min_value=0, max_value=2**50)
percents = st.floats(min_value=-10, max_value=110)


def history_of(*used: int, key: WorkloadKey = KEY, now: float = NOW) -> UsageHistory:
    """These samples, a second apart."""
    found = UsageHistory(key)
    for number, each in enumerate(used):
        found.record(now + number, each)
    return found


@st.composite
def histories(draw: st.DrawFn) -> UsageHistory:
    """Any history of one workload."""
    found = UsageHistory(KEY, pods=draw(st.integers(0, 9)), starts=draw(st.integers(0, 9)))
    for used in draw(st.lists(amounts, max_size=12)):
        now = NOW + draw(st.integers(0, 1000))
        request, gpus = draw(amounts), draw(st.integers(0, 8))
        work = draw(st.none() | st.integers(0, 100))
        found.record(
            now,
            used,
            requested_bytes=request,
            gpus=gpus,
            starting=draw(st.booleans()),
            sm_percent=work,
        )
    for limit in draw(st.lists(amounts, max_size=2)):
        found.fail(NOW + draw(st.integers(0, 1000)), limit)
    return found


def test_300_gib_have_a_bucket_with_an_upper_edge() -> None:
    """The largest GPUs fit, and every bucket is about 5 % wider than the one before."""
    assert bucket_of(300 * GIB) < MOST_BUCKETS - 1
    widths = [high - low for low, high in zip((0, *UPPER_EDGES), UPPER_EDGES, strict=False)]
    assert widths[0] == FIRST_WIDTH
    assert all(1.049 < wide / narrow < 1.051 for narrow, wide in pairwise(widths))


@given(amounts)
def test_a_bucket_contains_its_amounts(used: int) -> None:
    """An amount lies above the edge of the bucket below and not above the edge of its own."""
    index = bucket_of(used)
    assert not index or used > UPPER_EDGES[index - 1]
    assert used <= UPPER_EDGES[index] or index == MOST_BUCKETS - 1


@given(st.lists(amounts, min_size=1), percents, percents)
def test_percentiles_rise_with_the_percentage(used: list[int], one: float, other: float) -> None:
    """A higher percentage never gives less memory."""
    found = history_of(*used)
    low, high = sorted((one, other))
    assert found.percentile(low) <= found.percentile(high)


@given(st.lists(amounts, min_size=1), percents)
def test_a_percentile_never_exceeds_the_peak(used: list[int], percent: float) -> None:
    """The upper edge of a bucket is cut to what was measured."""
    found = history_of(*used)
    assert found.percentile(percent) <= found.peak_bytes == max(used)


@given(st.lists(st.integers(0, 300 * GIB), min_size=1), st.integers(1, 100))
def test_a_percentile_covers_its_part_of_the_samples(used: list[int], percent: int) -> None:
    """At least that percentage of the samples is not above it, and it is at most a bucket off."""
    found = history_of(*used).percentile(percent)
    covered = sum(each <= found for each in used)
    assert covered * 100 >= percent * len(used)
    exact = sorted(used)[-(-percent * len(used) // 100) - 1]
    assert found <= exact * 1.05 + FIRST_WIDTH


@given(st.lists(st.integers(0, 100), min_size=1), st.integers(1, 100))
def test_a_percentile_of_sm_utilization_covers_its_part_of_the_samples(
    work: list[int], percent: int
) -> None:
    """It is at most a bucket off, and exact at 0."""
    history = UsageHistory(KEY)
    for each in work:
        history.record(NOW, 0, sm_percent=each)
    found = history.sm_percentile(percent)
    assert found is not None
    exact = sorted(work)[-(-percent * len(work) // 100) - 1]
    assert exact <= found < exact + 5 if exact else found == 0


def test_without_samples_sm_utilization_is_unknown() -> None:
    """As where the driver does not report it; memory has its samples all the same."""
    assert history_of(GIB).sm_percentile(95) is None


def test_sm_utilization_fades_as_memory_does() -> None:
    """Half of the samples count after a week, none after many."""
    history = UsageHistory(KEY)
    for _ in range(5):
        history.record(NOW, GIB, sm_percent=50)
    assert history.faded(NOW + FADE_SECONDS).sm_buckets == {10: 2}
    assert history.faded(NOW + 9 * FADE_SECONDS).sm_percentile(95) is None


def test_a_clock_that_is_set_back_keeps_what_was_measured() -> None:
    """The last sample has the time of the clock, and use below zero is none."""
    found = history_of(GIB, GIB, now=NOW)
    found.record(NOW - 59, -5)
    found.fail(NOW - 90, GIB)
    assert (found.first_seen, found.last_seen, found.samples) == (NOW - 60, NOW - 59, 3)
    assert found.buckets == {bucket_of(GIB): 2, 0: 1}


def test_a_clock_that_was_a_year_ahead_is_followed_back() -> None:
    """Neither the last sample nor an event nor the fading stays in the future."""
    wrong = NOW + 365 * DAY
    found = history_of(GIB, GIB).faded(wrong)
    found.record(wrong, 2 * GIB, requested_bytes=2 * GIB)
    found.fail(wrong, 2 * GIB)
    found = found.faded(NOW + 30)
    found.record(NOW + 30, GIB)
    assert (found.first_seen, found.last_seen, found.faded_at) == (NOW + 30,) * 3
    assert found.ran_out == found.reached == LimitEvent(NOW + 30, 2 * GIB)
    found = found.faded(NOW + 2 * DAY)
    found.record(NOW + 2 * DAY, GIB)
    assert found.last_seen == NOW + 2 * DAY


def test_a_clock_set_back_before_1970_leaves_no_time_below_zero() -> None:
    """Readers would refuse the document."""
    found = history_of(GIB)
    found.record(NOW + DAY, GIB)
    found.record(300.0, GIB)
    assert (found.first_seen, found.last_seen) == (0.0, 300.0)
    assert decode_histories(encode_histories("node", [found])) == [found]


@pytest.mark.parametrize("days", [2, 6, 10])
def test_a_time_without_samples_counts_as_one_day(days: int) -> None:
    """A clock that was behind for the first samples after a boot does not count as measuring."""
    found = history_of(*[GIB] * 4, now=NOW - days * DAY)
    for number in range(40):
        found = found.faded(NOW + 30 * number)
        found.record(NOW + 30 * number, GIB)
    assert found.last_seen == NOW + 39 * 30
    assert DAY < found.last_seen - found.first_seen < DAY + 1800


def test_a_time_of_a_day_without_samples_counts_in_full() -> None:
    """A job that runs every night is measured for as many days."""
    found = UsageHistory(KEY)
    for day in range(7):
        found = found.faded(NOW + day * DAY)
        found.record(NOW + day * DAY, GIB)
        found.record(NOW + day * DAY + 600, GIB)
    assert found.first_seen == NOW


def test_starts_of_a_time_that_is_forgotten_prove_nothing() -> None:
    """A day with one start is too short for a workload that paused for a year."""
    found = history_of(*[GIB] * 50)
    found.pods, found.starts = 9, 40
    later = NOW + 365 * DAY
    found = found.faded(later)
    found.starts += 1  # the recorder counts a start before its first sample
    for hour in range(25):
        found = found.faded(later + hour * 3600)
        found.record(later + hour * 3600, GIB)
    assert (found.pods, found.starts, found.samples) == (0, 1, 25)
    assert is_too_short(found, SizingRules())


def test_a_history_without_samples_keeps_its_starts() -> None:
    """A start is counted before the first sample is taken."""
    found = UsageHistory(KEY, pods=1, starts=1).faded(NOW)
    found.record(NOW, GIB)
    assert (found.pods, found.starts) == (1, 1)


def test_a_history_that_lost_all_its_samples_begins_anew() -> None:
    """One new sample does not count for the days of those that were forgotten."""
    found = history_of(GIB, GIB).faded(NOW + 4 * FADE_SECONDS)
    found.record(NOW + 4 * FADE_SECONDS, GIB)
    assert found.first_seen == found.faded_at == NOW + 4 * FADE_SECONDS


def test_a_limit_in_force_counts_before_those_that_the_owner_wrote() -> None:
    """The webhook gave the pod another size: it reaches that one."""
    found = UsageHistory(KEY)
    found.record(NOW, 2 * GIB, requested_bytes=2 * GIB, limit_bytes=2 * GIB, allowed_bytes=4 * GIB)
    assert not found.reached.at
    found.record(NOW, 4 * GIB, requested_bytes=2 * GIB, limit_bytes=2 * GIB, allowed_bytes=4 * GIB)
    assert found.reached == LimitEvent(NOW, 4 * GIB)
    other = UsageHistory(KEY)
    other.record(NOW, 2 * GIB, requested_bytes=2 * GIB, limit_bytes=4 * GIB)
    assert not other.reached.at


def test_the_peak_of_a_week_counts_for_one_week() -> None:
    """Two weeks without a sample leave nothing of it."""
    found = history_of(GIB, GIB, GIB, GIB, 20 * GIB)
    assert found.faded(NOW + 2 * FADE_SECONDS).peak_bytes < 2 * GIB
    later = found.faded(NOW + FADE_SECONDS)
    assert (later.week_peak_bytes, later.faded_at) == (0, NOW + FADE_SECONDS)


@given(st.lists(amounts, max_size=400))
def test_the_size_of_a_history_is_bounded(used: list[int]) -> None:
    """However many samples there are, they stay in 180 buckets and 4 KiB of JSON."""
    found = history_of(*used)
    assert len(found.buckets) <= MOST_BUCKETS
    assert len(encode_histories("node", [found])) < 4096 + 20 * MOST_BUCKETS


def test_only_samples_of_a_start_count_for_its_peak() -> None:
    """Loading weights may need more than serving, or less."""
    found = UsageHistory(KEY)
    found.record(NOW, 3 * GIB, starting=True)
    found.record(NOW + 200, 5 * GIB)
    assert (found.start_peak_bytes, found.peak_bytes) == (3 * GIB, 5 * GIB)


def test_a_week_halves_the_samples_once() -> None:
    """Old samples count less, and the same week is not counted twice."""
    found = history_of(*[GIB] * 8)
    later = found.faded(NOW + FADE_SECONDS)
    assert later.samples == 4
    assert later.faded(NOW + FADE_SECONDS + 60) == later
    assert found.faded(NOW + FADE_SECONDS - 1) is found


@pytest.mark.parametrize("looks", [1, 3, 10])
def test_how_often_a_history_is_faded_changes_nothing(looks: int) -> None:
    """Weeks are counted from the first sample, whenever in a week somebody looks."""
    found = history_of(*[GIB] * 64)
    for number in range(1, looks + 1):
        found = found.faded(NOW + 4.5 * FADE_SECONDS * number / looks)
    assert (found.samples, found.faded_at) == (4, NOW + 4 * FADE_SECONDS)


def test_a_peak_without_samples_falls_to_the_highest_bucket_left() -> None:
    """One sample of weeks ago does not decide for ever."""
    found = history_of(20 * GIB, *[GIB] * 9).faded(NOW + FADE_SECONDS)
    found.record(NOW + FADE_SECONDS, GIB)
    later = found.faded(NOW + 2 * FADE_SECONDS)
    assert GIB <= later.peak_bytes < 1.05 * GIB + FIRST_WIDTH


def test_a_peak_of_the_last_week_is_kept_however_few_samples_it_has() -> None:
    """It may have been seen a minute before the samples are halved."""
    found = history_of(*[GIB] * 8, 20 * GIB).faded(NOW + FADE_SECONDS)
    assert found.peak_bytes == 20 * GIB


def test_the_peak_of_a_start_is_kept_while_there_are_samples() -> None:
    """A pod that ran for weeks needs it again when it starts again."""
    found = UsageHistory(KEY)
    found.record(NOW, 20 * GIB, starting=True)
    for _ in range(8):
        found.record(NOW + 200, GIB)
    later = found.faded(NOW + 3 * FADE_SECONDS)
    assert later.start_peak_bytes == later.peak_bytes == 20 * GIB
    assert later.samples == 1


def test_the_peak_of_a_start_ends_with_the_last_sample() -> None:
    """Otherwise the start of a program that nobody runs any more would keep the size for ever."""
    found = UsageHistory(KEY)
    found.record(NOW, 20 * GIB, starting=True)
    later = found.faded(NOW + 3 * FADE_SECONDS)
    assert (later.samples, later.start_peak_bytes, later.peak_bytes) == (0, 0, 0)
    assert later.is_forgotten


@pytest.mark.parametrize("what", ["sample", "peak", "ran_out", "reached"])
def test_a_history_is_forgotten_once_nothing_is_left_of_it(what: str) -> None:
    """A sample, a peak of the last week and an event are something each."""
    found = UsageHistory(KEY, first_seen=NOW, last_seen=NOW, faded_at=NOW)
    assert found.is_forgotten
    left = {"sample": {"samples": 1}, "peak": {"peak_bytes": 1}}
    event = {what: LimitEvent(NOW, GIB)}
    assert not msgspec.structs.replace(found, **left.get(what, event)).is_forgotten


def test_samples_of_a_document_without_a_time_of_fading_fade_from_the_first_one() -> None:
    """A reader fades what an earlier plugin serves, and does not take it for decades old."""
    found = history_of(*[GIB] * 8)
    found.faded_at = 0.0
    assert found.faded(NOW + FADE_SECONDS).samples == 4


@pytest.mark.slow
@given(histories(), st.floats(0, 1e8))
def test_fading_keeps_percentiles_below_the_peak(found: UsageHistory, age: float) -> None:
    """And never raises a peak."""
    later = found.faded(NOW + age)
    assert later.percentile(100) <= later.peak_bytes <= found.peak_bytes


@pytest.mark.slow
@given(histories(), st.floats(0, 1e8))
def test_events_are_kept_for_four_weeks(found: UsageHistory, age: float) -> None:
    """The number of events is zero exactly where the last one is forgotten."""
    later = found.faded(NOW + age)
    assert bool(later.out_of_memory) == bool(later.ran_out.at)
    if age < KEPT_SECONDS:
        assert (later.ran_out, later.reached) == (found.ran_out, found.reached)
    if age > KEPT_SECONDS + FADE_SECONDS + 1000:
        assert (later.ran_out, later.reached) == (LimitEvent(), LimitEvent())


@given(amounts, amounts)
def test_use_of_nearly_all_of_the_limit_is_an_event(used: int, limit: int) -> None:
    """From 98 % on, and never without a limit."""
    found = UsageHistory(KEY)
    found.record(NOW, used, requested_bytes=limit)
    assert bool(found.reached.at) == (0 < limit * 98 <= used * 100)
