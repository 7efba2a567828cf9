"""Gangs in front of the verbs: where a member may go, what is reserved, and what is refused."""

from typing import Any
from unittest.mock import Mock

import pytest
from decoded import a_node, a_pod, encoded, evicting, state_of
from objects import Object, placed, pod, whole_node

from gpucore.gang.placement import place_gang
from gpucore.model import Code, Placement
from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.pending_pods import UnscheduledPod
from gpucore.scheduling.policy import MAX_SCORE
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.node.spec import decode_node
from gpuextender.scheduling.gangs import Gangs
from gpuextender.state import State

NOW = 500_000_000_000
A, B, C = (NodeName(name) for name in "abc")
NODES = (A, B, C)


class Clock:
    """Unix nanoseconds that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


class Bench:
    """Gangs over nodes ``a``, ``b`` and ``c`` of one GPU of 8 units each."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        nodes = [a_node(name, 8) for name in NODES]
        self.state: State = state_of(*nodes, clock=self.clock, **options)
        self.gangs = Gangs(self.state, Rules(), clock=self.clock)

    def come(self, *items: Object) -> UnscheduledPod:
        """The watch brings pods; filter is called for the first one."""
        for item in items:
            self.state.pod_changed(a_pod(item))
        return self.state.saw(a_pod(items[0]))

    def take(self, pending: UnscheduledPod, node: NodeName) -> Placement | str | None:
        """Take a place and assume it, as a bind does."""
        assert pending.pod_request is not None
        found = self.gangs.take(pending, pending.pod_request, node)
        if isinstance(found, Placement):
            self.state.assume(pending.pod, found, now_ns=self.clock())
        return found

    def states(self) -> list[str]:
        """What the gang holds, by the state of each allocation."""
        return [allocation.state for allocation in self.state.ledger.gang("default", "g")]

    def used(self) -> dict[str, int]:
        """Units held on each node that has some."""
        node_infos = self.state.ledger.nodes().values()
        return {one.name: one.used_units for one in node_infos if one.used_units}


def member(name: str, size: int = 2, mem: int = 6, **more: Any) -> Object:
    """A pod of the gang ``g``."""
    labels = {"gpu-topology": "g", "gpu-topology-replica": str(size)}
    return pod(name, mem, uid=name, labels=labels, **more)


def test_a_pod_of_no_gang_is_left_to_the_other_rules() -> None:
    """No method answers for it, and nothing is reserved."""
    bench = Bench()
    pending = bench.come(pod("p", 6))
    assert bench.gangs.admit(pending, NODES) is None
    assert bench.gangs.filter(pending, NODES) is None
    assert bench.gangs.scores(pending, NODES) is None
    assert bench.take(pending, A) is None
    assert not bench.gangs.could_go(pending, NODES)
    assert not bench.state.ledger.allocations()


def test_a_member_that_requests_no_gpu_is_left_to_the_other_rules() -> None:
    """A parameter server counts as a member and needs no place."""
    bench = Bench()
    pending = bench.come(
        pod("ps", uid="ps", labels=member("x")["metadata"]["labels"]), member("g1")
    )
    assert bench.gangs.admit(pending, NODES) is None
    assert not bench.gangs.could_go(pending, NODES)
    assert not bench.state.ledger.allocations()


def test_a_member_with_a_broken_request_is_left_to_the_other_rules() -> None:
    """They have the words for what is wrong with it."""
    bench = Bench()
    broken = member("g0")
    broken["metadata"]["labels"]["aliyun.com/gpu-count"] = "x"
    pending = bench.come(broken, member("g1"))
    assert pending.pod_request is not None
    assert pending.pod_request.fault
    assert bench.gangs.admit(pending, NODES) is None
    assert bench.take(pending, A) is None
    assert not bench.gangs.could_go(pending, NODES)


def test_the_first_member_that_is_filtered_reserves_for_all() -> None:
    """The reservation has the time of the clock, and the same question changes nothing."""
    bench = Bench()
    pending = bench.come(member("g0"), member("g1"))
    admitted = bench.gangs.admit(pending, NODES)
    allocations = bench.state.ledger.gang("default", "g")
    assert {allocation.placement.node for allocation in allocations} == admitted
    assert [allocation.assume_time for allocation in allocations] == [NOW, NOW]
    assert bench.used() == dict.fromkeys(admitted or (), 6)
    bench.clock.now += 7
    assert bench.gangs.admit(pending, NODES) == admitted
    assert bench.state.ledger.gang("default", "g") == allocations


