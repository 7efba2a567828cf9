"""What is kept of answers is dropped exactly when the books of its node change."""

import json
from typing import Any

from decoded import Touched, a_node, a_pod
from objects import placed, pod

from gpucore.model import Placement
from gpucore.scheduling import pending_pods
from gpucore.scheduling.policy import place
from gpucore.units import NodeName
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.pod.spec import decode_pod
from gpuextender.state import State


def test_only_nodes_that_changed_are_touched() -> None:
    """Heartbeats and equal lists touch nothing; claims touch the node they leave and come to."""
    touched = Touched()
    state = State(DEFAULT_NAMES)
    state.add_event_handler(touched)
    nodes = [a_node("a", 15), a_node("b", 15)]
    state.relist_nodes(nodes)
    assert touched.taken() == {"a", "b"}
    state.relist_nodes(nodes)
    state.node_changed(nodes[0])
    assert touched.taken() == set()
    one = pod("p", 4, uid="u")
    state.pod_changed(a_pod(placed(one, "a", 0)))
    assert touched.taken() == {"a"}
    state.pod_changed(a_pod(placed(one, "a", 0)))
    assert touched.taken() == set()
    state.relist_pods([a_pod(placed(one, "b", 0))])
    assert touched.taken() == {"a", "b"}
    state.relist_pods([])
    assert touched.taken() == {"b"}
    state.relist_nodes([a_node("a", 15, 15)])
    assert touched.taken() == {"a", "b"}


def test_what_changed_before_the_first_handler_is_reported_once() -> None:
    """A node that changed with each of its pods is reported once, and later ones as they change."""
    state, reported = State(DEFAULT_NAMES), list[str]()
    state.relist_nodes([a_node("a", 15), a_node("b", 15)])
    for number in range(3):
        state.pod_changed(a_pod(placed(pod(f"p{number}", 4, uid=f"u{number}"), "a", 0)))
    state.add_event_handler(reported.append)
    assert reported == ["a", "b"]
    state.pod_changed(a_pod(placed(pod("late", 2, uid="late"), "b", 0)))
    assert reported == ["a", "b", "b"]


def test_waiting_pods_are_found_by_name_and_uid() -> None:
    """A pod that was created again under its name is another pod."""
    state = State(DEFAULT_NAMES)
    state.pod_changed(a_pod(pod("p", 4, uid="old")))
    assert state.pending_pod("default", "p", "old")
    assert state.pending_pod("default", "p", "new") is None
    state.pod_changed(a_pod(pod("p", 4, uid="new")))
    state.pod_gone(a_pod(pod("p", 4, uid="old")))
    assert state.pending_pod("default", "p", "new")
    assert [pending.pod.uid for pending in state.waiting()] == ["new"]
    state.pod_changed(a_pod(pod("p", 4, uid="new", phase="Failed")))
    assert state.find("default", "p") is None


def test_memory_of_seen_pods_is_bounded(monkeypatch: Any) -> None:
    """Pods of scheduler requests long ago are forgotten, the oldest first."""
    monkeypatch.setattr(pending_pods, "SEEN_LIMIT", 2)
    state = State(DEFAULT_NAMES)
    for name in "abc":
        state.saw(a_pod(pod(name, 1, uid=name)))
    assert state.pending_pod("default", "a", "a") is None
    assert state.pending_pod("default", "c", "c")


def test_a_reservation_that_expires_touches_its_node() -> None:
    """Its units are free again, and answers that counted them are dropped."""
    touched = Touched()
    state = State(DEFAULT_NAMES)
    state.add_event_handler(touched)
    state.relist_nodes([a_node("a", 15)])
    waiting = a_pod(pod("p", 4, uid="u"))
    node_info = state.ledger.node(NodeName("a"))
    assert node_info is not None
    pod_request = state.saw(waiting).pod_request
    assert pod_request is not None
    placement = place(node_info, pod_request)
    assert isinstance(placement, Placement)
    state.assume(waiting, placement, now_ns=0)
    touched.taken()
    assert state.expire(now_ns=100, ttl_ns=50) == ["u"]
    assert touched.taken() == {"a"}
    assert node_info.used_units == 0


def test_a_pod_with_scheduling_gates_does_not_wait() -> None:
    """No scheduler tries it yet, so neither the list of waiting pods nor the gauges have it."""
    state = State(DEFAULT_NAMES)
    item = pod("gated", 4)
    item["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    state.pod_changed(decode_pod(json.dumps(item).encode()))
    assert not [*state.waiting(), *state.waiting_requests()]
    found = state.find("default", "gated")
    assert found is not None
    assert found.pod.gated
    del item["spec"]["schedulingGates"]
    state.pod_changed(decode_pod(json.dumps(item).encode()))
    assert [pending.pod.name for pending in state.waiting()] == ["gated"]
