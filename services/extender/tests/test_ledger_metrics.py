"""Metrics of GPUs while the cluster changes: a scrape lets other work run in between."""

import json
import re
from collections.abc import Callable

import pytest
from decoded import a_node, a_pod, encoded, state_of
from objects import node, placed, pod

from gpucore.units import NodeName
from gpucore.wire.node.spec import decode_node
from gpuextender.metrics import YIELD_EVERY, LedgerMetrics
from gpuextender.state import State

NODES = 3 * YIELD_EVERY


def a_cluster() -> tuple[State, LedgerMetrics]:
    """Nodes with one GPU of 15 GiB each, and their metrics."""
    state = state_of(*(a_node(f"n{number}", 15) for number in range(NODES)))
    gauges = gauges_of(state)
    state.add_event_handler(gauges.node_changed)
    return state, gauges


def rendered(gauges: LedgerMetrics, meanwhile: Callable[[], object] = lambda: None) -> str:
    """All gauges; ``meanwhile`` happens in the first pause."""
    rendering = gauges.render()
    try:
        rendering.send(None)
        meanwhile()
        while True:
            rendering.send(None)
    except StopIteration as end:
        return str(end.value.decode())


def scrape(
    gauges: LedgerMetrics, meanwhile: Callable[[], object] = lambda: None
) -> dict[tuple[str, str], int]:
    """Units by node and kind; ``meanwhile`` happens in the first pause."""
    text = rendered(gauges, meanwhile)
    samples = re.findall(r'gpu_units{.*kind="(\w+)",node="(\w+)"} (\d+)', text)
    return {(node, kind): int(units) for kind, node, units in samples}


def test_a_node_that_changes_during_a_scrape_is_in_it() -> None:
    """Prometheus marks a series that is missing once as stale, and sums dip."""
    state, gauges = a_cluster()

    def bind() -> None:
        state.pod_changed(a_pod(placed(pod("p", 4, uid="u"), "n0", 0)))

    found = scrape(gauges, bind)
    totals = {node: units for (node, kind), units in found.items() if kind == "total"}
    assert totals == {f"n{number}": 15 for number in range(NODES)}
    assert scrape(gauges)["n0", "used"] == 4


def test_a_node_that_is_replaced_during_a_scrape_is_shown_as_it_is_afterwards() -> None:
    """A node of the same name may have other GPUs; one that is gone is not shown again."""
    state, gauges = a_cluster()
    last = f"n{NODES - 1}"

    def replace() -> None:
        state.node_gone(NodeName(last))
        state.node_changed(a_node(last, 24))
        state.node_gone(NodeName("n0"))

    scrape(gauges, replace)
    found = scrape(gauges)
    assert found[last, "total"] == 24
    assert ("n0", "total") not in found


def gauges_of(state: State) -> LedgerMetrics:
    """The metrics of a state."""
    return LedgerMetrics(state.ledger, state.waiting_requests, state.candidates)


def units(state: State) -> dict[str, int]:
    """Units of the GPUs of node ``n`` by kind."""
    found = scrape(gauges_of(state))
    return {kind: amount for (name, kind), amount in found.items() if name == "n"}


def test_all_units_of_an_exclusive_gpu_are_used() -> None:
    """A pod with the GPU to itself leaves no units, however many it requests."""
    state = state_of(a_node("n", 15))
    exclusive = placed(pod("p", uid="u", gpus=1), "n", 0)
    exclusive["metadata"]["annotations"] = {"ALIYUN_COM_GPU_GROUP": "0"}
    state.pod_changed(a_pod(exclusive))
    assert units(state) == {"total": 15, "used": 15, "free": 0}


@pytest.mark.parametrize(("healthy", "free"), [(True, 11), (False, 0)])
def test_an_unhealthy_gpu_has_no_free_units(*, healthy: bool, free: int) -> None:
    """What is left on it cannot be allocated, and is not in use."""
    item = node("n", 15, unit="GiB")
    inventory = json.loads(item["metadata"]["annotations"]["gpushare/inventory"])
    inventory["gpus"][0]["healthy"] = healthy
    item["metadata"]["annotations"]["gpushare/inventory"] = json.dumps(inventory)
    state = state_of(decode_node(encoded(item)))
    state.pod_changed(a_pod(placed(pod("p", 4, uid="u"), "n", 0)))
    assert units(state) == {"total": 15, "used": 4, "free": free}