def test_only_offered_nodes_are_admitted() -> None:
    """Reserved places on other nodes stay, and are not offered to this question."""
    bench = Bench()
    pending = bench.come(member("g0"), member("g1"))
    assert bench.gangs.admit(pending, [A, B]) == {A, B}
    assert bench.gangs.admit(pending, [A, C]) == {A}
    assert bench.used() == {"a": 6, "b": 6}


def test_places_on_nodes_that_are_no_longer_offered_are_chosen_anew() -> None:
    """The old reservations are given back first, and the new ones keep the age of the first."""
    bench = Bench()
    pending = bench.come(member("g0", mem=4), member("g1", mem=4))
    assert bench.gangs.admit(pending, [A]) == {A}
    bench.clock.now += 7
    assert bench.gangs.admit(pending, [B, C]) in ({B}, {C})
    assert sorted(bench.used().values()) == [8]
    assert "a" not in bench.used()
    assert {c.assume_time for c in bench.state.ledger.gang("default", "g")} == {NOW}


def test_places_that_are_given_up_are_free_although_fewer_are_needed() -> None:
    """One member holds memory on its node; the places of the others move away from there."""
    bench = Bench()
    pending = bench.come(*(member(f"g{number}", 3, mem=2) for number in range(3)))
    assert bench.gangs.admit(pending, [A]) == {A}
    assert isinstance(bench.take(pending, A), Placement)
    pending = bench.come(member("g1", 3, mem=2))
    assert bench.gangs.admit(pending, [B]) == {B}
    assert bench.used() == {"a": 2, "b": 4}


def test_a_member_that_holds_a_place_may_go_to_that_node_alone() -> None:
    """A second question about an assumed member reserves nothing more."""
    bench = Bench()
    pending = bench.come(member("g0"), member("g1"))
    bench.gangs.admit(pending, [A, B])
    assert isinstance(bench.take(pending, A), Placement)
    assert bench.gangs.admit(pending, NODES) == {A}
    assert bench.gangs.admit(pending, [B, C]) == frozenset()
    assert sorted(bench.states()) == ["assumed", "reserved"]


def test_a_gang_without_room_for_all_gets_nothing() -> None:
    """The reason has the figures, and no member reserves."""
    bench = Bench()
    pending = bench.come(*(member(f"g{number}", 4) for number in range(4)))
    reason = bench.gangs.admit(pending, NODES)
    assert reason == "gang g needs 4 x 6 GiB of GPU memory: capacity for 3 members on 3 nodes"
    assert not bench.gangs.could_go(pending, NODES)
    assert not bench.state.ledger.allocations()


def test_whether_a_gang_could_go_reserves_nothing() -> None:
    """The answer follows the nodes of the request."""
    bench = Bench()
    pending = bench.come(member("g0"), member("g1"))
    assert bench.gangs.could_go(pending, NODES)
    assert not bench.gangs.could_go(pending, [A])
    assert not bench.state.ledger.allocations()


def test_filter_names_the_places_of_the_gang() -> None:
    """Nodes without a place say where the places are; each counts as refused for a gang."""
    bench = Bench()
    pending = bench.come(member("g0"), member("g1"))
    bench.gangs.admit(pending, [A, B])
    found = bench.gangs.filter(pending, [C, B, A])
    assert found is not None
    fits, statuses = found
    assert fits == [B, A]
    text = "the gang of pod g0 has reserved places on a, b"
    assert statuses.failed == {"c": text}
    assert statuses.unresolvable == {"c": text}
    assert statuses.counts == {Code.GANG: 1}


def test_a_refusal_names_few_of_many_nodes() -> None:
    """Each of thousands of nodes has the sentence, and a gang may have places on a hundred."""
    nodes = [NodeName(f"n{number}") for number in range(9)]
    bench = Bench()
    for name in nodes:
        bench.state.node_changed(a_node(name, 8))
    bench.state.node_changed(a_node("small", 4))
    pending = bench.come(*(member(f"g{number}", size=9) for number in range(9)))
    found = bench.gangs.filter(pending, [*nodes, NodeName("small")])
    assert found is not None
    assert found[0] == nodes
    text = "the gang of pod g0 has reserved places on n0, n1, n2, n3, n4 and 4 more"
    assert found[1].failed == {"small": text}


