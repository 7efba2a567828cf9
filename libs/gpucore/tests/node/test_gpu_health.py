"""A GPU goes down at the first bad sign and comes back after proof; storms are stopped."""

import pytest

from gpucore.node.health.breaker import WINDOW_SECONDS, Breaker
from gpucore.node.health.records import APPLICATION_XIDS, CALM_SECONDS, HealthRecords
from gpucore.node.health.xid_lines import INTERVAL_SECONDS, XidLines
from gpucore.units import GpuIndex, PodUid

GPUS = ("GPU-a", "GPU-b")


def book(clean_probes: int = 3) -> HealthRecords:
    made = HealthRecords(clean_probes=clean_probes, ignored_xids=APPLICATION_XIDS)
    made.watch_only(GPUS)
    return made


def probes_until_healthy(made: HealthRecords, uuid: str, now: float) -> int:
    count = 0
    while not made.healthy(uuid):
        count += 1
        assert count < 1000
        made.clean(uuid, now + count)
    return count


def test_a_fatal_xid_takes_its_gpu_down_and_no_other() -> None:
    """B9: XID 79 on one GPU leaves the other healthy."""
    made = book()
    verdict = made.xid("GPU-a", 79, 1.0)
    assert [(v.uuid, v.healthy, v.why) for v in verdict] == [("GPU-a", False, "XID 79")]
    assert (made.healthy("GPU-a"), made.healthy("GPU-b")) == (False, True)
    assert made.why("GPU-a") == "XID 79"


@pytest.mark.parametrize("code", [11, 13, 25, 31, 32, 37, 43, 45, 68, 69, 80, 109])
def test_an_application_xid_is_nobodys_fault(code: int) -> None:
    """B9: XID 31 changes nothing, and neither does another error of a program."""
    made = book()
    assert made.xid("GPU-a", code, 1.0) == []
    assert made.healthy("GPU-a")


@pytest.mark.parametrize("code", [46, 48, 62, 63, 64, 74, 79, 94, 95, 110, 119, 120, 140, 154])
def test_an_error_of_the_hardware_takes_its_gpu_down(code: int) -> None:
    """By the codes that are ignored by default."""
    made = book()
    assert made.xid("GPU-a", code, 1.0)
    assert not made.healthy("GPU-a")


def test_an_xid_of_no_gpu_is_of_every_gpu() -> None:
    """An event without a GPU cannot be trusted to concern only one."""
    made = book()
    assert {v.uuid for v in made.xid("", 79, 1.0)} == set(GPUS)


def test_a_gpu_returns_after_clean_probes_in_a_row() -> None:
    """Three clean probes bring it back; a bad sign in between starts the count anew."""
    made = book()
    made.bad("GPU-a", "lost", 1.0)
    made.clean("GPU-a", 2.0)
    made.clean("GPU-a", 3.0)
    assert made.bad("GPU-a", "lost", 4.0) == []
    assert probes_until_healthy(made, "GPU-a", 5.0) == 3
    assert made.why("GPU-a") == ""


def test_the_return_explains_what_was_wrong() -> None:
    """The verdict of a recovery names the trouble that is over."""
    made = book(clean_probes=1)
    made.bad("GPU-a", "lost", 1.0)
    (verdict,) = made.clean("GPU-a", 2.0)
    assert verdict.healthy
    assert verdict.why == "1 successful probes after lost"


def test_a_gpu_that_fails_again_soon_has_to_prove_itself_longer() -> None:
    """Each relapse doubles the probes; a calm hour clears the record."""
    made = book()
    needed = []
    now = 100.0
    for _ in range(3):
        made.bad("GPU-a", "lost", now)
        needed.append(probes_until_healthy(made, "GPU-a", now))
        now += 100
    assert needed == [3, 6, 12]
    now += CALM_SECONDS
    made.bad("GPU-a", "lost", now)
    assert probes_until_healthy(made, "GPU-a", now) == 3


def test_a_withdrawn_gpu_stays_away_for_its_time() -> None:
    """With a hold, clean probes alone are not enough."""
    made = book(clean_probes=1)
    made.bad("GPU-a", "storm", 1.0, hold=300.0)
    assert made.clean("GPU-a", 200.0) == []
    assert made.clean("GPU-a", 300.5) == []
    assert made.clean("GPU-a", 301.0)


def test_a_gpu_that_is_gone_is_forgotten() -> None:
    """Bad signs of a GPU that nobody watches change nothing."""
    made = book()
    made.bad("GPU-a", "lost", 1.0)
    made.watch_only(["GPU-b"])
    assert made.bad("GPU-a", "lost", 2.0) == []
    assert list(made) == ["GPU-b"]
    made.watch_only(GPUS)
    assert made.healthy("GPU-a")


def pod(number: int) -> PodUid:
    return PodUid(f"uid-{number}")


GPU = GpuIndex(0)


def test_pods_that_keep_failing_on_a_gpu_withdraw_it() -> None:
    """The third pod that cannot start trips a breaker of three, once."""
    breaker = Breaker(limit=3)
    tripped = [breaker.failed([GPU], pod(n), f"team-{n}", float(n)) for n in range(4)]
    assert tripped == [[], [], [GPU], []]


def test_one_pod_that_fails_again_and_again_is_one_failure() -> None:
    """A crash loop of one pod is that pod's trouble."""
    breaker = Breaker(limit=2)
    assert not any(breaker.failed([GPU], pod(1), f"team-{n}", float(n)) for n in range(50))


def test_a_pod_that_starts_clears_the_gpu() -> None:
    """A GPU on which anything runs is not broken."""
    breaker = Breaker(limit=2)
    breaker.failed([GPU], pod(1), "a", 1.0)
    breaker.started([GPU])
    assert breaker.failed([GPU], pod(2), "b", 2.0) == []


def test_failures_long_ago_do_not_count() -> None:
    """Only failures within the window add up."""
    breaker = Breaker(limit=2)
    breaker.failed([GPU], pod(1), "a", 1.0)
    assert breaker.failed([GPU], pod(2), "b", 2.0 + WINDOW_SECONDS) == []


def test_an_xid_is_logged_once_in_an_interval_with_the_number_that_was_not() -> None:
    """By GPU and code; the number starts over with each line."""
    lines = XidLines()
    end = 1.0 + INTERVAL_SECONDS
    assert [lines.suppressed("GPU-a", 31, now) for now in (1.0, 2.0, end - 0.1)] == [0, None, None]
    assert lines.suppressed("GPU-a", 13, 2.0) == 0
    assert lines.suppressed("GPU-b", 31, 2.0) == 0
    assert [lines.suppressed("GPU-a", 31, now) for now in (end, end + 1)] == [2, None]
    assert lines.suppressed("GPU-a", 31, end + 10 * INTERVAL_SECONDS) == 1
    assert lines.suppressed("GPU-a", 31, end + 20 * INTERVAL_SECONDS) == 0
