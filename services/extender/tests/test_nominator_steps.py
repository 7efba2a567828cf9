"""Which pending pods are nominated in a round, to which nodes, and when the next round is due."""

from collections.abc import Callable, Iterator

import pytest
from decoded import assume
from nominating import SCHEDULER, pending
from nominationbench import Bench, gang
from objects import placed, pod

from gpucore.nomination import CALLS, IN_ORDER
from gpucore.units import NodeName, PodUid
from gpuextender.nomination import nominator as nominator_module
from gpuextender.nomination.due_pods import CALLED_SECONDS, REFUSED_SECONDS
from gpukube.errors import ServerError

NEVER = float("inf")


Made = Callable[..., Bench]


# Which pods.


def test_pods_behind_the_head_of_the_queue_are_nominated(made: Made) -> None:
    """By priority, then in the order in which they came; the head is left to the scheduler."""
    bench = made(after=2)
    bench.comes(*(pending(f"p{number}", 1) for number in range(3)))
    bench.comes(pending("high", 1, priority=9))
    bench.round()
    assert set(bench.reserved) == {"p1", "p2"}


def test_nominated_pods_that_are_not_bound_are_part_of_the_head(made: Made) -> None:
    """Bound pods are not: those that follow move up, and are not nominated."""
    bench = made(after=2)
    bench.nominated(*(pending(f"p{number}", 1) for number in range(4)))
    assert set(bench.reserved) == {"p2", "p3"}
    bench.binds("p2")
    bench.binds("p3")
    bench.goes("p0")
    bench.nominated(pending("p4", 1))
    assert bench.reserved == {}
    bench.nominated(pending("p5", 1))
    assert set(bench.reserved) == {"p5"}
    bench.nominated(pending("p6", 1))
    assert set(bench.reserved) == {"p5", "p6"}


def test_a_pod_that_is_being_bound_is_no_part_of_the_head(made: Made) -> None:
    """The scheduler is about to take the next ones."""
    bench = made(after=2)
    bench.comes(*(pending(f"p{number}", 1) for number in range(3)))
    assume(bench.state, bench.state.find("default", "p0").pod, "a")
    bench.round()
    assert not bench.reserved


def test_nominated_pods_move_the_head_on(made: Made) -> None:
    """With two nominated pods in front, the pods behind them are nominated."""
    bench = made(after=2)
    bench.nominated(*(pending(f"p{number}", 1) for number in range(4)))
    bench.goes("p0")
    bench.goes("p1")
    bench.nominated(pending("p4", 1))
    assert set(bench.reserved) == {"p2", "p3", "p4"}


@pytest.mark.parametrize(("after_s", "found"), [(CALLED_SECONDS - 0.1, {"p"}), (2.0, set())])
def test_a_backlog_is_nominated_for_a_scheduler_that_called_lately(
    bench: Bench, after_s: float, found: set[str]
) -> None:
    """Within two seconds."""
    bench.replica.called()
    bench.time += after_s
    bench.comes(pending("p", 1))
    bench.look()
    assert set(bench.reserved) == found


def test_pods_of_a_scheduler_that_did_not_call_are_left_alone(bench: Bench) -> None:
    """The scheduler of others did."""
    bench.comes(pending("p", 1), pending("q", 1, scheduler="volcano"))
    bench.round()
    assert set(bench.reserved) == {"p"}
    bench.replica.called(scheduler="volcano")
    bench.look()
    assert set(bench.reserved) == {"p", "q"}


@pytest.mark.parametrize(("after_s", "found"), [(REFUSED_SECONDS - 0.1, {"p"}), (60.0, set())])
def test_a_refused_pod_is_nominated_for_a_minute_after_the_last_call(
    made: Made, after_s: float, found: set[str]
) -> None:
    """Its scheduler may not call before the pod changes."""
    bench = made(after=None)
    bench.comes(pending("p", 16))
    bench.refused("p", "b")
    bench.time += after_s
    bench.look()
    assert set(bench.reserved) == found


def test_where_refused_pods_alone_are_nominated_a_backlog_is_not(made: Made) -> None:
    """However long it is."""
    bench = made(after=None)
    bench.comes(*(pending(f"p{number}", 1) for number in range(9)))
    bench.round()
    assert not bench.reserved
    assert not bench.nominator.due()