def test_filter_of_nodes_without_a_place() -> None:
    """A member whose only node is not offered is notified."""
    bench = Bench()
    pending = bench.come(member("g0"), member("g1"))
    bench.gangs.admit(pending, [A, B])
    bench.take(pending, A)
    found = bench.gangs.filter(pending, [B])
    assert found is not None
    assert found[0] == []
    assert found[1].failed == {
        "b": "the gang of pod g0 has reserved places on nodes that are not offered"
    }


def test_a_gang_that_waits_is_refused_by_every_node() -> None:
    """The reason is that of the gang, whatever the node."""
    bench = Bench()
    pending = bench.come(member("g0"))
    found = bench.gangs.filter(pending, [A, B])
    assert found is not None
    waits = "gang g waits for 1 of its 2 pods: 1 exists in namespace default"
    assert (found[0], found[1].failed) == ([], {"a": waits, "b": waits})
    assert found[1].counts == {Code.GANG: 2}
    assert bench.gangs.scores(pending, [A, B]) == {A: 0, B: 0}


def test_nodes_with_a_place_get_the_best_score() -> None:
    """All others get none."""
    bench = Bench()
    pending = bench.come(member("g0"), member("g1"))
    bench.gangs.admit(pending, [A, B])
    assert bench.gangs.scores(pending, NODES) == {A: MAX_SCORE, B: MAX_SCORE, C: 0}


def test_a_member_takes_the_place_that_is_kept_on_its_node() -> None:
    """The place is no longer reserved, the other one is, and the sum stays."""
    bench = Bench()
    pending = bench.come(member("g0"), member("g1"))
    bench.gangs.admit(pending, [A, B])
    placement = bench.take(pending, B)
    assert isinstance(placement, Placement)
    assert (placement.node, placement.mem) == (B, {0: 6})
    assert sorted(bench.states()) == ["assumed", "reserved"]
    assert bench.used() == {"a": 6, "b": 6}


def test_a_member_of_another_request_takes_no_place_of_the_others() -> None:
    """The places of two launchers stand while filter, could_go and a plan deal with a worker."""
    bench = Bench()
    workers = [member(f"w{number}", 4, mem=2) for number in range(2)]
    launcher = bench.come(*(member(f"l{number}", 4, mem=6) for number in range(2)), *workers)
    worker = bench.come(*workers)
    places = bench.gangs.admit(launcher, NODES)
    held = bench.state.ledger.gang("default", "g")
    assert len(held) == 2
    assert bench.gangs.could_go(worker, NODES)
    planned, given_up = bench.gangs.plan(worker, dict.fromkeys(NODES, 2))
    assert (len(planned), given_up) == (2, ())
    assert bench.gangs.admit(worker, NODES)
    assert bench.gangs.admit(worker, [C])
    assert [one for one in bench.state.ledger.gang("default", "g") if one in held] == held
    assert bench.gangs.admit(launcher, NODES) == places
    for number in range(2):
        pending = bench.come(member(f"l{number}", 4, mem=6))
        assert isinstance(bench.take(pending, sorted(places or ())[number]), Placement)


def test_a_refused_member_of_another_request_leaves_the_places_of_the_others() -> None:
    """Nothing fits it beside them: it waits, and they are bound to their places."""
    bench = Bench()
    small = bench.come(*(member(f"s{number}", 4, mem=6) for number in range(3)), member("l", 4, 8))
    large = bench.come(member("l", 4, mem=8))
    assert bench.gangs.admit(small, NODES) == {A, B, C}
    assert isinstance(bench.gangs.admit(large, NODES), str)
    assert not bench.gangs.could_go(large, NODES)
    assert bench.gangs.plan(large, dict.fromkeys(NODES, 1)) == ((), ())
    assert bench.used() == {"a": 6, "b": 6, "c": 6}


