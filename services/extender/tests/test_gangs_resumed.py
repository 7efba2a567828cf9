"""A gang that another extender has half placed: its other pods get places before other pods do."""

import json
from typing import Any
from unittest.mock import AsyncMock

import pytest
from decoded import a_node, assume, state_of
from nominating import ready
from objects import Object, placed, pod
from replicas import read
from schedulercalls import Calls

from gpucore.scheduling.grouping import Rules
from gpucore.units import PodUid
from gpucore.wire.node.spec import decode_node
from gpuextender.scheduling import filter as filtering
from gpuextender.scheduling import gangs
from gpuextender.scheduling.gangs import Gangs
from gpuextender.state import State

NAMES = ("a", "b")
LABELS = {"gpu-topology": "g", "gpu-topology-replica": "4"}


def member(number: int, mem: int = 8, **more: Any) -> Object:
    """A pod of the gang ``g`` of four."""
    return pod(f"g{number}", mem, uid=f"g{number}", labels=LABELS, **more)


def half_placed(*pending: Object, where: str = "a") -> State:
    """Two nodes with one GPU of 16 units each; two pods of a gang are bound to one of them."""
    state = state_of(a_node("a", 16), a_node("b", 16))
    for number in range(2):
        state.pod_changed(read(placed(member(number), where, 0)))
    for item in pending:
        state.pod_changed(read(item))
    return state


def reserved(state: State) -> list[str]:
    """Nodes with reserved places of the gang."""
    held = state.ledger.gang("default", "g")
    return sorted(one.placement.node for one in held if one.state == "reserved")


async def fits(calls: Calls, item: Object) -> list[str]:
    """Nodes that filter returns for a pod."""
    found = await calls.filter(item, NAMES)
    names: list[str] = json.loads(bytes(found.node_names))
    return names


async def test_the_first_call_reserves_what_half_placed_gangs_lack() -> None:
    """The extender that reserved it is gone; the pod that is called first would take it."""
    calls = Calls(half_placed(member(2), member(3)))
    assert await fits(calls, pod("other", 16, uid="other")) == []
    assert reserved(calls.state) == ["b", "b"]
    for number in (2, 3):
        assert await fits(calls, member(number)) == ["b"]


async def test_a_gang_without_a_place_reserves_nothing_before_its_own_call() -> None:
    """Nor does one that is complete, or whose pods are nominated or have scheduling gates."""
    gated, nominated = member(3), member(3)
    gated["spec"]["schedulingGates"] = [{"name": "later"}]
    nominated["status"]["nominatedNodeName"] = "a"
    others = state_of(a_node("a", 16), a_node("b", 16))
    for number in range(4):
        others.pod_changed(read(member(number)))
    for state in (others, half_placed(), half_placed(gated), half_placed(nominated)):
        calls = Calls(state)
        assert await fits(calls, pod("other", 16, uid="other"))
        assert reserved(state) == []


async def test_pods_of_different_requests_get_places_each() -> None:
    """Those of equal requests together."""
    calls = Calls(half_placed(member(2, 4), member(3, 6)))
    await calls.filter(pod("other", 1, uid="other"), NAMES)
    assert reserved(calls.state) == ["b", "b"]


async def test_nodes_that_kube_scheduler_rejects_are_left_out() -> None:
    """The places would be of no use to the gang."""
    calls = Calls(half_placed(member(2), member(3)))
    item = ready("b", 16)
    item["spec"] = {"unschedulable": True}
    calls.state.node_changed(decode_node(json.dumps(item).encode()))
    assert await fits(calls, pod("other", 16, uid="other")) == ["b"]
    assert reserved(calls.state) == []


async def test_a_pod_that_is_being_bound_needs_no_place() -> None:
    """The others do."""
    state = half_placed(member(2), member(3))
    assume(state, read(member(2)), "b")
    await Gangs(state, Rules()).resume()
    assert reserved(state) == ["b"]
    allocation = state.ledger.allocation(PodUid("g2"))
    assert allocation is not None
    assert allocation.state == "assumed"


async def test_gangs_are_looked_at_when_a_scheduler_begins_to_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the start, and after a pause in which another extender may have been called."""
    resume = AsyncMock()
    monkeypatch.setattr(Gangs, "resume", resume)
    calls = Calls(half_placed())
    for _ in range(3):
        await calls.filter(pod("other", 1), NAMES)
    assert resume.await_count == 1
    monkeypatch.setattr(filtering, "QUIET_SECONDS", 0.0)
    await calls.filter(pod("other", 1), NAMES)
    assert resume.await_count == 2


async def test_the_first_call_does_not_wait_long_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """kube-scheduler would give it up; later gangs get places by their own calls."""
    monkeypatch.setattr(gangs, "RESUME_SECONDS", 0.0)
    state = half_placed(member(2), member(3))
    labels = {"gpu-topology": "h", "gpu-topology-replica": "2"}
    state.node_changed(a_node("c", 2))
    state.pod_changed(read(placed(pod("h0", 1, uid="h0", labels=labels), "c", 0)))
    state.pod_changed(read(pod("h1", 1, uid="h1", labels=labels)))
    calls = Calls(state)
    await calls.filter(pod("other", 1), NAMES)
    held = [*state.ledger.gang("default", "g"), *state.ledger.gang("default", "h")]
    assert {one.gang for one in held if one.state == "reserved"} == {"g"}
