"""Whose memory a process uses: sums by pod, the driver's own figures, a GPU with one pod."""

from gpucore.node.isolation.attribution import Attribution, attribute, corrected, with_sole_pod
from gpucore.units import PodUid

A = PodUid("6f3c1a90-2b4d-4e8f-9a01-c2d3e4f5a6b7")
B = PodUid("7" * 8 + A[8:])
CGROUPS = {
    1: f"0::/kubepods/pod{A}/x",
    2: f"0::/kubepods/pod{A}/y",
    3: f"0::/kubepods/pod{B}/z",
    4: "0::/system.slice/sshd.service",
}


def test_processes_of_a_pod_add_up_and_the_rest_is_unattributed() -> None:
    """The rest: of no pod, ended meanwhile, or not named by the driver."""
    used = {1: 5, 2: 7, 3: 11, 4: 13, 9: 17}
    assert attribute(used, CGROUPS) == Attribution({A: 12, B: 11}, 30)
    assert attribute(used, CGROUPS, unlisted=100).unattributed == 130


def test_the_drivers_figure_replaces_that_of_the_processes() -> None:
    """A pod that no process was found for takes its bytes from the unattributed ones."""
    found = Attribution({A: 10}, 30)
    assert corrected(found, {A: 12}) == Attribution({A: 12}, 30)
    assert corrected(found, {B: 25}) == Attribution({A: 10, B: 25}, 5)
    assert corrected(found, {B: 99}) == Attribution({A: 10, B: 99}, 0)


def test_what_no_process_was_seen_for_is_of_the_only_pod() -> None:
    """Two pods, a process that was seen, or a pod with processes: nothing is guessed."""
    found = Attribution({}, 30)
    assert with_sole_pod(found, [A], processes_seen=False) == Attribution({A: 30}, 0)
    assert with_sole_pod(found, [A], processes_seen=True) == found
    assert with_sole_pod(found, [A, B], processes_seen=False) == found
    assert with_sole_pod(found, [], processes_seen=False) == found
    mine = Attribution({A: 10}, 30)
    assert with_sole_pod(mine, [A], processes_seen=False) == mine
    assert with_sole_pod(Attribution({}, 0), [A], processes_seen=False) == Attribution({}, 0)
