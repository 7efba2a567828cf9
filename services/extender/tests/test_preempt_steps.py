"""Which victims are evicted, decided on the state of one node without a request."""

import asyncio
from typing import Any

import msgspec
import pytest
from decoded import a_node, a_pod, state_of
from hypothesis import given
from hypothesis import strategies as st
from objects import Object, placed, pod
from preempting import answer

from gpucore.model import Allocation, AllocationState, Placement
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.pod.spec import Pod
from gpuextender.scheduling.preempt import Preempt
from gpuextender.state import State

Holder = tuple[str, int, int, int]
"""Name, units, GPU and priority of a running pod."""


def state_with(*holders: Holder, units: tuple[int, ...] = (15, 15)) -> State:
    """A node with these pods."""
    state = state_of(a_node("n", *units))
    for name, amount, gpu, priority in holders:
        state.pod_changed(a_pod(placed(pod(name, amount, uid=name, priority=priority), "n", gpu)))
    return state


def evicted(
    state: State, mem: int, *names: str, preempt: Preempt | None = None, **pending: Any
) -> list[str] | None:
    """Victims on the node for a pod that requests so much; None where it is left out."""
    item = pod("p", mem, uid="p", priority=100, **pending)
    return victims_of(preempt or Preempt(state), item, *names)


def victims_of(preempt: Preempt, pending: Object, *names: str) -> list[str] | None:
    """The same for a pod as the scheduler sends it."""
    victims = {"n": {"Pods": [{"UID": name} for name in names], "NumPDBViolations": 3}}
    body = {"Pod": pending, "NodeNameToMetaVictims": victims}
    found = answer(preempt, body).node_name_to_meta_victims
    if "n" not in found:
        return None
    assert found["n"].num_pdb_violations == 3
    return [one.uid for one in found["n"].pods]


def test_the_highest_priority_that_is_lost_counts_before_the_sum() -> None:
    """Two of 4 are less of a loss than one of 5 and one of 1, though their sum is higher."""
    state = state_with(("a", 5, 0, 5), ("b", 5, 0, 1), ("c", 5, 1, 4), ("d", 5, 1, 4))
    for name, gpu in (("keep0", 0), ("keep1", 1)):
        state.pod_changed(a_pod(placed(pod(name, 5, uid=name, priority=200), "n", gpu)))
    assert evicted(state, 10, "a", "b", "c", "d") == ["c", "d"]


def test_fewer_victims_count_before_their_priority() -> None:
    """One of high priority, not two of low priority."""
    state = state_with(("a", 7, 0, 0), ("b", 7, 0, 0), ("c", 14, 1, 9))
    assert evicted(state, 14, "a", "b", "c") == ["c"]


def test_fewer_pods_of_one_gpu_go_before_more_of_lower_priority() -> None:
    """No pod alone makes room on either GPU."""
    low = [(name, 5, 1, 1) for name in ("c", "d", "e")]
    state = state_with(("a", 8, 0, 5), ("b", 7, 0, 5), *low)
    assert evicted(state, 15, "a", "b", "c", "d", "e") == ["a", "b"]


def test_of_pods_of_one_priority_the_smallest_is_spared_first() -> None:
    """In whatever order kube-scheduler names them."""
    state = state_with(("c", 6, 0, 0), ("b", 5, 0, 0), ("a", 4, 0, 0), units=(15,))
    assert evicted(state, 9, "c", "b", "a") == ["c", "b"]


def test_among_victims_of_one_cost_the_sum_decides() -> None:
    """The same number and the same highest priority: the GPU with the lower rest is taken."""
    state = state_with(("a", 7, 0, 5), ("b", 8, 0, 3), ("c", 7, 1, 5), ("d", 8, 1, 2))
    assert evicted(state, 15, "a", "b", "c", "d") == ["c", "d"]


def test_the_lowest_priority_that_alone_makes_room_goes() -> None:
    """Whatever the order in which the scheduler names them."""
    state = state_with(("a", 15, 0, 9), ("b", 15, 1, 2))
    assert evicted(state, 15, "a", "b") == evicted(state, 15, "b", "a") == ["b"]


def test_victims_of_equal_priority_keep_the_order_of_the_scheduler() -> None:
    """Foreign ones among them too."""
    state = state_with(("a", 8, 0, 0), ("b", 7, 0, 0), ("k", 15, 1, 200))
    assert evicted(state, 15, "b", "other", "a") == ["b", "other", "a"]


