"""The state after each kind of change: waiting pods, priorities, gangs, nominations, claims."""

from typing import Any

import pytest
from decoded import Touched, a_node, a_pod, assume, encoded, state_of
from objects import Object, placed, pod

from gpucore.model import Placement
from gpucore.scheduling import pending_pods
from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.preemption import Victim
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.constraints import decode_pod as decode_with_constraints
from gpucore.wire.pod.gangs import gang_of
from gpuextender.scheduling.gangs import Gangs
from gpuextender.state import State

A, B = NodeName("a"), NodeName("b")
GANG = {"gpu-topology": "g", "gpu-topology-replica": "2"}


def member(name: str, **more: Any) -> Object:
    """A pod of a gang of two."""
    return pod(name, 6, uid=name, labels=GANG, **more)


def nominated(name: str, node: str) -> Object:
    """A waiting pod for which others are evicted from a node."""
    item = pod(name, 6, uid=name, priority=5)
    item["status"]["nominatedNodeName"] = node
    return item


def two_nodes(**options: Any) -> tuple[State, Touched]:
    """Nodes ``a`` and ``b`` of one GPU of 8 units, and what was touched since."""
    state, touched = state_of(a_node("a", 8), a_node("b", 8), **options), Touched()
    state.add_event_handler(touched)
    touched.taken()
    return state, touched


def waiting(state: State) -> list[str]:
    """Names of the waiting pods."""
    return [pending.pod.name for pending in state.waiting()]


def reserve_gang(state: State) -> None:
    """Reserve for both pods of the gang, which exist."""
    for name in ("g0", "g1"):
        state.pod_changed(a_pod(member(name)))
    pending = state.pending_pod("default", "g0", PodUid("g0"))
    assert pending is not None
    assert Gangs(state, Rules(), clock=lambda: 0).admit(pending, [A, B]) == {A, B}


def gang_states(state: State) -> list[str]:
    """The states of the allocations of the gang."""
    return [allocation.state for allocation in state.ledger.gang("default", "g")]


def test_waiting_pods_that_vanish_during_a_relist_are_forgotten() -> None:
    """A list without them is all that reports their deletion."""
    state, _ = two_nodes()
    state.relist_pods([a_pod(pod(name, 4, uid=name)) for name in ("p", "q")])
    assert waiting(state) == ["p", "q"]
    state.relist_pods([a_pod(pod("q", 4, uid="q"))])
    assert waiting(state) == ["q"]
    assert state.find("default", "p") is None
    assert state.pending_pod("default", "p", PodUid("p")) is None
    assert [pod_request.mem for pod_request in state.waiting_requests()] == [4]


def test_members_that_vanish_during_a_relist_leave_their_gang() -> None:
    """The gang is incomplete again, and what was reserved for the missing pod is free."""
    state, touched = two_nodes()
    reserve_gang(state)
    assert gang_states(state) == ["reserved", "reserved"]
    assert touched.taken() == {"a", "b"}
    first = a_pod(member("g0"))
    state.relist_pods([first])
    pending, gang = state.pending_pod("default", "g0", PodUid("g0")), gang_of(first)
    assert pending is not None
    assert gang is not None
    assert (state.members(pending, gang).exist, gang_states(state)) == (1, ["reserved"])
    assert len(touched.taken()) == 1


def test_nominations_that_vanish_during_a_relist_end() -> None:
    """No room is kept for a pod that is not there."""
    state, _ = two_nodes()
    state.pod_changed(a_pod(nominated("urgent", "a")))
    assert state.nominations.nodes() == {"a"}
    state.relist_pods([a_pod(nominated("other", "b"))])
    assert state.nominations.nodes() == {"b"}