def test_a_refused_pod_waits_for_the_end_of_its_attempt(bench: Bench) -> None:
    """The scheduler writes its status then; the round states when to look again."""
    bench.comes(pending("p", 16))
    bench.refused("p", "b")
    assert bench.look() == pytest.approx(0.1)
    assert not bench.reserved
    bench.time += 0.1
    bench.look()
    assert set(bench.reserved) == {"p"}


def test_refused_pods_are_no_part_of_the_head(made: Made) -> None:
    """They are nominated for themselves, and once."""
    bench = made(after=1)
    bench.comes(pending("p", 16), pending("q", 1), pending("r", 1))
    bench.refused("p", "b")
    bench.time += 0.1
    bench.look()
    assert set(bench.reserved) == {"p", "r"}


def test_another_pod_of_the_name_of_a_refused_one_is_not_taken_for_it(made: Made) -> None:
    """It was not refused."""
    bench = made(after=None)
    bench.comes(pending("p", 16))
    bench.refused("p", "b")
    bench.goes("p")
    bench.comes(pending("p", 1))
    bench.time += 1
    bench.look()
    assert not bench.reserved


@pytest.mark.parametrize(
    "fields",
    [
        {"schedulingGates": [{"name": "g"}]},
        {"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]},
        {"resourceClaims": [{"name": "gpu"}]},
    ],
)
def test_pods_that_are_left_to_the_scheduler_are_not_nominated(
    bench: Bench, fields: dict[str, list[dict[str, object]]]
) -> None:
    """For gates, and constraints that are not evaluated here."""
    odd = pending("odd", 1)
    for key, value in fields.items():
        if key == "containers":
            odd["spec"][key][0] |= value[0]
        else:
            odd["spec"][key] = value
    bench.comes(odd, pending("p", 1))
    bench.round()
    assert set(bench.reserved) == {"p"}


def test_a_request_that_no_node_can_serve_is_not_nominated(bench: Bench) -> None:
    """It contradicts itself."""
    bench.comes(pending("odd", 1, gpus=1), pending("p", 1))
    bench.round()
    assert set(bench.reserved) == {"p"}


def test_a_pod_that_is_nominated_by_its_scheduler_is_left_alone(bench: Bench) -> None:
    """Memory of its node is kept for it, from others of its priority too."""
    theirs = pending("theirs", 16)
    theirs["status"]["nominatedNodeName"] = "a"
    bench.comes(theirs, pending("p", 16), pending("q", 12))
    bench.round()
    assert bench.reserved == {"q": "b"}


def test_a_nominated_pod_leaves_the_gpu_that_was_freed_for_another(bench: Bench) -> None:
    """Both fit on the node, and the policy of the pod prefers that GPU."""
    bench.node("d", 48, 48)
    bench.comes(placed(pod("other", 20, uid="other"), "d", 1))
    theirs = pending("theirs", 48, priority=9)
    theirs["status"]["nominatedNodeName"] = "d"
    spread = pending("p", 20, annotations={"gpushare/policy": "spread"})
    bench.comes(theirs, spread)
    bench.round()
    nominated = bench.state.ledger.nomination(PodUid(spread["metadata"]["uid"]))
    assert nominated.placement.mem == {1: 20}


# Which nodes.


def test_the_policy_chooses_among_all_nodes(bench: Bench) -> None:
    """The fullest one that fits, what is reserved included."""
    bench.comes(pending("p", 4), pending("q", 4), pending("r", 4))
    bench.round()
    assert bench.reserved == {"p": "c", "q": "c", "r": "b"}


def test_a_kind_that_fits_nowhere_keeps_no_other_from_a_place(bench: Bench) -> None:
    """It is looked for once a round, and again in the next."""
    bench.comes(*(pending(f"large-{number}", 20) for number in range(3)), pending("p", 16))
    bench.round()
    assert set(bench.reserved) == {"p"}
    bench.node("d", 20)
    bench.round()
    assert len(bench.reserved) == 2


def test_what_fits_nowhere_is_looked_for_again_at_a_higher_priority(bench: Bench) -> None:
    """It takes the place of nominated pods of lower priority."""
    bench.nominated(pending("low", 16, priority=1))
    bench.comes(pending("same", 16, priority=1), pending("high", 16, priority=5))
    bench.round()
    assert set(bench.reserved) == {"high"}


def test_a_node_takes_a_limited_number_of_nominations(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kube-scheduler adds all of them before it evaluates the node; pods in a row count too."""
    monkeypatch.setattr(nominator_module, "MOST_ON_A_NODE", 2)
    bench.comes(*(pending(f"p{number}", 1) for number in range(5)))
    bench.round()
    assert sorted(bench.reserved.values()) == ["a", "b", "b", "c", "c"]
    bench.comes(pending("p5", 1), pending("p6", 1))
    bench.round()
    assert sorted(bench.reserved.values()) == ["a", "a", "b", "b", "c", "c"]


def test_the_number_of_nominations_is_limited(made: Made) -> None:
    """Those that are bound make place for others."""
    bench = made(limit=2)
    bench.nominated(*(pending(f"p{number}", 1) for number in range(4)))
    assert set(bench.reserved) == {"p0", "p1"}
    bench.round()
    assert set(bench.reserved) == {"p0", "p1"}
    bench.binds("p0")
    bench.round()
    assert set(bench.reserved) == {"p1", "p2"}


def test_few_pods_are_nominated_ahead_of_a_scheduler_that_takes_them_in_order(
    made: Made,
) -> None:
    """Many, where it calls about others than those that are nominated."""
    bench = made(sizes={"a": 99, "b": 99}, limit=1000)
    bench.comes(*(pending(f"p{number}", 1) for number in range(80)))
    bench.round()
    assert len(bench.reserved) == IN_ORDER
    for _ in range(CALLS):
        bench.replica.called()
    bench.look()
    assert len(bench.reserved) == 80


def test_the_best_node_that_is_not_kept_for_another_pod_is_nominated(bench: Bench) -> None:
    """The best one of all is where the scheduler evicts pods for that one."""
    theirs = pending("theirs", 12, priority=9)
    theirs["status"]["nominatedNodeName"] = "b"
    bench.comes(theirs, pending("p", 12))
    bench.round()
    assert bench.reserved == {"p": "a"}


def test_memory_that_is_reserved_for_others_is_not_nominated_again(bench: Bench) -> None:
    """Nor before the scheduler has seen the first nomination."""
    bench.comes(pending("p", 16), pending("q", 16))
    bench.round()
    bench.comes(pending("r", 16))
    bench.round()
    assert bench.reserved == {"p": "a"}


# Priorities.


def test_the_lowest_of_the_nominated_pods_give_way(made: Made) -> None:
    """As few as needed; the nominations of others stay."""
    bench = made(sizes={"a": 16})
    bench.nominated(pending("one", 8, priority=1), pending("two", 8, priority=2))
    bench.comes(pending("high", 8, priority=3))
    bench.round()
    assert set(bench.reserved) == {"two", "high"}
    bench.send()
    bench.look()
    bench.send()
    assert bench.shown == {"two": "a", "high": "a"}


def test_nobody_gives_way_where_another_component_nominated_a_pod(made: Made) -> None:
    """That pod keeps its part of the node, so that the place would help nobody."""
    bench = made(sizes={"a": 16})
    bench.nominated(pending("low", 8))
    theirs = pending("theirs", 8, priority=9)
    theirs["status"]["nominatedNodeName"] = "a"
    bench.comes(theirs, pending("high", 12, priority=5))
    bench.round()
    assert set(bench.reserved) == {"low"}


def test_what_fits_nowhere_for_a_refused_pod_is_looked_for_again(bench: Bench) -> None:
    """Refused pods come first, whatever the priority of those that wait behind them."""
    bench.nominated(pending("low", 16, priority=1))
    bench.comes(pending("same", 16, priority=1))
    bench.refused("same", "a")
    bench.time += 0.1
    bench.comes(pending("high", 16, priority=5))
    bench.round()
    assert set(bench.reserved) == {"high"}


@pytest.mark.parametrize("priority", [0, 2])
def test_nobody_gives_way_to_the_same_or_a_lower_priority(made: Made, priority: int) -> None:
    """And not to one that is still too large for the node."""
    bench = made(sizes={"a": 16})
    bench.nominated(pending("one", 16, priority=2))
    bench.comes(pending("other", 8, priority=priority), pending("large", 17, priority=9))
    bench.round()
    assert set(bench.reserved) == {"one"}


def test_a_pod_on_a_free_node_displaces_nobody(bench: Bench) -> None:
    """Though its priority is higher."""
    bench.nominated(pending("low", 16))
    bench.comes(pending("high", 12, priority=9))
    bench.round()
    assert bench.reserved == {"low": "a", "high": "b"}


# When.


def test_a_call_of_the_scheduler_wakes_a_round_for_a_backlog_alone(made: Made) -> None:
    """Where refused pods alone are nominated, a refusal does."""
    for after, woken in ((0, True), (None, False)):
        bench = made(after=after)
        bench.comes(pending("p", 16))
        bench.replica.called()
        assert bench.nominator.woken.is_set() is woken
    bench.refused("p", "b")
    assert bench.nominator.woken.is_set()


def test_a_changed_node_wakes_a_round_while_there_are_nominations(bench: Bench) -> None:
    """Reserved ones, and those that are still written."""
    bench.node("a", 12)
    assert not bench.nominator.woken.is_set()
    bench.nominated(pending("p", 8))
    bench.nominator.woken.clear()
    bench.node("a", 16)
    assert bench.nominator.woken.is_set()
    bench.state.forget_nomination(next(iter(bench.state.ledger.nominations())))
    bench.nominator.woken.clear()
    bench.node("a", 12)
    assert bench.nominator.woken.is_set()


def test_without_pods_there_is_no_next_round(bench: Bench) -> None:
    """And one nomination ahead states when it expires."""
    assert bench.round() == NEVER
    bench.nominated(pending("p", 1))
    bench.time += 10
    assert bench.look() == pytest.approx(50)
    bench.binds("p")
    assert bench.look() == NEVER


def test_pods_wait_for_a_confirmed_list_before_the_first_round(bench: Bench) -> None:
    """What the last leader wrote may not have come by the watch."""
    bench.replica.health.why_unconfirmed = "the API server has not answered yet"
    bench.comes(pending("p", 1))
    assert bench.round() == 1
    assert not bench.reserved
    bench.replica.health.why_unconfirmed = ""
    bench.round()
    assert set(bench.reserved) == {"p"}
    bench.replica.health.why_unconfirmed = "later"
    bench.comes(pending("q", 1))
    bench.round()
    assert set(bench.reserved) == {"p", "q"}


def test_a_replica_that_does_not_lead_looks_again_while_pods_are_due(bench: Bench) -> None:
    """After a second; without pods it looks no more."""
    bench.leads = False
    assert bench.round() == NEVER
    bench.comes(pending("p", 1))
    assert bench.round() == 1
    assert not bench.reserved


def test_one_that_leads_no_more_gives_up_what_it_reserved(bench: Bench) -> None:
    """And one that leads another term adopts what it shows."""
    bench.nominated(pending("p", 16))
    bench.leads = False
    bench.round()
    assert bench.reserved == {}
    bench.leads = True
    bench.round()
    assert (bench.reserved, bench.written) == ({"p": "a"}, ["a"])
    bench.replica.term += 1
    bench.round()
    assert (bench.reserved, bench.written) == ({"p": "a"}, ["a"])


# Preemption.


def test_a_pod_that_another_node_admits_needs_no_eviction(bench: Bench) -> None:
    """One that was nominated in vain three times does, or it would wait for ever."""
    bench.comes(pending("p", 16), pending("large", 17))
    assert bench.nominator.fits_elsewhere(bench.state.find("default", "p"))
    assert not bench.nominator.fits_elsewhere(bench.state.find("default", "large"))
    for _ in range(3):
        bench.round()
        bench.send()
        bench.scheduler_writes("p")
        bench.round()
        bench.time += 2
    assert not bench.nominator.fits_elsewhere(bench.state.find("default", "p"))


def test_a_pod_that_passed_filter_and_was_rejected_by_its_scheduler_needs_an_eviction(
    made: Made,
) -> None:
    """Where refused pods alone are nominated, it gets no nomination, and would wait for ever."""
    bench = made(after=None)
    bench.comes(pending("p", 16))
    pod = bench.state.find("default", "p")
    bench.refused("p", "b")
    assert bench.nominator.fits_elsewhere(pod)
    bench.replica.requeue.accepted(pod)
    assert not bench.nominator.fits_elsewhere(pod)


def test_a_pod_that_evicted_none_goes_back_when_its_room_is_taken(made: Made) -> None:
    """Another pod was faster than its nomination: its scheduler has to preempt, once."""
    bench = made(after=None)
    bench.comes(pending("p", 16, priority=9), pending("like", 16, priority=9))
    for name in ("p", "like"):
        bench.refused(name, "b")
        assert bench.nominator.fits_elsewhere(bench.state.find("default", name))
    bench.comes(placed(pending("fast", 16), "a", 0))
    bench.time += 1
    for _ in range(2):
        bench.look()
        bench.replica.loop.run_until_complete(bench.replica.requeue.look())
    assert [set(one) for one in bench.cluster.patches] == [{"metadata"}] * 2
    uids = {bench.state.find("default", name).pod.uid for name in ("p", "like")}
    assert {one["metadata"]["uid"] for one in bench.cluster.patches} == uids
    assert all("gpushare/retry" in one["metadata"]["annotations"] for one in bench.cluster.patches)


def test_a_pod_that_could_not_be_sent_back_to_evict_others_is_sent_later(made: Made) -> None:
    """A patch that failed is repeated, as are others."""
    bench = made(after=None)
    bench.comes(pending("p", 16, priority=9))
    bench.refused("p", "b")
    assert bench.nominator.fits_elsewhere(bench.state.find("default", "p"))
    bench.comes(placed(pending("fast", 16), "a", 0))
    bench.time += 1
    bench.look()
    bench.cluster.failures = [ServerError("PATCH", status=500, message="no")]
    loop, requeue = bench.replica.loop, bench.replica.requeue
    assert loop.run_until_complete(requeue.look())
    requeue._pods.ranked()[0].not_before = 0.0
    loop.run_until_complete(requeue.look())
    assert len(bench.cluster.patches) == 2


@pytest.mark.parametrize("offered", [True, False])
def test_a_pod_whose_room_stands_or_that_had_none_does_not_go_back(
    made: Made, *, offered: bool
) -> None:
    """It is nominated, or its scheduler has already tried to evict others for it."""
    bench = made(after=None)
    bench.comes(pending("p", 16 if offered else 17, priority=9))
    bench.refused("p", "b")
    assert bench.nominator.fits_elsewhere(bench.state.find("default", "p")) is offered
    bench.time += 1
    bench.look()
    bench.replica.loop.run_until_complete(bench.replica.requeue.look())
    assert bench.cluster.patches == []


@pytest.mark.parametrize(("priority", "fits"), [(0, False), (1, True)])
def test_a_pod_needs_no_eviction_where_nominated_pods_give_way(
    priority: int, *, fits: bool
) -> None:
    """Those of lower priority do in the next round; asking gives nothing up."""
    bench = Bench(sizes={"a": 16})
    try:
        bench.nominated(pending("low", 16))
        bench.comes(pending("p", 16, priority=priority))
        assert bench.nominator.fits_elsewhere(bench.state.find("default", "p")) == fits
        assert bench.reserved == {"low": "a"}
        bench.round()
        assert bench.reserved == {"p" if fits else "low": "a"}
    finally:
        bench.replica.loop.close()


def test_a_node_that_only_its_other_rules_exclude_is_none_to_go_to(bench: Bench) -> None:
    """A cordon, here; nor is one whose memory is kept for a pod of the scheduler."""
    bench.comes(pending("p", 16))
    found = bench.state.find("default", "p")
    bench.node("a", 16, unschedulable=True)
    assert not bench.nominator.fits_elsewhere(found)
    bench.node("a", 16)
    assert bench.nominator.fits_elsewhere(found)
    theirs = pending("theirs", 16)
    theirs["status"]["nominatedNodeName"] = "a"
    bench.comes(theirs)
    assert not bench.nominator.fits_elsewhere(found)


# Gangs.


def test_a_gang_without_places_is_planned_again_after_a_second(bench: Bench) -> None:
    """The round states when; other pods are nominated meanwhile."""
    bench.comes(gang("g0", mem=20), gang("g1", mem=20), pending("p", 1))
    assert bench.round() == pytest.approx(1)
    assert set(bench.reserved) == {"p"}
    bench.node("d", 20, 20)
    bench.node("e", 20)
    bench.time += 0.9
    assert bench.round() == pytest.approx(0.1)
    assert set(bench.reserved) == {"p"}
    bench.time += 0.1
    bench.round()
    assert set(bench.reserved) == {"p", "g0", "g1"}


def test_a_pause_of_one_pod_of_a_gang_is_one_of_all(bench: Bench) -> None:
    """They are nominated together."""
    bench.comes(gang("g0"), gang("g1"))
    bench.nominator._failed(bench.state.find("default", "g1").pod.uid)
    assert bench.round() == pytest.approx(0.25)
    assert not bench.reserved
    bench.time += 0.25
    bench.round()
    assert set(bench.reserved) == {"g0", "g1"}


@pytest.mark.parametrize(("limit", "found"), [(2, set()), (3, {"g0", "g1"})])
def test_a_gang_that_exceeds_the_limit_of_nominations_waits(
    made: Made, limit: int, found: set[str]
) -> None:
    """All of its pods count."""
    bench = made(limit=limit)
    bench.comes(pending("high", 1, priority=9), gang("g0"), gang("g1"))
    bench.round()
    assert set(bench.reserved) == {"high"} | found


def test_of_more_pods_than_the_size_of_a_gang_the_first_are_nominated(made: Made) -> None:
    """By priority, then the oldest, then by name."""
    bench = made(sizes={"a": 4, "b": 4})
    names = {"g2": 0, "g1": 0, "g3": 9}
    bench.comes(*(gang(name, 2, 4, priority=priority) for name, priority in names.items()))
    bench.round()
    assert set(bench.reserved) == {"g1", "g3"}


def test_pods_of_a_gang_that_differ_are_left_to_the_scheduler(bench: Bench) -> None:
    """A plan is for equal pods."""
    other = gang("g1")
    other["spec"]["nodeSelector"] = {"a": "b"}
    bench.comes(gang("g0"), other)
    bench.round()
    assert not bench.reserved


def test_a_gang_takes_no_node_that_kube_scheduler_would_refuse(bench: Bench) -> None:
    """Neither by a cordon nor by the number of pods that a node may run."""
    bench.node("a", 16, unschedulable=True)
    bench.node("b", 12, allocatable={"pods": "1"})
    bench.comes(gang("g0", mem=6), gang("g1", mem=6))
    bench.round()
    assert sorted(bench.reserved.values()) == ["b", "c"]


def test_memory_that_the_scheduler_frees_for_its_own_pod_goes_to_no_gang(bench: Bench) -> None:
    """The pod is nominated for a preemption."""
    theirs = pending("theirs", 16, priority=9)
    theirs["status"]["nominatedNodeName"] = "a"
    bench.comes(theirs, gang("g0"), gang("g1"))
    bench.round()
    assert sorted(bench.reserved.values()) == ["b", "c"]


def test_a_gang_whose_scheduler_places_it_is_left_alone(bench: Bench) -> None:
    """Filter reserved places for it; after a refusal they are nominated all the same."""
    bench.comes(gang("g0"), gang("g1"))
    first = bench.state.find("default", "g0")
    bench.replica.gangs.filter(first, [NodeName(name) for name in "abc"])
    bench.round()
    assert not bench.reserved
    bench.refused("g1", "c")
    bench.time += 0.1
    bench.round()
    assert set(bench.reserved) == {"g0", "g1"}
    held = bench.state.ledger.gang("default", "g")
    assert len(held) == 2


@pytest.mark.parametrize("gone", [True, False])
def test_an_adopted_gang_that_lost_a_pod_gives_up_the_others(bench: Bench, *, gone: bool) -> None:
    """An extender that started anew knows what it adopted as one batch."""
    bench.nominated(gang("g0", mem=12), gang("g1", mem=12))
    bench.restart()
    bench.round()
    assert set(bench.reserved) == {"g0", "g1"}
    if gone:
        bench.goes("g0")
    bench.look()
    assert set(bench.reserved) == (set() if gone else {"g0", "g1"})


# What may happen while nodes are rated.


def test_a_pod_that_is_deleted_while_nodes_are_rated_is_not_nominated(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rating many nodes lets other work run."""
    bench.comes(pending("p", 8), pending("q", 8))
    ranking = bench.nominator._ranking
    refresh = ranking.refresh

    def slow(*args: object) -> Iterator[object]:
        if "p" in bench.cluster.pods:
            bench.goes("p")
            bench.comes(pending("p", 4))
        yield from refresh(*args)

    monkeypatch.setattr(ranking, "refresh", slow)
    bench.round()
    assert set(bench.reserved) == {"q"}


def test_an_idle_nominator_keeps_no_ratings(bench: Bench) -> None:
    """After half a minute without a nomination; it nominates as before afterwards."""
    bench.nominated(pending("p", 4))
    assert len(bench.nominator._ranking)
    bench.time += 20
    bench.nominated(pending("p2", 1))
    bench.time += 20
    bench.round()
    assert len(bench.nominator._ranking)
    bench.time += 11
    bench.round()
    assert not len(bench.nominator._ranking)
    bench.comes(pending("q", 4))
    bench.round()
    assert set(bench.reserved) >= {"p2", "q"}


def test_a_pod_that_requests_nothing_is_not_due(bench: Bench) -> None:
    """The scheduler places it."""
    plain = pod("plain")
    plain["spec"]["schedulerName"] = SCHEDULER
    bench.comes(plain)
    assert bench.round() == NEVER
    assert not bench.nominator.due()
