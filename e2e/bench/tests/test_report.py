"""The page shows for each figure whether its bar is met; what was not measured has no row."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench import bars, digest, report
from bench.backlog import Placed
from bench.binds import Rate


def figures(
    *, p99: float = 1.0, binds: float = 1000, pods: float = 200, extender_cpu: float = 0.2
) -> dict[str, Any]:
    """A digest of three runs with these figures."""
    runs = [[p99 * 0.5] * 296 + [p99] * 3 + [p99 * 2] for _ in range(3)]
    calls = digest.latencies({"filter": {"500": runs, "5000": runs}, "prioritize": {"500": runs}})
    rate = [Rate(binds, {"extender": 0.5, "rig": 0.1})] * 3
    twice = [Rate(500, {"rig": 0.2})] * 3
    alone = {"kube-scheduler": 3.0, "etcd": 1.0, "extender": 0.7, "rig": 9.0}
    plain = [Rate(250, alone)] * 3
    extended = [Rate(pods, alone | {"kube-scheduler": 3.8, "extender": extender_cpu})] * 3
    subject = {
        "name": "gpushare",
        "latency_ms": calls,
        "binds": {connections: digest.binds(rate, twice) for connections in ("1", "8", "32")},
        "writes_per_bind": 1.0,
        "end_to_end": {"1000": digest.end_to_end(plain, extended)},
        "ready_seconds": digest.spread([4, 6, 5]),
        "resident_mib": digest.spread([200.4, 300, 250]),
    }
    about = {
        "machine": "m",
        "kubernetes": "1.37.1",
        "code": "1234567 of 2026-01-02",
        "nodes": 5000,
        "gpus": 8,
        "pods": 50_000,
        "runs": 3,
    }
    return {**about, "subjects": [subject], "load_average": [("start", 0.5)]}


DOCS = Path(__file__).parents[3] / "docs"


RATE = "pods/s with extender / scheduler alone, 1000 nodes"
CPU = "CPU per pod with extender / scheduler alone, 1000 nodes: goal"


def verdicts(found: dict[str, Any]) -> dict[str, bool]:
    """Whether each bar is met."""
    return {one.what: one.met for one in bars.results(found["subjects"][0])}


def test_a_figure_that_equals_its_bar_meets_it() -> None:
    """At most and at least include the bar itself."""
    met = verdicts(figures(p99=1.5, binds=650, pods=200))
    assert met["filter p99, 500 node names"]
    assert met["binds over 8 connections / two writes"]
    assert met[f"{RATE}: goal"]
    assert met[CPU]
    assert met["start to ready"]
    assert all(met.values())


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({"p99": 1.6}, {"filter p99, 500 node names", "prioritize p99, 500 node names"}),
        (
            {"binds": 640},
            {f"binds over {count} connections / two writes" for count in (1, 8, 32)},
        ),
        ({"pods": 190}, {f"{RATE}: goal"}),
        ({"pods": 100}, {f"{RATE}: goal", RATE}),
        ({"extender_cpu": 0.3}, {CPU}),
    ],
)
def test_a_figure_that_misses_its_bar_is_marked(change: dict[str, float], missed: set[str]) -> None:
    """The page marks the same bars as not met as the figures do."""
    found = figures(**change)
    assert {what for what, met in verdicts(found).items() if not met} == missed
    page = report.page(found)
    assert page.count("**not met**") == len(missed)


def test_no_bar_is_a_rate_of_another_machine() -> None:
    """A machine ten times as fast, with and without the extender, gets the same results."""
    slow, fast = figures(), figures()
    subject = fast["subjects"][0]
    for pair in [*subject["binds"].values(), *subject["end_to_end"].values()]:
        for rate in (pair, *(each for each in pair.values() if isinstance(each, dict))):
            if "per_second" in rate:
                rate["per_second"] = {run: 10 * value for run, value in rate["per_second"].items()}
    rows = [list(bars.results(each["subjects"][0])) for each in (slow, fast)]
    assert rows[0] == rows[1]


def test_cpu_is_compared_without_the_benchmark_and_the_waiting_extender() -> None:
    """Alone 3 + 1 ms; with the extender 3.8 + 1 + 0.3 ms."""
    found = figures(extender_cpu=0.3)["subjects"][0]["end_to_end"]["1000"]
    assert bars.cpu_ratio(found) == round(5.1 / 4, 2)


def test_every_bar_is_explained() -> None:
    """Each row's words before the comma are the head of an explanation on the page."""
    explained = [part for what, _ in bars.MEANINGS for part in what.split(", ")]
    for what in verdicts(figures()):
        kind = re.sub(r"over \d+ connections", "over N connections", what.partition(",")[0])
        assert kind in explained, what


def test_what_was_not_measured_has_no_row() -> None:
    """Another extender is not started here: the page has no start time of it and no CPU."""
    found = figures()
    found["subjects"][0] |= {"ready_seconds": None, "resident_mib": None, "writes_per_bind": None}
    del found["subjects"][0]["latency_ms"]["filter"]["5000"]
    for rate in ("with", "plain"):
        found["subjects"][0]["end_to_end"]["1000"][rate]["cpu_ms"] = {"rig": 1.0}
    met = verdicts(found)
    unmeasured = {"start to ready", "filter p99, 5000 node names", "resident memory", CPU}
    assert not unmeasured & met.keys()


def test_medians_are_of_runs_and_the_slowest_call_of_all() -> None:
    """One bad run moves the greatest, not the median."""
    quick, slow = [1.0] * 100, [1.0] * 90 + [9.0] * 10
    at = digest.latencies({"filter": {"5": [quick, slow, quick]}})["filter"]["5"]
    assert at["p99"] == {"min": 1.0, "median": 1.0, "max": 9.0}
    assert at["max"] == 9.0


def test_the_page_shows_the_cpu_of_each_process() -> None:
    """A column for each process, empty where it had no part."""
    page = report.page(figures())
    assert "| connections | pods/s | extender, CPU ms per pod | benchmark, CPU ms per pod |" in page
    assert "| 8 | 1000 (1000 to 1000) | 0.5 | 0.1 |" in page
    assert "| 8, two writes | 500 (500 to 500) |  | 0.2 |" in page
    assert "| 1000, with extender | 200 (200 to 200) | 3.8 |" in page


def test_the_page_names_the_code_and_the_kubernetes_version() -> None:
    """A reader sees what the figures are of."""
    page = report.page(figures())
    assert "Kubernetes 1.37.1 (API server, kube-scheduler) on m." in page
    assert "Measured at commit 1234567 of 2026-01-02;" in page


def test_the_page_in_the_documentation_follows_from_its_figures() -> None:
    """docs/benchmarks-extender.md is what docs/benchmarks/extender.json makes."""
    found = json.loads((DOCS / "benchmarks" / "extender.json").read_text())
    assert report.page(found) == (DOCS / "benchmarks-extender.md").read_text()


def test_a_backlog_has_a_row_for_each_way_to_place_it() -> None:
    """Where it was measured, and no heading where it was not."""
    found = figures()
    assert "A backlog" not in report.page(found)
    rate = digest.backlog([Placed(90, {"kube-scheduler": 2.5}, 94)])
    found["subjects"][0]["backlog"] = {"5000": {"scheduler alone": rate}}
    assert (
        "| 5000, scheduler alone (94 nodes used) | 90.00 (90.00 to 90.00) | 2.5 |"
        in report.page(found)
    )
