"""What a history shows, at the bounds of each rule."""

import pytest

from gpucore.sizing.evidence import (
    DAY,
    Confidence,
    SizingRules,
    confidence_of,
    days_of,
    is_recent,
    is_too_short,
    needed_bytes,
    takes_all,
)
from gpucore.sizing.usage_history import LimitEvent, UsageHistory, WorkloadKey

GIB = 1 << 30
NOW = 1.7e9


def history(
    *used: int, days: float = 8, starts: int = 12, pods: int = 3, limit: int = 100
) -> UsageHistory:
    """Samples in GiB of a container with a limit in GiB."""
    found = UsageHistory(WorkloadKey("team", "Deployment", "web", "main"), pods=pods, starts=starts)
    for each in used:
        found.record(NOW, each * GIB, requested_bytes=limit * GIB)
    found.first_seen, found.last_seen = NOW - days * DAY, NOW
    return found


@pytest.mark.parametrize(
    ("days", "starts", "short"),
    [(1, 3, False), (0.9, 9, True), (1, 2, True), (7, 0, False), (6.9, 2, True), (6.9, 3, False)],
)
def test_a_day_with_three_starts_or_a_week_is_enough(
    days: float, starts: int, *, short: bool
) -> None:
    """Either alone; without samples nothing is."""
    assert is_too_short(history(*[1] * 20, days=days, starts=starts), SizingRules()) is short
    assert is_too_short(history(days=days, starts=starts), SizingRules())


def test_an_event_of_a_pod_without_samples_is_no_time_of_measuring() -> None:
    """The plugin cannot tell pods on one GPU apart, and a pod of it ran out of memory."""
    found = UsageHistory(WorkloadKey("team", "Deployment", "web", "main"), pods=3, starts=12)
    found.fail(NOW, 8 * GIB)
    assert days_of(found) == 0
    assert confidence_of(found) is Confidence.LOW


def test_a_week_with_few_samples_is_not_enough() -> None:
    """One sample a day on changing nodes hides what lies between; several starts are enough."""
    assert is_too_short(history(*[1] * 19, days=7, starts=2), SizingRules())
    assert not is_too_short(history(*[1] * 19, days=7, starts=3), SizingRules())


@pytest.mark.parametrize(
    ("days", "starts", "pods", "confidence"),
    [
        (7, 10, 3, Confidence.HIGH),
        (7, 9, 3, Confidence.MEDIUM),
        (7, 10, 2, Confidence.MEDIUM),
        (6.9, 10, 3, Confidence.MEDIUM),
        (3, 3, 1, Confidence.MEDIUM),
        (7, 2, 2, Confidence.MEDIUM),
        (7, 2, 1, Confidence.LOW),
        (3, 2, 3, Confidence.LOW),
        (2.9, 9, 9, Confidence.LOW),
    ],
)
def test_confidence_needs_days_starts_and_pods(
    days: float, starts: int, pods: int, confidence: Confidence
) -> None:
    """Each bound belongs to the higher step."""
    assert confidence_of(history(1, days=days, starts=starts, pods=pods)) is confidence


def test_a_need_is_the_highest_peak_and_more_than_a_limit_that_was_not_enough() -> None:
    """By a byte: the same limit would fail again."""
    found = history(4)
    assert needed_bytes(found) == 4 * GIB
    found.start_peak_bytes = 6 * GIB
    assert needed_bytes(found) == 6 * GIB
    found.fail(NOW, 8 * GIB)
    assert needed_bytes(found) == 8 * GIB + 1
    assert needed_bytes(history()) == 0


def test_an_event_is_recent_for_a_day() -> None:
    """The day of the last sample, not of the reader; never is not recent."""
    found = history(1)
    assert is_recent(LimitEvent(NOW - DAY + 1, 1), found)
    assert not is_recent(LimitEvent(NOW - DAY, 1), found)
    assert not is_recent(LimitEvent(), history(1, days=0))
    young = history(1)
    young.last_seen = 5.0
    assert not is_recent(LimitEvent(), young)


@pytest.mark.parametrize(
    ("used", "takes"),
    [
        ([95] * 20, True),
        ([60] * 20, False),
        ([10] + [90] * 19, True),
        ([10] * 5 + [90] * 15, False),
        ([80] * 10 + [99] * 10, False),
    ],
)
def test_use_near_the_limit_that_varies_little_takes_all(used: list[int], *, takes: bool) -> None:
    """From 70 % on, within a tenth of the limit; the first samples may be those of a start."""
    assert takes_all(history(*used)) is takes