def test_a_member_takes_one_of_two_places_of_a_node() -> None:
    """The place on the named node is taken, not the first of the gang."""
    bench = Bench()
    bench.state.node_changed(a_node("a", 8, 8))
    pending = bench.come(member("g0", 3), member("g1", 3), member("g2", 3))
    bench.gangs.admit(pending, [A, B])
    assert bench.used() == {"a": 12, "b": 6}
    placement = bench.take(pending, B)
    assert isinstance(placement, Placement)
    assert placement.node == B
    assert sorted(bench.states()) == ["assumed", "reserved", "reserved"]
    assert bench.used() == {"a": 12, "b": 6}


def test_a_nominated_member_takes_the_gpu_of_its_nomination() -> None:
    """Its bind ends the nomination; bound to another node, it takes a place of the gang there."""
    for node, expected in ((B, {1: 6}), (A, {0: 6})):
        bench = Bench()
        bench.state.node_changed(a_node("b", 8, 8))
        pending = bench.come(member("g0"), member("g1"))
        reserved = Placement(B, mem={GpuIndex(1): 6})
        bench.state.nominate(pending.pod, reserved, now_ns=NOW)
        placement = bench.take(pending, node)
        assert isinstance(placement, Placement)
        assert (placement.node, placement.mem) == (node, expected)
        allocation = bench.state.ledger.allocation(pending.pod.uid)
        assert allocation is not None
        assert (allocation.state, allocation.placement.node) == ("assumed", node)


def test_a_plan_puts_no_more_pods_on_a_node_than_kube_scheduler_admits() -> None:
    """Two fit one GPU by memory; where the node admits one, the other goes elsewhere."""
    bench = Bench()
    bench.state.node_changed(a_node("a", 16))
    pending = bench.come(member("g0"), member("g1"))
    for limits, expected in (({A: 2, B: 1}, ["a", "a"]), ({A: 1, B: 1}, ["a", "b"]), ({A: 1}, [])):
        places, _ = bench.gangs.plan(pending, limits)
        assert sorted(one.placement.node for one in places) == expected
    assert bench.states() == []


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({A: 4, B: 2, C: 2}, ["a", "a"]),
        ({A: 3, B: 2, C: 2}, ["a", "b"]),
        ({A: 2, B: 2, C: 2}, ["b", "b"]),
        ({A: 2, B: 1}, []),
    ],
)
def test_a_plan_counts_the_reserved_places_of_other_requests(
    limits: dict[NodeName, int], expected: list[str]
) -> None:
    """Their pods will be on the node ``a`` too, and need CPU and memory there."""
    bench = Bench()
    workers = [member(f"w{number}", 4, mem=1) for number in range(2)]
    launcher = bench.come(*(member(f"l{number}", 4, mem=2) for number in range(2)), *workers)
    assert bench.gangs.admit(launcher, [A]) == {A}
    places, _ = bench.gangs.plan(bench.come(*workers), limits)
    assert sorted(one.placement.node for one in places) == expected


def test_a_plan_replaces_the_places_that_filter_reserved() -> None:
    """They are given back first; where one of them is on a node that may not be used, none fits."""
    bench = Bench()
    pending = bench.come(member("g0"), member("g1"))
    bench.gangs.admit(pending, [A, B])
    kept = {one.uid for one in bench.state.ledger.gang("default", "g")}
    places, forgotten = bench.gangs.plan(pending, {A: 1, B: 1})
    assert sorted(one.placement.node for one in places) == ["a", "b"]
    assert kept == set(forgotten)
    assert bench.gangs.plan(pending, {A: 1}) == ((), ())
    assert sorted(bench.states()) == ["reserved", "reserved"]


def test_there_is_no_plan_for_a_pod_of_no_gang() -> None:
    """Nor for one that requests no GPU, or whose request is wrong."""
    bench = Bench()
    labels = {"gpu-topology": "g", "gpu-topology-replica": "1"}
    wrong = labels | {"aliyun.com/gpu-count": "none"}
    for item in (pod("p", 1), pod("q", labels=labels), pod("r", 1, labels=wrong)):
        assert bench.gangs.plan(bench.come(item), {A: 1}) == ((), ())


def test_a_member_of_a_gang_that_waits_takes_no_place() -> None:
    """A bind without a filter before it gets the reason."""
    bench = Bench()
    pending = bench.come(member("g0"))
    waits = "gang g waits for 1 of its 2 pods: 1 exists in namespace default"
    assert bench.take(pending, A) == waits
    assert not bench.state.ledger.allocations()


