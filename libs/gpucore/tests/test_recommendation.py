"""Recommended sizes cover what was measured, and nothing is recommended without enough of it."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpucore.explain.sizing import sizing_sentence
from gpucore.sizing.evidence import DAY, Confidence, SizingRules, highest_peak
from gpucore.sizing.recommendation import (
    Recommendation,
    SizingAdvice,
    SizingReason,
    recommend,
)
from gpucore.sizing.share_size import ContainerSize
from gpucore.sizing.usage_history import KEPT_SECONDS, LimitEvent, UsageHistory, WorkloadKey
from gpucore.units import GIB, MIB, MemoryUnit

BYTES = 1 << 30
KEY = WorkloadKey("team", "Deployment", "server", "main")
UNITS = st.sampled_from([GIB, MIB, MemoryUnit(256), MemoryUnit(2048)])
RULES = st.builds(SizingRules, percentile=st.floats(1, 100), margin=st.integers(0, 200))


def measured(
    *used: float,
    requested: float = 16,
    limit: float = 0,
    days: float = 8,
    starts: int = 12,
    pods: int = 3,
    start_peak: float = 0,
    out_of_memory: int = 0,
    failed_at: float = 0,
    failed_days_ago: float = 0,
    gpus: int = 1,
) -> UsageHistory:
    """A history of samples in GiB, which span the days; ``failed_at`` is the limit at events."""
    found = UsageHistory(KEY, pods=pods, starts=starts)
    amounts = {"requested_bytes": int(requested * BYTES), "limit_bytes": int(limit * BYTES)}
    for each in used:
        found.record(0.0, int(each * BYTES), **amounts)
    found.requested_bytes, found.limit_bytes = amounts["requested_bytes"], amounts["limit_bytes"]
    found.first_seen, found.last_seen = 1000.0, 1000.0 + days * DAY
    found.start_peak_bytes, found.gpus = int(start_peak * BYTES), gpus
    found.reached = LimitEvent()
    for _ in range(out_of_memory):
        failed = failed_at or max(limit, requested)
        found.fail(max(found.last_seen - failed_days_ago * DAY, 1.0), int(failed * BYTES))
    return found


SIZES = st.floats(0, 300)
ANY: dict[str, st.SearchStrategy[Any]] = {
    "used": st.lists(SIZES, max_size=8),
    "requested": st.floats(0.1, 300),
    "limit": st.one_of(st.just(0.0), SIZES),
    "days": st.floats(0, 30),
    "starts": st.integers(0, 20),
    "pods": st.integers(0, 9),
    "start_peak": SIZES,
    "out_of_memory": st.sampled_from([0, 0, 0, 1, 5]),
    "failed_at": st.one_of(st.just(0.0), st.floats(0.001, 300)),
    "failed_days_ago": st.sampled_from([0.0, 0.9, 1.1, 20.0]),
    "gpus": st.sampled_from([0, 1, 1, 2, 8]),
    "reached": st.one_of(st.just(0.0), SIZES),
    "roomy": st.sampled_from(["", "", "limit", "request"]),
}
"""The arguments of :func:`measured`, a limit that was reached, and what is twice the peak."""
LONG: dict[str, st.SearchStrategy[Any]] = {
    "used": st.lists(SIZES, min_size=1, max_size=8),
    "days": st.floats(1, 30),
    "starts": st.integers(3, 20),
    "reached": st.just(0.0),
    "roomy": st.sampled_from(["limit", "request"]),
}
"""Measured long enough, far below its limit."""
FAILED: dict[str, st.SearchStrategy[Any]] = {"out_of_memory": st.sampled_from([1, 5])}
NEVER_FAILED: dict[str, st.SearchStrategy[Any]] = {"out_of_memory": st.just(0)}
LATELY: dict[str, st.SearchStrategy[Any]] = {"failed_days_ago": st.sampled_from([0.0, 0.9])}
LONG_AGO: dict[str, st.SearchStrategy[Any]] = {"failed_days_ago": st.sampled_from([1.1, 20.0])}


def histories(**narrowed: st.SearchStrategy[Any]) -> st.SearchStrategy[UsageHistory]:
    """Any history of a container whose request is known, with some arguments narrowed."""
    return st.fixed_dictionaries(ANY | narrowed).map(_history)


def _history(drawn: dict[str, Any]) -> UsageHistory:
    used, reached, roomy = (drawn.pop(name) for name in ("used", "reached", "roomy"))
    found = measured(*used, **drawn)
    if roomy == "limit":
        found.limit_bytes = max(found.limit_bytes, 2 * highest_peak(found))
    if roomy == "request":
        found.requested_bytes = max(found.requested_bytes, 2 * highest_peak(found))
    if reached:
        found.reached = LimitEvent(found.last_seen, int(reached * BYTES))
    return found


def measured_histories(**narrowed: st.SearchStrategy[Any]) -> st.SearchStrategy[UsageHistory]:
    """Histories whose measured use decides: without an event, or a day after it."""
    fine = histories(**LONG | NEVER_FAILED | narrowed)
    return st.one_of(fine, histories(**LONG | FAILED | LONG_AGO | narrowed))


def failed_histories(**narrowed: st.SearchStrategy[Any]) -> st.SearchStrategy[UsageHistory]:
    """Histories of containers that ran out of memory, and get a recommendation."""
    lately = histories(**FAILED | LATELY | narrowed)
    return st.one_of(lately, histories(**LONG | FAILED | LONG_AGO | narrowed))


def sized_histories(**narrowed: st.SearchStrategy[Any]) -> st.SearchStrategy[UsageHistory]:
    """Histories that get a recommendation, by any of the rules that give one."""
    reached = {"reached": st.floats(0.001, 300)}
    return st.one_of(
        measured_histories(**narrowed),
        failed_histories(**narrowed),
        histories(**LONG | NEVER_FAILED | reached | narrowed),
    )


def short_histories() -> st.SearchStrategy[UsageHistory]:
    """Histories without an event of less than a day, or of few starts in less than a week."""
    quiet = NEVER_FAILED | {"reached": st.just(0.0)}
    seldom = {"days": st.floats(0, 6.9), "starts": st.integers(0, 2)}
    return st.one_of(histories(**quiet, days=st.floats(0, 0.9)), histories(**quiet, **seldom))


def in_bytes(units: int, unit: MemoryUnit) -> int:
    """Units as bytes."""
    return units * unit.mib * (1 << 20)


@given(sized_histories(), UNITS, RULES)
def test_the_limit_covers_every_peak_with_the_margin(
    history: UsageHistory, unit: MemoryUnit, rules: SizingRules
) -> None:
    """Also the peak at the start of a pod."""
    size = recommend(history, unit, rules).size
    assert size is not None
    needed = highest_peak(history) * (100 + rules.margin)
    assert 100 * in_bytes(size.limit, unit) >= needed


@given(sized_histories(), UNITS, RULES)
def test_the_request_covers_the_percentile_and_without_a_burst_limit_the_peak(
    history: UsageHistory, unit: MemoryUnit, rules: SizingRules
) -> None:
    """A share without a burst limit cannot use more than it requests."""
    size = recommend(history, unit, rules).size
    assert size is not None
    covered = history.percentile(rules.percentile) if size.burst else highest_peak(history)
    assert 100 * in_bytes(size.request, unit) >= covered * (100 + rules.margin)
    assert 1 <= size.request <= size.limit


@pytest.mark.slow
@given(measured_histories(roomy=st.just("limit")), UNITS, RULES)
def test_the_size_is_the_smallest_that_covers(
    history: UsageHistory, unit: MemoryUnit, rules: SizingRules
) -> None:
    """Rounding adds less than one unit of each GPU to the limit."""
    found = recommend(history, unit, rules)
    assert found.reason is SizingReason.MEASURED
    assert found.size is not None
    most = max(highest_peak(history), history.ran_out.limit_bytes + 1)
    one_less = 100 * in_bytes(found.size.limit - max(history.gpus, 1), unit)
    assert one_less < most * (100 + rules.margin) or found.size.limit == max(history.gpus, 1)


@pytest.mark.slow
@given(histories(**FAILED | LATELY), UNITS, RULES)
def test_a_container_that_ran_out_of_memory_is_raised_and_not_shrunk_for_a_day(
    history: UsageHistory, unit: MemoryUnit, rules: SizingRules
) -> None:
    """By at least a fifth of the limit that was not enough, however short it was measured."""
    found = recommend(history, unit, rules)
    assert found.size is not None
    assert 5 * in_bytes(found.size.limit, unit) >= 6 * history.ran_out.limit_bytes
    assert found.size.request >= found.current.request
    assert found.size.limit >= found.current.limit
    assert found.advice in {SizingAdvice.RAISE, SizingAdvice.RIGHT}


@pytest.mark.slow
@given(failed_histories(), UNITS, RULES)
def test_a_limit_that_was_not_enough_is_never_recommended_again(
    history: UsageHistory, unit: MemoryUnit, rules: SizingRules
) -> None:
    """As long as the event is known, also after the day and without a margin."""
    size = recommend(history, unit, rules).size
    assert size is not None
    assert in_bytes(size.limit, unit) > history.ran_out.limit_bytes


@pytest.mark.slow
@given(failed_histories(), UNITS, RULES)
def test_a_raised_limit_that_was_applied_is_not_raised_again(
    history: UsageHistory, unit: MemoryUnit, rules: SizingRules
) -> None:
    """One event raises once, however often the recommendation is applied."""
    size = recommend(history, unit, rules).size
    assert size is not None
    history.requested_bytes = in_bytes(size.request, unit)
    history.limit_bytes = in_bytes(size.limit, unit)
    again = recommend(history, unit, rules)
    assert again.size is None or again.size.limit <= size.limit


@pytest.mark.slow
@given(sized_histories(gpus=st.sampled_from([2, 8])), UNITS, RULES)
def test_the_size_of_a_pod_with_several_gpus_is_a_multiple_of_their_number(
    history: UsageHistory, unit: MemoryUnit, rules: SizingRules
) -> None:
    """Each of its GPUs gives the same number of units."""
    size = recommend(history, unit, rules).size
    assert size is not None
    assert size.request % history.gpus == size.limit % history.gpus == 0


@pytest.mark.slow
@given(short_histories(), UNITS, RULES)
def test_nothing_is_recommended_for_what_was_measured_too_short(
    history: UsageHistory, unit: MemoryUnit, rules: SizingRules
) -> None:
    """Less than a day, or fewer than three starts in less than a week."""
    found = recommend(history, unit, rules)
    assert (found.size, found.reason) == (None, SizingReason.TOO_SHORT)


@pytest.mark.slow
@given(sized_histories(), UNITS, RULES, st.integers(1, 400))
def test_no_share_is_recommended_beyond_the_largest_gpu(
    history: UsageHistory, unit: MemoryUnit, rules: SizingRules, largest: int
) -> None:
    """Unless the container has more than that already: its share is spread over several GPUs."""
    capped = SizingRules(percentile=rules.percentile, margin=rules.margin, gpu_sizes=(1, largest))
    found = recommend(history, unit, capped)
    assert found.size is not None
    most = largest * max(history.gpus, 1)
    assert found.size.limit <= max(most, found.current.limit)
    assert found.size.request <= max(most, found.current.request)
    assert found.capped == (found.size != recommend(history, unit, rules).size)


@pytest.mark.slow
@given(measured_histories(), UNITS, RULES)
def test_a_recommended_size_that_was_applied_is_right(
    history: UsageHistory, unit: MemoryUnit, rules: SizingRules
) -> None:
    """The same use recommends the same size again: recommendations do not creep."""
    history.out_of_memory, history.ran_out, history.reached = 0, LimitEvent(), LimitEvent()
    history.first_seen = min(history.first_seen, history.last_seen - 7 * DAY)
    size = recommend(history, unit, rules).size
    assert size is not None
    history.requested_bytes = in_bytes(size.request, unit)
    history.limit_bytes = in_bytes(size.limit, unit)
    again = recommend(history, unit, rules)
    assume(bool(size.burst) == bool(again.current.burst))
    assert (again.advice, again.size) == (SizingAdvice.RIGHT, size)


@given(histories(), UNITS, RULES)
def test_every_recommendation_has_a_sentence(
    history: UsageHistory, unit: MemoryUnit, rules: SizingRules
) -> None:
    """One line, for every rule."""
    text = sizing_sentence(recommend(history, unit, rules))
    assert text
    assert "\n" not in text


def found_in(history: UsageHistory, **rules: Any) -> Recommendation:
    """The recommendation in GiB."""
    return recommend(history, GIB, SizingRules(**rules))


def test_a_share_that_is_half_empty_is_shrunk_to_its_peak_with_the_margin() -> None:
    """6.0 GiB and 15 % are 6.9, which 7 units hold."""
    found = found_in(measured(2, 3, 6))
    assert (found.size, found.advice) == (ContainerSize(7), SizingAdvice.SHRINK)
    assert found.freed == 9
    assert sizing_sentence(found) == "it used at most 6.0 GiB, with a margin of 15 %"


def test_the_peak_of_starts_counts_where_it_is_the_highest() -> None:
    """Loading a model may take more than serving it."""
    assert found_in(measured(2, 3, start_peak=8)).size == ContainerSize(10)


def test_with_a_burst_limit_the_request_follows_the_percentile() -> None:
    """19 of 20 samples are in the bucket that ends at 4.2 GiB; the highest is 10."""
    found = found_in(measured(*[4] * 19, 10, limit=20))
    assert found.size == ContainerSize(5, 12)
    assert sizing_sentence(found) == (
        "it used at most 10.0 GiB, and 4.2 GiB or less in 95 % of the samples,"
        " with a margin of 15 %"
    )


def test_a_size_that_fits_is_right() -> None:
    """And the sentence begins with that."""
    found = found_in(measured(4, 6, requested=7))
    assert (found.advice, found.freed) == (SizingAdvice.RIGHT, 0)
    assert sizing_sentence(found).startswith("the size is right: it used at most 6.0 GiB")


def test_a_size_that_was_applied_to_steady_use_is_right() -> None:
    """6 of 7 GiB all the time is what the margin leaves, not a server that fills its share."""
    found = found_in(measured(6, 6, 6, requested=7))
    assert (found.reason, found.advice) == (SizingReason.MEASURED, SizingAdvice.RIGHT)


def test_out_of_memory_raises_the_limit_at_once() -> None:
    """After an hour and one start."""
    found = found_in(measured(9, requested=10, days=0.05, starts=1, out_of_memory=1))
    assert (found.size, found.confidence) == (ContainerSize(12), Confidence.LOW)
    assert sizing_sentence(found) == (
        "it ran out of GPU memory 1 time, last at 10 GiB: its limit is at least 20 % above that"
        " for a day"
    )


@pytest.mark.parametrize(("days_ago", "size"), [(0.9, ContainerSize(12)), (1.1, ContainerSize(10))])
def test_after_a_day_the_limit_that_was_not_enough_counts_as_a_peak(
    days_ago: float, size: ContainerSize
) -> None:
    """8 GiB and 15 % are 9.2, which 10 units hold, although no sample is above 4 GiB."""
    history = measured(4, requested=12, out_of_memory=1, failed_at=8, failed_days_ago=days_ago)
    assert found_in(history).size == size


def test_an_event_is_forgotten_after_four_weeks() -> None:
    """A program that failed once does not keep its memory for ever."""
    history = measured(4, 4, requested=12, out_of_memory=1, failed_at=8)
    later = history.faded(history.ran_out.at + KEPT_SECONDS + 1)
    assert (later.ran_out, later.out_of_memory) == (LimitEvent(), 0)


def test_use_that_reaches_the_limit_raises_it_at_once() -> None:
    """No driver counts allocations that failed: this is the sign of them."""
    history = measured(days=0.1, starts=1, requested=10)
    for number, used in enumerate((3, 5, 7, 9.9)):
        history.record(history.last_seen + number, int(used * BYTES), requested_bytes=10 * BYTES)
    found = found_in(history)
    assert (found.reason, found.size) == (SizingReason.LIMIT_REACHED, ContainerSize(12))
    assert sizing_sentence(found) == (
        "its use reached its limit of 10 GiB: its limit is at least 20 % above that for a day"
    )


def test_a_server_that_fills_its_share_is_not_raised() -> None:
    """It would fill the raised one as well."""
    history = measured(9.9, days=8, requested=10)
    for number in range(9):
        history.record(history.last_seen + number, int(9.9 * BYTES), requested_bytes=10 * BYTES)
    assert history.reached.at
    assert found_in(history).reason is SizingReason.TAKES_ALL


def test_a_server_that_takes_all_it_is_given_is_left_alone() -> None:
    """Nine tenths of its limit in every sample."""
    found = found_in(measured(14.4, 14.4, 14.5, 14.4))
    assert (found.size, found.reason) == (None, SizingReason.TAKES_ALL)
    assert "weights plus the cache" in sizing_sentence(found)


def test_a_container_that_is_full_at_times_only_is_not_left_alone() -> None:
    """Its use shows what it needs."""
    assert found_in(measured(2, 2, 15, 15, 15)).reason is SizingReason.MEASURED


def test_what_is_missing_is_stated_where_it_was_measured_too_short() -> None:
    """How long it was measured, and what is needed."""
    found = found_in(measured(3, days=0.25, starts=1))
    assert sizing_sentence(found) == (
        "measured for 6 hours and 1 start: a recommendation needs 1 day and 3 starts, or"
        " 7 days and 20 samples"
    )


def test_no_request_is_no_recommendation() -> None:
    """As of a pod with an exclusive GPU."""
    found = found_in(measured(3, requested=0))
    assert (found.size, found.reason) == (None, SizingReason.NO_REQUEST)


def test_more_than_a_gpu_has_is_capped_and_stated() -> None:
    """15 GiB with the margin are 18."""
    found = found_in(measured(2, 15, requested=16), gpu_sizes=(8, 16))
    assert (found.size, found.capped) == (ContainerSize(16), True)
    assert sizing_sentence(found).endswith("; no more than the largest GPU has, 16 GiB")


def test_a_burst_limit_beyond_the_largest_gpu_raises_no_request_beyond_it() -> None:
    """No GPU could take such a share; 15.5 GiB with the margin are 18."""
    history = measured(*[15.5] * 9, 8, requested=10, limit=20)
    found = found_in(history, gpu_sizes=(8, 16))
    assert (found.size, found.capped) == (ContainerSize(16, 18), True)


def test_a_share_of_several_gpus_is_capped_at_the_memory_of_all_of_them() -> None:
    """20 GiB with the margin are 23, which two GPUs of 16 GiB hold and one does not."""
    found = found_in(measured(2, 20, requested=14, gpus=2), gpu_sizes=(8, 16))
    assert (found.size, found.capped) == (ContainerSize(24), False)


@pytest.mark.parametrize(
    ("days", "starts", "pods", "expected"),
    [
        (1, 3, 1, Confidence.LOW),
        (3, 3, 1, Confidence.MEDIUM),
        (7, 0, 2, Confidence.MEDIUM),
        (7, 0, 1, Confidence.LOW),
        (7, 10, 3, Confidence.HIGH),
        (7, 10, 2, Confidence.MEDIUM),
        (6.9, 10, 3, Confidence.MEDIUM),
    ],
)
def test_confidence_grows_with_days_starts_and_pods(
    days: float, starts: int, pods: int, expected: Confidence
) -> None:
    """Each of them alone is not enough."""
    assert found_in(measured(4, days=days, starts=starts, pods=pods)).confidence is expected


@pytest.mark.parametrize(("requested", "whole"), [(16, True), (80, True), (160, True), (40, False)])
def test_a_request_of_a_whole_gpu_is_marked(requested: int, whole: bool) -> None:
    """Of any size that there is, or of several GPUs: an exclusive GPU looks the same."""
    found = found_in(measured(3, requested=requested), gpu_sizes=(16, 80))
    assert found.whole_gpu is whole


@pytest.mark.parametrize(
    ("requested", "gpus", "whole"),
    [(44, 2, True), (66, 3, True), (45, 2, False), (40, 2, False), (160, 2, True), (22, 1, True)],
)
def test_a_request_of_several_whole_gpus_is_marked(requested: int, gpus: int, whole: bool) -> None:
    """Each of its GPUs has the size of one of the cluster."""
    found = found_in(measured(10, requested=requested, gpus=gpus), gpu_sizes=(22, 80))
    assert found.whole_gpu is whole
    assert ("keep it if no other pod" in sizing_sentence(found)) is whole