def test_pods_of_several_gpus_need_victims_of_several() -> None:
    """No GPU alone is enough, so all are looked at together."""
    state = state_with(("a", 15, 0, 0), ("b", 15, 1, 0))
    pending = {"labels": {"aliyun.com/gpu-count": "2"}}
    assert evicted(state, 30, "a", "b", **pending) == ["a", "b"]


def test_the_state_stays_as_it_is() -> None:
    """Evictions are tried on a copy."""
    state = state_with(("a", 15, 0, 0), ("b", 15, 1, 0))
    assert evicted(state, 15, "a") == ["a"]
    assert evicted(state, 15, "b") == ["b"]
    assert len(state.ledger.allocations()) == 2


def test_both_forms_of_victims_are_read() -> None:
    """Whole pods win where a scheduler sends both; a null among them is skipped."""
    state = state_with(("a", 15, 0, 0), ("b", 15, 1, 0))
    whole = placed(pod("a", 15, uid="a"), "n", 0)
    body: Object = {
        "Pod": pod("p", 15, priority=9),
        "NodeNameToVictims": {"m": None, "n": {"Pods": [whole]}},
        "NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "b"}]}},
    }
    found = answer(Preempt(state), body).node_name_to_meta_victims
    assert {node: [one.uid for one in victims.pods] for node, victims in found.items()} == {
        "n": ["a"]
    }


def test_a_victim_that_is_sent_whole_has_the_priority_that_it_was_sent_with() -> None:
    """The watch may not have brought it yet."""
    pods = [
        placed(pod(name, 15, uid=name, priority=priority), "n", gpu)
        for name, priority, gpu in (("a", 9, 0), ("b", 2, 1))
    ]
    state = state_of(a_node("n", 15, 15))
    for item in pods:
        state.ledger.pod_changed(a_pod(item))
    body = {"Pod": pod("p", 15, priority=10), "NodeNameToVictims": {"n": {"Pods": pods}}}
    found = answer(Preempt(state), body).node_name_to_meta_victims
    assert [one.uid for one in found["n"].pods] == ["b"]


@pytest.mark.parametrize(
    ("waiting", "fits", "expected"),
    [("p", True, None), ("p", False, ["a"]), ("of an earlier pod", True, ["a"])],
)
def test_a_pod_that_fits_on_another_node_evicts_nobody(
    waiting: str, expected: list[str] | None, *, fits: bool
) -> None:
    """The scheduler did not evaluate that node; a pod of the same name before it does not count."""
    state = state_with(("a", 15, 0, 0), ("b", 15, 1, 9))
    state.pod_changed(a_pod(pod("p", 15, uid=waiting)))
    preempt = Preempt(state)
    preempt.fits_elsewhere = lambda known: fits and known.pod.name == "p"
    assert evicted(state, 15, "a", "b", preempt=preempt) == expected


def test_a_pod_that_the_extender_nominated_evicts_nobody() -> None:
    """GPUs are reserved for it on another node."""
    state = state_with(("a", 15, 0, 0))
    state.node_changed(a_node("free", 15))
    item = a_pod(pod("p", 15, uid="p"))
    assert evicted(state, 15, "a") == ["a"]
    state.nominate(item, Placement(NodeName("free"), mem={GpuIndex(0): 15}), now_ns=1)
    assert evicted(state, 15, "a") is None


def test_a_pod_whose_bind_has_an_unknown_outcome_evicts_nobody() -> None:
    """GPUs are reserved for it, perhaps on a node that the scheduler does not offer now."""
    state = state_with(("a", 15, 0, 0))
    state.assume(a_pod(pod("p", 15, uid="p")), on_gpu(1, 15), now_ns=1)
    assert evicted(state, 15, "a") is None
    state.forget(PodUid("p"))
    assert evicted(state, 16, "a") is None
    state.pod_changed(a_pod(placed(pod("k", 15, uid="k", priority=200), "n", 1)))
    assert evicted(state, 15, "a") == ["a"]


