"""Whose work ran on a GPU: sums by pod, and which pods had none for certain."""

from gpucore.node.isolation.attribution import UNKNOWN, EngineUse, engine_use
from gpucore.units import PodUid

A = PodUid("6f3c1a90-2b4d-4e8f-9a01-c2d3e4f5a6b7")
B = PodUid("7" * 8 + A[8:])
CGROUPS = {
    1: f"0::/kubepods/pod{A}/x",
    2: f"0::/kubepods/pod{A}/y",
    3: f"0::/kubepods/pod{B}/z",
    4: "0::/system.slice/nvidia-mps.service",
}


def test_the_work_of_a_pods_processes_adds_up_to_at_most_all_of_the_gpu() -> None:
    """The driver averages each process over a time of its own."""
    assert engine_use({1: 30, 2: 20}, CGROUPS, [A, B], [A, B]) == EngineUse({A: 50}, {B})
    assert engine_use({1: 80, 2: 70}, CGROUPS, [A], [A]) == EngineUse({A: 100}, set())


def test_a_pod_is_idle_only_if_every_process_with_work_is_of_a_holder() -> None:
    """The work of the MPS server may be that of any client; so may that of an ended process."""
    assert engine_use({1: 30}, CGROUPS, [A, B], [A, B]).of(B) == 0
    assert engine_use({1: 30, 4: 5}, CGROUPS, [A, B], [A, B]).of(B) is None
    assert engine_use({1: 30, 9: 5}, CGROUPS, [A, B], [A, B]).of(B) is None
    assert engine_use({1: 30, 3: 5}, CGROUPS, [A], [A]).of(B) is None
    assert engine_use({}, CGROUPS, [A, B], [A]) == EngineUse({}, {A})


def test_a_pod_with_work_of_other_engines_is_not_idle() -> None:
    """A decoder at work is 0 percent of the SMs; a driver that reports nothing is unknown."""
    assert engine_use({1: 0}, CGROUPS, [A], [A]) == EngineUse({A: 0}, set())
    assert engine_use(None, CGROUPS, [A], [A]) is UNKNOWN
    assert UNKNOWN.of(A) is None
