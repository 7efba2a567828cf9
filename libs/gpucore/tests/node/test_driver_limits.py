"""What a look at a memory limit of the driver means."""

import pytest

from gpucore.node.isolation.driver_limits import NO_LIMIT, Finding, MemoryLimit, judge, limit_of

WANTED, OTHER = MemoryLimit(5, 5), MemoryLimit(0, 9)


def test_no_limit_is_spelled_as_nvml_does() -> None:
    """Soft 0 and the largest number of 64 bits."""
    assert MemoryLimit(0, 0xFFFFFFFFFFFFFFFF) == NO_LIMIT


@pytest.mark.parametrize(
    ("read", "after", "confirmed", "finding"),
    [
        (WANTED, WANTED, False, Finding.HOLDS),
        (WANTED, WANTED, True, Finding.HOLDS),
        (NO_LIMIT, WANTED, False, Finding.HOLDS),  # set for the first time
        (OTHER, WANTED, False, Finding.HOLDS),  # of an earlier share, before a restart
        (NO_LIMIT, WANTED, True, Finding.BROKEN),  # somebody took it off
        (OTHER, WANTED, True, Finding.BROKEN),
        (NO_LIMIT, NO_LIMIT, False, Finding.BROKEN),  # it cannot be set
        (WANTED, OTHER, True, Finding.BROKEN),
    ],
)
def test_a_limit_that_somebody_changed_counts_until_it_is_found_in_force_again(
    read: MemoryLimit, after: MemoryLimit, confirmed: bool, finding: Finding
) -> None:
    """A first setting is no difference; a later one is, although it was repaired."""
    assert judge(WANTED, read, after=after, confirmed=confirmed) is finding


def test_a_share_is_guaranteed_and_is_all_that_can_be_allocated() -> None:
    """Without the guarantee the neighbours could take it first."""
    assert limit_of(5) == MemoryLimit(soft=5, hard=5)