@pytest.mark.parametrize(("api", "free"), [("", 0), ("claims", 15)])
def test_a_node_whose_device_plugin_is_away_has_no_free_units(api: str, free: int) -> None:
    """Filter refuses it; a node that offers claims needs no device plugin for that."""
    item = node("n", 15, unit="GiB")
    inventory = json.loads(item["metadata"]["annotations"]["gpushare/inventory"])
    inventory |= {"serving": False, "api": api}
    item["metadata"]["annotations"]["gpushare/inventory"] = json.dumps(inventory)
    assert units(state_of(decode_node(encoded(item)))) == {"total": 15, "used": 0, "free": free}


@pytest.mark.parametrize("why", ["cordoned", "not ready"])
def test_a_node_that_accepts_no_pods_has_no_free_units(why: str) -> None:
    """A cordon changes the figures of the next scrape, and so does its end."""
    state = state_of(a_node("n", 15))
    state.pod_changed(a_pod(placed(pod("p", 4, uid="u"), "n", 0)))
    gauges = gauges_of(state)
    state.add_event_handler(gauges.node_changed)
    assert scrape(gauges)["n", "free"] == 11
    item = node("n", 15, unit="GiB")
    if why == "cordoned":
        item["spec"] = {"unschedulable": True}
    else:
        item["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    state.node_changed(decode_node(encoded(item)))
    found = scrape(gauges)
    assert (found["n", "total"], found["n", "used"], found["n", "free"]) == (15, 4, 0)
    state.node_changed(a_node("n", 15))
    assert scrape(gauges)["n", "free"] == 11


def test_a_gpu_that_its_node_lost_is_neither_shown_nor_over_full() -> None:
    """A pod that outlives its GPU, or its node, shares nothing that could run out of memory."""
    state = state_of(a_node("n", 15))
    state.pod_changed(a_pod(placed(pod("p", 4, uid="u"), "n", 1)))
    gauges = gauges_of(state)
    assert units(state) == {"total": 15, "used": 0, "free": 15}
    assert "overfull_gpus{" not in rendered(gauges)
    state.node_gone(NodeName("n"))
    assert units(state) == {}
    assert "overfull_gpus{" not in rendered(gauges)


def test_a_gpu_with_more_allocated_than_it_has_is_over_full() -> None:
    """A GPU of the node itself counts, and is named for whoever is woken by it."""
    state = state_of(a_node("n", 15))
    for uid in "ab":
        state.pod_changed(a_pod(placed(pod(uid, 8, uid=uid), "n", 0)))
    assert 'overfull_gpus{gpu="0",node="n"} 1.0\n' in rendered(gauges_of(state))
    assert units(state) == {"total": 15, "used": 16, "free": 0}


def test_units_on_an_unknown_gpu_are_those_of_their_node() -> None:
    """Whoever is warned of them has to look at the node's plugin; other nodes have no series."""
    state = state_of(a_node("n", 15), a_node("other", 15))
    unknown = pod("p", 4, uid="u")
    state.pod_changed(a_pod(unknown | {"spec": unknown["spec"] | {"nodeName": "n"}}))
    found = re.findall(r"pending_units(\{.*)", rendered(gauges_of(state)))
    assert found == ['{node="n"} 4.0']


def test_a_state_without_allocations_is_zero() -> None:
    """A rule over some time would take the gaps of an absent series for nothing at all."""
    state = state_of(a_node("n", 15))
    gauges = gauges_of(state)
    state.pod_changed(a_pod(placed(pod("p", 4, uid="u"), "n", 0)))
    found = dict(re.findall(r'claims{state="(\w+)"} (\d+)', rendered(gauges)))
    assert found == {
        "nominated": "0",
        "reserved": "0",
        "assumed": "0",
        "bound": "0",
        "confirmed": "1",
    }
