"""When a pod may be nominated again, and how far ahead of the scheduler."""

from gpucore.nomination import CALLS, IN_ORDER, NominationPauses, QueueOrder
from gpucore.units import PodUid

P, Q = PodUid("p"), PodUid("q")


def test_a_refused_pod_waits_until_the_scheduler_has_written_its_status() -> None:
    """Otherwise that write would clear the nomination."""
    pauses = NominationPauses()
    assert pauses.left(P, 10.0) <= 0
    pauses.refused(P, 10.0)
    assert pauses.left(P, 10.0) > 0
    assert pauses.left(P, 10.2) <= 0
    assert pauses.left(Q, 10.0) <= 0


def test_each_pause_after_a_lost_nomination_is_twice_the_last() -> None:
    """At most half a minute; a bound pod has none."""
    pauses, lengths = NominationPauses(), []
    for _ in range(10):
        pauses.lost(P, 0.0)
        lengths.append(pauses.left(P, 0.0))
    assert lengths == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert not pauses.hopeful(P)
    assert pauses.hopeful(Q)
    pauses.ended(P)
    assert pauses.left(P, 0.0) <= 0
    assert pauses.hopeful(P)


def test_what_is_remembered_of_a_pod_is_forgotten() -> None:
    """Two minutes after its last pause."""
    pauses = NominationPauses()
    for _ in range(3):
        pauses.lost(P, 0.0)
    pauses.prune(100.0)
    assert not pauses.hopeful(P)
    pauses.prune(200.0)
    assert pauses.hopeful(P)


def test_a_refusal_never_shortens_a_pause() -> None:
    """The longer of the two holds, to the tenth of a second of a refusal."""
    pauses = NominationPauses()
    pauses.lost(P, 0.0)
    pauses.refused(P, 0.0)
    assert pauses.left(P, 0.0) == 0.25
    pauses.refused(P, 1.0)
    assert round(pauses.left(P, 1.0), 6) == 0.1


def test_a_pod_of_which_nothing_else_is_known_is_forgotten_too() -> None:
    """After a refusal alone there is no count of lost nominations; the limit is exact."""
    pauses = NominationPauses()
    pauses.refused(P, -0.1)
    pauses.prune(120.0)
    assert pauses.left(P, -1.0) == 1.0
    pauses.prune(120.5)
    assert pauses.left(P, -1.0) == 0.0
    pauses.ended(Q)


def test_few_pods_are_nominated_ahead_of_a_scheduler_that_takes_them_in_order() -> None:
    """And all of them where it calls about others than those that are nominated."""
    order = QueueOrder()
    assert order.window(4096) == IN_ORDER
    assert order.window(8) == 8
    for _ in range(CALLS):
        order.scheduler_called(Q, ())
    assert order.window(4096) == IN_ORDER
    for _ in range(CALLS):
        order.scheduler_called(Q, {P})
    assert order.window(4096) == 4096
    for _ in range(CALLS):
        order.scheduler_called(P, {P})
    assert order.window(4096) == IN_ORDER


def test_more_than_half_of_the_last_calls_decide_about_the_order() -> None:
    """Half of them are not enough, and older calls do not count."""
    order = QueueOrder()
    for _ in range(CALLS // 2):
        order.scheduler_called(Q, {P})
    assert order.window(4096) == IN_ORDER
    order.scheduler_called(Q, {P})
    assert order.window(4096) == 4096
    for _ in range(CALLS // 2 - 1):
        order.scheduler_called(P, {P})
    assert order.window(4096) == 4096
    order.scheduler_called(P, {P})
    assert order.window(4096) == IN_ORDER


def test_a_pod_is_hopeful_until_it_lost_three_nominations() -> None:
    """Each pod for itself."""
    pauses, seen = NominationPauses(), []
    for _ in range(4):
        seen.append(pauses.hopeful(P))
        pauses.lost(P, 0.0)
    assert seen == [True, True, True, False]


def test_a_pod_that_was_forgotten_begins_with_the_shortest_pause() -> None:
    """Two minutes after the end of its last pause."""
    pauses = NominationPauses()
    pauses.lost(P, 0.0)
    pauses.lost(P, 100.0)
    assert pauses.left(P, 100.0) == 0.5
    pauses.prune(220.0)
    assert pauses.left(P, 0.0) == 100.5
    pauses.prune(221.0)
    assert pauses.left(P, 0.0) == 0.0
    pauses.lost(P, 0.0)
    assert pauses.left(P, 0.0) == 0.25
