"""Metrics of GPUs while the cluster changes: a scrape lets other work run in between."""

import re
from collections.abc import Callable

from decoded import a_node, a_pod, state_of
from objects import placed, pod

from gpucore.units import NodeName
from gpuextender.metrics import YIELD_EVERY, LedgerMetrics
from gpuextender.state import State

NODES = 3 * YIELD_EVERY


def a_cluster() -> tuple[State, LedgerMetrics]:
    """Nodes with one GPU of 15 GiB each, and their metrics."""
    state = state_of(*(a_node(f"n{number}", 15) for number in range(NODES)))
    gauges = LedgerMetrics(state.ledger, state.waiting_requests)
    state.add_event_handler(gauges.node_changed)
    return state, gauges


def scrape(
    gauges: LedgerMetrics, meanwhile: Callable[[], object] = lambda: None
) -> dict[tuple[str, str], int]:
    """Units by node and kind; ``meanwhile`` happens in the first pause."""
    rendering = gauges.render()
    try:
        rendering.send(None)
        meanwhile()
        while True:
            rendering.send(None)
    except StopIteration as end:
        text = end.value.decode()
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