@pytest.mark.parametrize(("priority", "expected"), [(99, ["a"]), (100, ["a", "b"])])
def test_places_of_nominated_pods_of_lower_priority_count_as_free(
    priority: int, expected: list[str]
) -> None:
    """kube-scheduler evicts for the pod, and clears their nominations."""
    state = state_with(("a", 7, 0, 5), ("b", 4, 0, 0), ("k", 15, 1, 200))
    waiting = a_pod(pod("w", 4, uid="w", priority=priority))
    state.pod_changed(waiting)
    state.nominate(waiting, on_gpu(0, 4), now_ns=1)
    assert evicted(state, 11, "a") == expected


@pytest.mark.parametrize("pods", [None, []])
def test_a_node_without_victims_is_left_out(pods: Any) -> None:
    """There is nobody to evict there."""
    body = {"Pod": pod("p", 15), "NodeNameToMetaVictims": {"n": {"Pods": pods}}}
    found = answer(Preempt(state_with()), body)
    assert found.node_name_to_meta_victims == {}


async def test_other_calls_are_answered_between_two_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scheduler may propose a hundred nodes with many pods each, and probes come meanwhile."""
    monkeypatch.setattr("gpukube.server.time_slices.SECONDS", 0)
    nodes, turns = [f"n{number}" for number in range(9)], 0
    state = state_of(*(a_node(name, 15) for name in nodes))
    for name in nodes:
        state.pod_changed(a_pod(placed(pod(f"on-{name}", 15, uid=f"on-{name}"), name, 0)))

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    victims = {name: {"Pods": [{"UID": f"on-{name}"}]} for name in nodes}
    body = {"Pod": pod("p", 15, uid="p", priority=9), "NodeNameToMetaVictims": victims}
    task = asyncio.create_task(others())
    found = await Preempt(state).preempt(msgspec.json.encode(body))
    task.cancel()
    assert list(found.node_name_to_meta_victims) == nodes
    assert turns >= len(nodes)


async def test_a_pod_that_gets_a_place_meanwhile_evicts_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The extender nominates a node for it while victims are chosen."""
    monkeypatch.setattr("gpukube.server.time_slices.SECONDS", 0)
    state = state_with(("a", 15, 0, 0))
    state.node_changed(a_node("free", 15))
    item = pod("p", 15, uid="p", priority=9)
    body = {"Pod": item, "NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "a"}]}}}
    call = asyncio.create_task(Preempt(state).preempt(msgspec.json.encode(body)))
    await asyncio.sleep(0)
    state.nominate(a_pod(item), Placement(NodeName("free"), mem={GpuIndex(0): 15}), now_ns=1)
    assert (await call).node_name_to_meta_victims == {}


def terminating(name: str, amount: int, gpu: int) -> Pod:
    """A running pod that is being deleted."""
    item = placed(pod(name, amount, uid=name), "n", gpu)
    item["metadata"]["deletionTimestamp"] = "2026-11-28T00:00:00Z"
    return a_pod(item)


def test_a_pod_that_alone_makes_room_goes_instead_of_a_proposed_one() -> None:
    """By the sum of the node either would do, and kube-scheduler names the one started last."""
    state = state_with(("a", 10, 0, 9), ("b", 4, 0, 0), ("c", 6, 1, 0))
    assert evicted(state, 12, "b") == ["c"]


def test_pods_are_added_where_the_proposed_ones_make_no_room() -> None:
    """The proposed pods are on two GPUs and another pod of one of these makes room."""
    state = state_with(("a", 8, 0, 0), ("b", 7, 0, 0), ("c", 8, 1, 0), ("d", 7, 1, 0))
    assert evicted(state, 15, "b", "c") == ["b", "a"]


def test_no_pod_is_added_where_the_proposed_ones_make_room() -> None:
    """kube-scheduler compared these with PodDisruptionBudgets, even if another costs less."""
    state = state_with(("a", 8, 0, 5), ("b", 7, 0, 5), ("c", 15, 1, 0))
    assert evicted(state, 15, "a", "b") == ["a", "b"]


def test_of_equal_pods_the_fewest_are_added() -> None:
    """Two large pods of the GPU, not three small ones."""
    state = state_with(*((f"s{i}", i, 0, 0) for i in (2, 3, 4, 6)), ("k", 15, 1, 200))
    assert evicted(state, 10, "s2") == ["s4", "s6"]


def test_the_first_victim_is_the_one_of_highest_priority() -> None:
    """kube-scheduler compares nodes by the first."""
    state = state_with(("a", 8, 0, 2), ("b", 7, 0, 7), ("k", 15, 1, 200))
    assert evicted(state, 15, "a") == ["b", "a"]


def test_a_victim_without_gpus_keeps_its_place_by_its_priority() -> None:
    """The reply names it before a pod of lower priority that the extender adds."""
    state = state_with(("b", 15, 0, 7), ("k", 15, 1, 200))
    foreign = pod("foreign", uid="foreign", priority=50)
    foreign["spec"]["nodeName"] = "n"
    state.pod_changed(a_pod(foreign))
    assert evicted(state, 15, "foreign") == ["foreign", "b"]


def test_victims_are_named_by_priority_whichever_a_budget_protects() -> None:
    """Older schedulers propose the pods first that a PodDisruptionBudget protects."""
    state = state_with(("a", 8, 0, 1), ("b", 7, 0, 2), ("k", 15, 1, 200))
    assert evicted(state, 15, "a", "b") == ["b", "a"]


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        (("02", "01"), ["b", "a"]),
        (("01", "02"), ["a", "b"]),
        (("", "01"), ["b", "a"]),
        (("01", ""), ["a", "b"]),
    ],
)
def test_of_equal_priority_the_victim_that_started_first_is_named_first(
    starts: tuple[str, str], expected: list[str]
) -> None:
    """kube-scheduler orders its own victims so; one that has not started comes last."""
    state = state_with(("k", 15, 1, 200))
    for name, amount, start in (("a", 8, starts[0]), ("b", 7, starts[1])):
        item = placed(pod(name, amount, uid=name), "n", 0)
        item["status"] |= {"startTime": f"2026-11-{start}T00:00:00Z"} if start else {}
        state.pod_changed(a_pod(item))
    assert evicted(state, 15, "a") == expected