def test_a_namespace_that_reserved_in_vain_pauses() -> None:
    """Reservations that expired count as debt: new ones are refused, those that stand are not."""
    bench = Bench(reservation_limit=10.0)
    pending = bench.come(member("g0"), member("g1"))
    bench.gangs.admit(pending, [A, B])
    bench.clock.now += 20_000_000_000
    assert len(bench.state.expire(now_ns=bench.clock.now, ttl_ns=10_000_000_000)) == 2
    reason = bench.gangs.admit(pending, [A, B])
    assert reason == (
        "gang g cannot reserve GPUs for another 120 s: earlier reservations expired unused, in"
        " namespace default"
    )
    assert not bench.gangs.could_go(pending, [A, B])
    assert bench.used() == {}
    bench.clock.now += 120_000_000_000
    assert bench.gangs.admit(pending, [A, B]) == {A, B}


def test_a_gang_is_not_planned_while_its_namespace_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan may take seconds, and the scheduler tries the pods again and again."""
    bench = Bench(reservation_limit=10.0)
    pending = bench.come(member("g0"), member("g1"))
    bench.state.reservation_time.charge("default", NOW - 60_000_000_000, NOW)
    planned = Mock()
    monkeypatch.setattr("gpuextender.scheduling.gangs.place_gang", planned)
    assert "cannot reserve GPUs" in str(bench.gangs.admit(pending, [A, B]))
    assert not planned.called
    assert bench.gangs.paused(pending)
    bench.clock.now += 3600_000_000_000
    assert not bench.gangs.paused(pending)


def test_standing_reservations_are_used_while_the_namespace_pauses() -> None:
    """A gang that waits in vain does not take places away from one that has them."""
    bench = Bench(reservation_limit=10.0)
    pending = bench.come(member("g0"), member("g1"))
    bench.gangs.admit(pending, [A, B])
    bench.state.reservation_time.charge("default", NOW - 60_000_000_000, NOW)
    assert not bench.gangs.paused(pending)
    assert bench.gangs.admit(pending, [A, B]) == {A, B}
    assert isinstance(bench.take(pending, A), Placement)


def test_a_gang_gets_no_new_plan_after_plans_of_its_namespace_took_long() -> None:
    """A gang that has its places goes on, and other namespaces notice nothing."""
    bench = Bench()
    pending = bench.come(member("g0"), member("g1"))
    bench.gangs.admit(pending, [A, B])
    bench.clock.now += 5_000_000_000
    bench.state.planning_time.charge("default", NOW, bench.clock.now)
    assert bench.gangs.admit(pending, [A, B]) == {A, B}
    assert isinstance(bench.take(pending, A), Placement)
    labels = {"gpu-topology": "h", "gpu-topology-replica": "2"}
    late = bench.come(*(pod(name, 1, uid=name, labels=labels) for name in ("h0", "h1")))
    assert bench.gangs.paused(late)
    assert bench.gangs.admit(late, NODES) == (
        "gang h gets no new plan for another 20 s: plans took too long for gangs of namespace"
        " default"
    )
    assert not bench.gangs.could_go(late, NODES)
    bench.clock.now += 20_000_000_000
    assert not bench.gangs.paused(late)
    assert isinstance(bench.gangs.admit(late, NODES), frozenset)


@pytest.mark.parametrize(("seconds", "fits"), [(5, True), (15, False)])
def test_a_gang_that_has_places_is_planned_for_longer(seconds: int, *, fits: bool) -> None:
    """A launcher is bound, and its workers have no places yet: the gang must not stay half-way."""
    bench = Bench()
    launcher = bench.come(member("launcher", size=3, mem=2), *map(worker, range(2)))
    found = bench.gangs.admit(launcher, NODES)
    assert isinstance(found, frozenset)
    bench.take(launcher, next(iter(found)))
    bench.clock.now += seconds * 1_000_000_000
    bench.state.planning_time.charge("default", NOW, bench.clock.now)
    first = bench.state.saw(a_pod(worker(0)))
    assert isinstance(bench.gangs.admit(first, NODES), frozenset) is fits
    assert bench.gangs.paused(first) is not fits


def worker(number: int) -> Object:
    """A pod of a gang of three that requests more than its launcher."""
    return member(f"worker{number}", size=3)


def test_plans_of_gangs_count_for_their_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes three seconds here, so the third is refused; pods of no gang never are."""
    bench = Bench()

    def slow(*args: Any, **more: Any) -> object:
        bench.clock.now += 3_000_000_000
        return place_gang(*args, **more)

    pending = bench.come(member("g0", mem=9), member("g1", mem=9))
    alone = bench.come(pod("alone", 1, uid="alone"))
    monkeypatch.setattr("gpuextender.scheduling.gangs.place_gang", slow)
    found = [str(bench.gangs.admit(pending, NODES)) for _ in range(3)]
    assert ["gets no new plan" in text for text in found] == [False, False, True]
    assert not bench.gangs.paused(alone)


