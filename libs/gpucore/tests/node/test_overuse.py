"""Who uses more than was handed out, and when that is reported again."""

from gpucore.node.isolation.overuse import AGAIN_SECONDS, MemoryOveruse, Reminders, over_use
from gpucore.units import GpuIndex, PodUid

GPU = GpuIndex(0)
A, B, C = PodUid("a"), PodUid("b"), PodUid("c")


def found(
    used: dict[PodUid, int], allocated: dict[PodUid, int], slack: int = 0
) -> list[MemoryOveruse]:
    return over_use(GPU, used=used, allocated=allocated, exempt={C}, slack=slack)


def test_only_more_than_the_grant_is_too_much() -> None:
    """The grant itself may be used up; a byte more is over-use, less the slack."""
    allocated = {A: 100, B: 100}
    assert found({A: 100, B: 101}, allocated) == [MemoryOveruse(B, GPU, 101, 100)]
    assert found({A: 100, B: 110}, allocated, slack=10) == []


def test_a_pod_of_another_gpu_was_given_nothing_of_this_one() -> None:
    """Every byte is too much where nothing was handed out."""
    assert found({A: 1}, {}) == [MemoryOveruse(A, GPU, 1, 0)]


def test_who_has_the_gpu_whole_may_use_all_of_it() -> None:
    """Exempt pods are never found."""
    assert found({C: 1 << 40}, {}) == []


def test_over_use_is_reported_when_it_begins_and_rarely_again() -> None:
    """Once, then after ten minutes, and at once when it had ended in between."""
    reminders, over = Reminders(), [MemoryOveruse(A, GPU, 2, 1)]
    assert reminders.due(GPU, over, 0.0) == over
    assert reminders.due(GPU, over, AGAIN_SECONDS - 1) == []
    assert reminders.due(GpuIndex(1), [], AGAIN_SECONDS - 1) == []
    assert reminders.due(GPU, over, AGAIN_SECONDS) == over
    assert reminders.due(GPU, [], AGAIN_SECONDS + 1) == []
    assert reminders.due(GPU, over, AGAIN_SECONDS + 2) == over


def test_a_round_of_another_gpu_forgets_nothing_of_this_one() -> None:
    """GPUs are measured one after the other; each round would report all of them."""
    reminders, other = Reminders(), GpuIndex(1)
    over = [MemoryOveruse(A, GPU, 2, 1)]
    assert reminders.due(GPU, over, 0.0) == over
    assert reminders.due(other, [MemoryOveruse(A, other, 2, 1)], 1.0)
    assert reminders.due(GPU, over, 2.0) == []
