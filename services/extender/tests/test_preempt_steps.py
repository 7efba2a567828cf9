"""Which victims are evicted, decided on the state of one node without a request."""

import json
from typing import Any

import pytest
from decoded import a_node, a_pod, state_of
from objects import Object, placed, pod

from gpucore.model import Placement
from gpucore.units import GpuIndex, NodeName
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
    victims = {"n": {"Pods": [{"UID": name} for name in names], "NumPDBViolations": 3}}
    item = pod("p", mem, uid="p", priority=100, **pending)
    body = {"Pod": item, "NodeNameToMetaVictims": victims}
    verb = preempt or Preempt(state)
    found = verb.preempt(json.dumps(body).encode()).node_name_to_meta_victims
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


def test_among_victims_of_one_cost_the_sum_decides() -> None:
    """The same number and the same highest priority: the GPU with the lower rest is taken."""
    state = state_with(("a", 7, 0, 5), ("b", 8, 0, 3), ("c", 7, 1, 5), ("d", 8, 1, 2))
    assert evicted(state, 15, "a", "b", "c", "d") == ["c", "d"]


def test_the_lowest_priority_that_alone_makes_room_goes() -> None:
    """Whatever the order in which the scheduler names them."""
    state = state_with(("a", 15, 0, 9), ("b", 15, 1, 2))
    assert evicted(state, 15, "a", "b") == evicted(state, 15, "b", "a") == ["b"]


def test_victims_keep_the_order_of_the_scheduler() -> None:
    """Foreign ones among them too."""
    state = state_with(("a", 8, 0, 1), ("b", 7, 0, 2), ("k", 15, 1, 200))
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
    found = Preempt(state).preempt(json.dumps(body).encode()).node_name_to_meta_victims
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
    found = Preempt(state).preempt(json.dumps(body).encode()).node_name_to_meta_victims
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


@pytest.mark.parametrize("pods", [None, []])
def test_a_node_without_victims_is_left_out(pods: Any) -> None:
    """There is nobody to evict there."""
    body = {"Pod": pod("p", 15), "NodeNameToMetaVictims": {"n": {"Pods": pods}}}
    found = Preempt(state_with()).preempt(json.dumps(body).encode())
    assert found.node_name_to_meta_victims == {}
