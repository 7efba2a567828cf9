"""The record of one GPU over time: holds, relapses, and what is known of it while it is down."""

import pytest

from gpucore.node.health.breaker import WINDOW_SECONDS, Breaker
from gpucore.node.health.records import CALM_SECONDS, MOST_DOUBLINGS, HealthRecords
from gpucore.units import GpuIndex

GPU = "GPU-a"


def records(clean_probes: int = 1) -> HealthRecords:
    """Of one GPU."""
    made = HealthRecords(clean_probes=clean_probes, ignored_xids=())
    made.watch_only([GPU])
    return made


def probes(made: HealthRecords, now: float) -> int:
    """Number of successful probes, all at this time, after which the GPU is offered again."""
    for count in range(1, 1000):
        if made.clean(GPU, now):
            return count
    raise AssertionError("it never returns")


def test_another_enumeration_keeps_what_is_known_of_a_gpu() -> None:
    """It is made every minute, and a GPU that is down must not return by it."""
    made = records(clean_probes=3)
    made.bad(GPU, "lost", 1.0)
    made.clean(GPU, 2.0)
    made.watch_only([GPU, "GPU-b"])
    assert not made.healthy(GPU)
    assert probes(made, 3.0) == 2


def test_the_last_failure_is_the_reason() -> None:
    """Of a GPU that fails in several ways while it is down."""
    made = records()
    made.bad(GPU, "lost", 1.0)
    made.bad(GPU, "XID 79", 2.0)
    (verdict,) = made.clean(GPU, 3.0)
    assert verdict.why == "1 successful probes after XID 79"


@pytest.mark.parametrize("code", [48, 62, 64, 79, 95, 119, 120])
def test_a_gpu_that_needs_a_reset_does_not_return_by_probes(code: int) -> None:
    """It answers them without the reset too; another bad sign meanwhile changes nothing."""
    made = records(clean_probes=3)
    made.xid(GPU, code, 1.0)
    made.bad(GPU, "lost", 2.0)
    made.watch_only([GPU])
    assert [made.clean(GPU, 2.0 + n) for n in range(100)] == [[]] * 100
    assert not made.healthy(GPU)


def test_a_gpu_that_was_reset_returns_once_its_driver_reports_that() -> None:
    """It needs as many probes from then on as any other GPU."""
    made = records(clean_probes=3)
    made.xid(GPU, 79, 1.0)
    made.clean(GPU, 2.0)
    assert made.clean(GPU, 3.0, recovered=True) == []
    assert probes(made, 4.0) == 2
    made.xid(GPU, 79, 5.0)
    assert made.clean(GPU, 6.0) == []
    assert not made.healthy(GPU)


@pytest.mark.parametrize("code", [63, 74, 94])
def test_a_gpu_returns_by_probes_after_an_xid_without_a_reset(code: int) -> None:
    """NVIDIA's catalog names another action for it, or none."""
    made = records(clean_probes=3)
    made.xid(GPU, code, 1.0)
    assert probes(made, 2.0) == 3


def test_a_shorter_hold_does_not_end_a_longer_one() -> None:
    """A probe that fails meanwhile has no hold at all."""
    made = records()
    made.bad(GPU, "starts fail", 0.0, hold=300.0)
    made.bad(GPU, "lost", 100.0)
    made.bad(GPU, "starts fail", 150.0, hold=50.0)
    assert made.clean(GPU, 299.0) == []
    assert made.clean(GPU, 300.0)


def test_a_longer_hold_of_a_gpu_that_is_down_counts() -> None:
    """It lost its probe first, and then starts failed on it."""
    made = records()
    made.bad(GPU, "lost", 0.0)
    made.bad(GPU, "starts fail", 10.0, hold=300.0)
    assert made.clean(GPU, 309.0) == []
    assert made.clean(GPU, 310.0)


def test_every_relapse_doubles_proof_and_hold_up_to_a_bound() -> None:
    """A GPU that flaps is offered more and more rarely, but never given up."""
    made, now = records(), 0.0
    for relapse in range(MOST_DOUBLINGS + 3):
        doubled = 2 ** min(relapse, MOST_DOUBLINGS)
        made.bad(GPU, "lost", now, hold=10.0)
        for _ in range(2 * doubled):
            assert made.clean(GPU, now + 10.0 * doubled - 1) == []
        made.bad(GPU, "lost", now)  # the count of probes starts over
        now += 10.0 * doubled
        assert probes(made, now) == doubled
        now += 1.0


def test_a_relapse_is_one_within_an_hour_of_the_return() -> None:
    """Not of the failure: a GPU that was down for long is no better for it."""
    made = records()
    made.bad(GPU, "lost", 1.0)
    returned = 1.0 + 5 * CALM_SECONDS
    assert probes(made, returned) == 1
    made.bad(GPU, "lost", returned + CALM_SECONDS)
    assert probes(made, returned + CALM_SECONDS + 1) == 2
    calm = returned + 3 * CALM_SECONDS
    made.bad(GPU, "lost", calm)
    assert probes(made, calm + 1) == 1


def test_a_pod_that_fails_on_and_on_does_not_keep_its_failure_fresh() -> None:
    """The window begins with its first failure, so that one bad pod a day withdraws nothing."""
    breaker, gpu = Breaker(limit=2), GpuIndex(0)
    breaker.failed([gpu], "uid-1", "a", 0.0)
    breaker.failed([gpu], "uid-1", "a", WINDOW_SECONDS - 1)
    assert breaker.failed([gpu], "uid-2", "b", WINDOW_SECONDS + 1) == []