@pytest.mark.parametrize("units", [(15,), (15, 15)], ids=["one GPU", "two GPUs"])
def test_a_node_that_is_sent_without_victims_gets_some(units: tuple[int, ...]) -> None:
    """A kube-scheduler that sees enough units in total leaves the choice to the extender."""
    state = state_with(*((f"p{gpu}", 10, gpu, gpu) for gpu in range(len(units))), units=units)
    assert evicted(state, 12) == ["p0"]


def test_pods_that_may_not_be_evicted_are_not_added() -> None:
    """Of the same priority, being deleted, being bound, or of a PodGroup; nor is a claim."""
    state = state_with(("same", 15, 1, 100), ("small", 1, 0, 0), units=(15, 15, 15, 15, 15))
    state.pod_changed(terminating("ends", 15, 2))
    state.assume(a_pod(pod("p3", 15, uid="p3")), on_gpu(3, 15), now_ns=1)
    member = placed(pod("member", 15, uid="member"), "n", 4)
    member["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    state.pod_changed(a_pod(member))
    claim = Allocation(PodUid("claim"), "", "c", AllocationState.BOUND, on_gpu(0, 14), users=())
    state.ledger.hold_claim(claim)
    assert evicted(state, 15, "small") is None
    state.ledger.release_claim(PodUid("claim"))
    assert evicted(state, 15, "small") == ["small"]


def on_gpu(index: int, units: int) -> Placement:
    """A place on the node."""
    return Placement(NodeName("n"), mem={GpuIndex(index): units})


def needing_cpu(item: Object, cpu: int) -> Object:
    """The pod with a request of processors."""
    item["spec"]["containers"][0]["resources"]["requests"] = {"cpu": str(cpu)}
    return item


@pytest.mark.parametrize(
    ("cpu", "proposed", "expected"),
    [
        (4, ["a", "b"], ["a", "b"]),
        (2, ["a", "b"], ["a"]),
        (4, ["b"], ["b", "a"]),
        (2, ["b"], ["a"]),
        (4, ["hog"], ["hog", "a"]),
        (4, ["hog", "a", "b"], ["hog", "a"]),
    ],
)
def test_a_proposed_pod_goes_where_its_processors_are_needed(
    cpu: int, proposed: list[str], expected: list[str]
) -> None:
    """The node has 8 processors: a and b have 2 each, hog has 4. Only a makes room on a GPU."""
    state = state_with(("k", 9, 1, 200))
    for name, amount, gpu, cpus in (("a", 15, 0, 2), ("b", 6, 1, 2)):
        item = placed(needing_cpu(pod(name, amount, uid=name), cpus), "n", gpu)
        state.pod_changed(a_pod(item))
    hog = needing_cpu(pod("hog", uid="hog"), 4)
    hog["spec"]["nodeName"] = "n"
    state.pod_changed(a_pod(hog))
    pending = needing_cpu(pod("p", 15, uid="p", priority=100), cpu)
    assert victims_of(Preempt(state), pending, *proposed) == expected


def test_the_fewest_victims_are_chosen_beside_one_whose_processors_are_needed() -> None:
    """Two of GPU 0, not three of GPU 1; x makes room on no GPU and has half of the processors."""
    low = [(name, 5, 1, 0) for name in ("c", "d", "e")]
    state = state_with(("a", 8, 0, 5), ("b", 7, 0, 5), *low, ("k", 9, 2, 200), units=(15, 15, 15))
    state.pod_changed(a_pod(placed(needing_cpu(pod("x", 6, uid="x"), 4), "n", 2)))
    pending = needing_cpu(pod("p", 15, uid="p", priority=100), 5)
    assert victims_of(Preempt(state), pending, "x") == ["a", "b", "x"]


@pytest.mark.parametrize(("cpu", "expected"), [(2, ["a"]), (4, ["a", "b"])])
def test_a_proposed_pod_goes_where_a_nominated_pod_takes_the_processors(
    cpu: int, expected: list[str]
) -> None:
    """The node has 8 processors: b has 2, and another component nominated a pod that needs 4."""
    state = state_with(("a", 15, 0, 0), ("k", 9, 1, 200), units=(15, 15, 15))
    state.pod_changed(a_pod(placed(needing_cpu(pod("b", 6, uid="b"), 2), "n", 1)))
    urgent = needing_cpu(pod("urgent", 15, uid="urgent", priority=200), 4)
    urgent["status"]["nominatedNodeName"] = "n"
    state.pod_changed(a_pod(urgent))
    pending = needing_cpu(pod("p", 15, uid="p", priority=100), cpu)
    assert victims_of(Preempt(state), pending, "a", "b") == expected


def test_a_proposed_pod_goes_where_a_rule_is_not_evaluated() -> None:
    """It may have the host port that the pod needs."""
    state = state_with(("a", 15, 0, 0), ("b", 15, 1, 1))
    pending = pod("p", 15, uid="p", priority=100)
    assert victims_of(Preempt(state), pending, "a", "b") == ["a"]
    pending["spec"]["containers"][0]["ports"] = [{"hostPort": 80}]
    assert victims_of(Preempt(state), pending, "a", "b") == ["b", "a"]


@given(
    st.lists(
        st.tuples(st.integers(3, 8), st.integers(0, 2), st.sampled_from((0, 5, 200))),
        min_size=8,
        max_size=16,
    ),
    st.integers(8, 15),
)
def test_a_node_is_named_exactly_where_evictions_help(
    pods: list[tuple[int, int, int]], mem: int
) -> None:
    """Pods of lower priority, of which every one is needed, for what kube-scheduler proposes."""
    used, running = [0, 0, 0], list[Holder]()
    for number, (units, gpu, priority) in enumerate(pods):
        if used[gpu] + units <= 15:
            used[gpu] += units
            running.append((f"p{number}", units, gpu, priority))
    proposed = minimal_by_sum(running, 45, mem)
    if not proposed:
        return
    found = evicted(state_with(*running, units=(15, 15, 15)), mem, *proposed)
    lower = {name for name, _, _, priority in running if priority < 100}

    def has_room(gone: set[str]) -> bool:
        left = [one for one in running if one[0] not in gone]
        return any(15 - sum(one[1] for one in left if one[2] == gpu) >= mem for gpu in range(3))

    assert (found is not None) == has_room(lower)
    gone = set(found or ())
    assert gone <= lower
    assert has_room(set()) or not any(has_room(gone - {one}) for one in gone)


def minimal_by_sum(running: list[Holder], total: int, mem: int) -> list[str]:
    """What kube-scheduler proposes: it spares pods while the sum allows, important ones first."""
    lower = sorted((one for one in running if one[3] < 100), key=lambda one: -one[3])
    used, victims = sum(one[1] for one in running if one not in lower), list[str]()
    if used + mem > total:
        return []
    for name, units, _, _ in lower:
        if used + units + mem <= total:
            used += units
        else:
            victims.append(name)
    return victims