def test_a_pod_that_is_nominated_here_counts_as_nominated_by_no_other_component() -> None:
    """When its place is given back, nothing more is kept for it."""
    state, _ = two_nodes()
    item = a_pod(nominated("p", "a"))
    state.pod_changed(item)
    state.nominate(item, Placement(A, {GpuIndex(0): 6}), now_ns=0)
    state.ledger.nomination_written(item.uid, "1")
    state.forget_nomination(item.uid)
    assert not state.nominations.nodes()


@pytest.mark.parametrize(("nominate", "left"), [(True, 0), (False, 1000)])
def test_a_relist_frees_the_cpu_of_nominated_pods_that_vanished(
    *, nominate: bool, left: int
) -> None:
    """That of a pod which is being bound stays: the list may be older than the bind."""
    state, _ = two_nodes()
    item = pod("p", 4, uid="p")
    item["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
    reserve = state.nominate if nominate else state.assume
    reserve(decode_with_constraints(encoded(item)), Placement(A, {GpuIndex(0): 4}), now_ns=0)
    state.relist_pods([])
    found = state.candidates.node(A)
    assert found is not None
    assert dict(found.requested).get("cpu", 0) == left


def test_a_pod_that_waits_again_after_a_restore_frees_the_cpu_of_its_node() -> None:
    """A list from a restored etcd may have it without its node."""
    state, _ = two_nodes()
    item = pod("p", 4, uid="p")
    item["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
    state.relist_pods([decode_with_constraints(encoded(placed(item, "a", 0)))])
    state.relist_pods([decode_with_constraints(encoded(item))])
    found = state.candidates.node(A)
    assert found is not None
    assert (dict(found.requested).get("cpu", 0), found.pods) == (0, 0)


@pytest.mark.parametrize(("node", "kept"), [("place", set()), ("c", {"c"})])
def test_a_member_that_is_nominated_for_a_place_of_its_gang_counts_once(
    node: str, kept: set[str]
) -> None:
    """kube-scheduler nominates each pod while it binds it; elsewhere GPUs are kept for the pod."""
    state, _ = two_nodes()
    reserve_gang(state)
    state.node_changed(a_node("c", 8))
    place = state.ledger.gang("default", "g")[0].placement.node
    item = member("g0")
    item["status"]["nominatedNodeName"] = place if node == "place" else node
    state.pod_changed(a_pod(item))
    assert state.nominations.nodes() == kept


def test_a_relist_touches_the_nodes_whose_claims_changed() -> None:
    """A pod that moved touches both nodes, one that stayed none, one that vanished its node."""
    state, touched = two_nodes()
    stays, moves = placed(pod("s", 2, uid="s"), "a", 0), placed(pod("m", 2, uid="m"), "a", 0)
    state.relist_pods([a_pod(stays), a_pod(moves)])
    assert touched.taken() == {"a"}
    state.relist_pods([a_pod(stays), a_pod(placed(pod("m", 2, uid="m"), "b", 0))])
    assert touched.taken() == {"a", "b"}
    state.relist_pods([a_pod(stays)])
    assert touched.taken() == {"b"}
    state.relist_pods([a_pod(stays)])
    assert touched.taken() == set()


@pytest.mark.parametrize("units", [(4,), ()], ids=["holds memory", "holds none"])
def test_priorities_are_kept_of_pods_that_have_a_node(units: tuple[int, ...]) -> None:
    """Preemption compares them; they go with the pod, its end, or a list without it."""
    state, _ = two_nodes()
    item, uid = pod("p", *units, uid="p", priority=7), PodUid("p")
    state.pod_changed(a_pod(item))
    assert state.victim(uid) == Victim(uid)
    state.pod_changed(a_pod(placed(item, "a", 0)))
    assert state.victim(uid).priority == 7
    state.pod_changed(a_pod(placed(item, "a", 0, phase="Succeeded")))
    assert state.victim(uid) == Victim(uid)
    for end in (lambda: state.relist_pods([]), lambda: state.pod_gone(a_pod(item))):
        state.pod_changed(a_pod(placed(item, "a", 0)))
        assert state.victim(uid).priority == 7
        end()
        assert state.victim(uid) == Victim(uid)


def test_pods_that_are_being_deleted_are_known() -> None:
    """Preemption evicts none of them; they go with the pod or a list without the deletion."""
    state, _ = two_nodes()
    runs = placed(pod("p", 4, uid="p"), "a", 0)
    ends = runs | {"metadata": runs["metadata"] | {"deletionTimestamp": "2026-11-28T00:00:00Z"}}
    state.pod_changed(a_pod(runs))
    assert not state.terminates(PodUid("p"))
    for end in (
        lambda: state.relist_pods([a_pod(runs)]),
        lambda: state.relist_pods([]),
        lambda: state.pod_gone(a_pod(ends)),
    ):
        state.pod_changed(a_pod(ends))
        assert state.terminates(PodUid("p"))
        end()
        assert not state.terminates(PodUid("p"))


@pytest.mark.parametrize("end", ["gone", "placed", "finished", "terminating"])
def test_a_pod_that_waits_no_more_is_forgotten(end: str) -> None:
    """By name, by UID as a filter saw it, and as a nominated one, whose node is touched."""
    state, touched = two_nodes()
    item = nominated("p", "b")
    state.saw(a_pod(item))
    state.pod_changed(a_pod(item))
    touched.taken()
    if end == "gone":
        state.pod_gone(a_pod(item))
    elif end == "placed":
        state.pod_changed(a_pod(placed(item, "a", 0)))
    elif end == "finished":
        state.pod_changed(a_pod(item | {"status": {"phase": "Failed"}}))
    else:
        gone = {**item["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        state.pod_changed(a_pod(item | {"metadata": gone}))
    assert waiting(state) == []
    assert state.pending_pod("default", "p", PodUid("p")) is None
    assert not state.nominations
    assert touched.taken() == ({"a", "b"} if end == "placed" else {"b"})


def test_a_nomination_that_moves_touches_the_node_it_leaves() -> None:
    """Verdicts that kept room there are dropped."""
    state, touched = two_nodes()
    state.pod_changed(a_pod(nominated("p", "a")))
    touched.taken()
    state.pod_changed(a_pod(nominated("p", "b")))
    assert touched.taken() == {"a"}
    assert state.nominations.nodes() == {"b"}


def test_the_end_of_a_pod_touches_its_node_and_ends_its_membership() -> None:
    """Its GPU memory is free, and its gang has one pod less."""
    state, touched = two_nodes()
    first, second = a_pod(member("g0")), a_pod(member("g1"))
    state.pod_changed(first)
    state.pod_changed(a_pod(placed(member("g1"), "a", 0)))
    touched.taken()
    state.pod_gone(second)
    assert touched.taken() == {"a"}
    pending, gang = state.pending_pod("default", "g0", PodUid("g0")), gang_of(first)
    assert pending is not None
    assert gang is not None
    assert state.members(pending, gang).exist == 1


def test_the_constraints_of_a_pod_are_not_those_of_its_namesake() -> None:
    """The scheduler may have seen the next pod of this name before the watch brings it."""
    state, _ = two_nodes()
    item = pod("p", 4, uid="p")
    state.pod_changed(decode_with_constraints(encoded(item)))
    assert state.constraints_of(a_pod(item)) is not None
    assert state.constraints_of(a_pod(pod("p", 4, uid="next"))) is None


def test_a_deleted_pod_does_not_take_its_successor_along() -> None:
    """The name is the same, the UID is not."""
    state, _ = two_nodes()
    state.pod_changed(a_pod(pod("p", 4, uid="new")))
    state.pod_gone(a_pod(pod("p", 4, uid="old")))
    assert waiting(state) == ["p"]


def test_a_pod_without_a_request_does_not_wait() -> None:
    """It is remembered only where a scheduler sent it."""
    state, _ = two_nodes()
    plain = a_pod(pod("plain", uid="plain"))
    state.pod_changed(plain)
    assert waiting(state) == []
    assert state.pending_pod("default", "plain", PodUid("plain")) is None
    assert state.saw(plain).pod_request is None
    assert state.pending_pod("default", "plain", PodUid("plain")) is not None


def test_what_the_watch_has_goes_before_what_a_filter_saw() -> None:
    """The newer object of the same UID counts."""
    state, _ = two_nodes()
    state.saw(a_pod(pod("p", 4, uid="p")))
    state.pod_changed(a_pod(pod("p", 4, uid="p", priority=9)))
    pending = state.pending_pod("default", "p", PodUid("p"))
    assert pending is not None
    assert pending.pod.priority == 9


def test_pods_that_are_seen_again_stay_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound holds exactly, and the one that was seen least recently goes."""
    monkeypatch.setattr(pending_pods, "SEEN_LIMIT", 2)
    state, _ = two_nodes()
    for name in ("x", "y", "x", "z"):
        state.saw(a_pod(pod(name, 1, uid=name)))
    known = [name for name in "xyz" if state.pending_pod("default", name, PodUid(name))]
    assert known == ["x", "z"]


def test_a_member_that_comes_is_announced_once() -> None:
    """A gang may be complete now; equal events and other pods say nothing new."""
    state, _ = two_nodes()
    came: list[str] = []
    state.add_event_handler(Touched(), lambda: came.append("came"))
    state.pod_changed(a_pod(pod("p", 4)))
    assert came == []
    state.pod_changed(a_pod(member("g0")))
    state.pod_changed(a_pod(member("g0")))
    assert came == ["came"]
    state.relist_pods([a_pod(member("g0")), a_pod(member("g1"))])
    assert came == ["came"] * 3


def test_a_node_that_goes_is_touched_and_keeps_its_claims() -> None:
    """By an event, or by a list without it."""
    state, touched = two_nodes()
    state.pod_changed(a_pod(placed(pod("p", 4, uid="p"), "a", 0)))
    touched.taken()
    state.node_gone(A)
    assert touched.taken() == {"a"}
    assert state.ledger.allocation(PodUid("p")) is not None
    state.relist_nodes([a_node("c", 8)])
    assert {"b", "c"} <= touched.taken()


def test_reserving_and_forgetting_touch_the_node() -> None:
    """What is forgotten is free for others; an unknown UID changes nothing."""
    state, touched = two_nodes()
    assume(state, a_pod(pod("p", 4, uid="p")), "a")
    assert touched.taken() == {"a"}
    state.forget(PodUid("nobody"))
    assert touched.taken() == set()
    state.forget(PodUid("p"))
    assert touched.taken() == {"a"}
    assert state.ledger.allocation(PodUid("p")) is None


def test_a_bound_pod_is_not_forgotten_and_does_not_expire() -> None:
    """Only what nothing confirmed is given back."""
    state, touched = two_nodes()
    item = pod("p", 4, uid="p")
    assume(state, a_pod(item), "a")
    state.pod_changed(a_pod(placed(item, "a", 0)))
    touched.taken()
    state.forget(PodUid("p"))
    assert state.expire(now_ns=100, ttl_ns=50) == []
    assert not state._passing, "bound pods are not kept for the next look"
    assert state.ledger.allocation(PodUid("p")) is not None
    assert touched.taken() == set()


def test_only_old_reservations_expire() -> None:
    """Each pod on its own; a later look finds the rest."""
    state, touched = two_nodes()
    assume(state, a_pod(pod("p", 4, uid="p")), "a", now_ns=0)
    assume(state, a_pod(pod("q", 4, uid="q")), "b", now_ns=30)
    touched.taken()
    assert state.expire(now_ns=60, ttl_ns=50) == ["p"]
    assert touched.taken() == {"a"}
    assert state.expire(now_ns=90, ttl_ns=50) == ["q"]
    assert touched.taken() == {"b"}
    assert state.expire(now_ns=900, ttl_ns=50) == []


def test_a_pod_that_is_reserved_for_again_expires_again() -> None:
    """The first reservation was forgotten; the second has a time of its own."""
    state, touched = two_nodes()
    assume(state, a_pod(pod("p", 4, uid="p")), "a", now_ns=0)
    state.forget(PodUid("p"))
    assert state.expire(now_ns=10, ttl_ns=50) == []
    assume(state, a_pod(pod("p", 4, uid="p")), "b", now_ns=20)
    touched.taken()
    assert state.expire(now_ns=70, ttl_ns=50) == ["p"]
    assert touched.taken() == {"b"}


def test_expired_places_of_a_gang_count_against_its_namespace() -> None:
    """The debt begins with the reservation; that of an ordinary pod counts for nobody."""
    state, touched = two_nodes(reservation_limit=1.0)
    assume(state, a_pod(pod("p", 2, uid="p", namespace="other")), "a", now_ns=0)
    reserve_gang(state)
    touched.taken()
    seconds = 1_000_000_000
    assert len(state.expire(now_ns=2 * seconds, ttl_ns=seconds)) == 3
    assert touched.taken() == {"a", "b"}
    assert state.reservation_time.pause("default", 2 * seconds) > 0
    assert state.reservation_time.pause("other", 2 * seconds) == 0


def test_places_that_are_given_up_early_count_against_the_namespace_too() -> None:
    """A tenant that deletes its pods just before the end gains nothing."""
    now = [0]
    state, touched = two_nodes(reservation_limit=1.0, clock=lambda: now[0])
    reserve_gang(state)
    touched.taken()
    now[0] = 3_000_000_000
    state.pod_gone(a_pod(member("g1")))
    assert gang_states(state) == ["reserved"]
    assert len(touched.taken()) == 1
    assert state.reservation_time.pause("default", now[0]) > 0


def test_the_place_of_a_refused_member_is_kept_for_it() -> None:
    """Forgetting an assumed member reserves the same GPU memory for the gang."""
    state, _ = two_nodes()
    reserve_gang(state)
    reserved = state.ledger.gang("default", "g")[0]
    state.forget(reserved.uid)
    assert gang_states(state) == ["reserved"]
    pod_0 = a_pod(member("g0"))
    allocation = state.assume(pod_0, reserved.placement, now_ns=9)
    state.forget(allocation.uid)
    assert gang_states(state) == ["reserved", "reserved"]
    kept = [one for one in state.ledger.gang("default", "g") if one.assume_time == 9]
    assert [one.placement for one in kept] == [reserved.placement]
    assert len(state.expire(now_ns=1_000, ttl_ns=100)) == 2


def test_a_gang_whose_pods_all_vanish_during_a_relist_holds_nothing() -> None:
    """What was reserved for them is free at once, and counts against the namespace."""
    now = [0]
    state, touched = two_nodes(reservation_limit=1.0, clock=lambda: now[0])
    reserve_gang(state)
    touched.taken()
    now[0] = 3_000_000_000
    state.relist_pods([a_pod(pod("other", 2, uid="other"))])
    assert gang_states(state) == []
    assert touched.taken() == {"a", "b"}
    assert state.reservation_time.pause("default", now[0]) > 0


def test_a_member_that_only_a_filter_has_shown_keeps_its_place() -> None:
    """Its own watch event may be late; the end of another member frees one place, not both."""
    state, _ = two_nodes()
    reserve_gang(state)
    state.pod_gone(a_pod(member("g1")))
    state.saw(a_pod(member("g2")))
    state.pod_changed(a_pod(member("g0")))
    assert gang_states(state) == ["reserved"]
    state.pod_gone(a_pod(member("g0")))
    assert gang_states(state) == ["reserved"]