def test_calls_without_a_plan_do_not_count_for_their_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand pods are called for their places, and before the last of them exists."""
    bench = Bench()

    def slow(*args: Any, **more: Any) -> object:
        bench.clock.now += 1_000_000_000
        return place_gang(*args, **more)

    monkeypatch.setattr("gpuextender.scheduling.gangs.place_gang", slow)
    pending = bench.come(member("g0"), member("g1"))
    for _ in range(9):
        assert bench.gangs.admit(pending, [A, B]) == {A, B}
    labels = {"gpu-topology": "h", "gpu-topology-replica": "2"}
    items = [pod(name, 1, uid=name, labels=labels) for name in ("h0", "h1")]
    late = bench.come(items[0])
    for _ in range(9):
        assert "waits for 1 of its 2 pods" in str(bench.gangs.admit(late, NODES))
    bench.come(items[1])
    assert isinstance(bench.gangs.admit(late, NODES), frozenset)


@pytest.mark.parametrize("gone", ["deleted", "failed", "elsewhere"])
def test_a_member_that_goes_takes_its_place_with_it(gone: str) -> None:
    """Nothing stays reserved for a pod that will not come."""
    bench = Bench()
    pending = bench.come(member("g0"), member("g1"))
    bench.gangs.admit(pending, [A, B])
    if gone == "deleted":
        bench.state.pod_gone(a_pod(member("g1")))
    elif gone == "failed":
        bench.state.pod_changed(a_pod(member("g1", phase="Failed")))
    else:
        bench.state.pod_changed(a_pod(placed(member("g1"), "c", 0)))
    assert bench.states().count("reserved") == 1


def test_a_whole_gpu_that_was_taken_meanwhile_is_refused_with_the_reason() -> None:
    """A node that lost a GPU has no place any more; the gang is placed anew or refused."""
    state = state_of(clock=lambda: NOW)
    state.node_changed(decode_node(encoded(whole_node("w", 2))))
    gangs = Gangs(state, Rules(), clock=lambda: NOW)
    labels = {"gpu-topology": "g", "gpu-topology-replica": "2"}
    items = [pod(f"g{number}", uid=f"g{number}", gpus=1, labels=labels) for number in range(2)]
    for item in items:
        state.pod_changed(a_pod(item))
    pending = state.saw(a_pod(items[0]))
    assert pending.pod_request is not None
    assert gangs.admit(pending, [NodeName("w")]) == {"w"}
    found = gangs.take(pending, pending.pod_request, NodeName("w"))
    assert isinstance(found, Placement)
    assert len(found.group) == 1
    assert state.ledger.allocation(PodUid("g0")) is None
    state.node_changed(decode_node(encoded(whole_node("w", 1))))
    found = gangs.take(pending, pending.pod_request, NodeName("w"))
    assert isinstance(found, str)
    assert found.startswith("gang g needs 2 x ")


def test_a_gang_leaves_the_gpus_that_are_kept_for_a_nominated_pod() -> None:
    """kube-scheduler evicted others for it."""
    for priority, fits in ((1000, False), (-1, True)):
        bench = Bench()
        evicting(bench.state, priority)
        asking = bench.come(member("g0", mem=5), member("g1", mem=5))
        found = bench.gangs.admit(asking, (NodeName("d"), A))
        assert isinstance(found, frozenset) is fits
