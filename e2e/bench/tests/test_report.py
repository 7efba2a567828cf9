"""The report says of every figure whether its bar is met, and nothing of what was not measured."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench import bars, digest, report
from bench.binds import Rate


def figures(*, p99: float = 1.0, binds: float = 1000, pods: float = 200) -> dict[str, Any]:
    """A digest of three runs with these figures."""
    runs = [[p99 * 0.5] * 296 + [p99] * 3 + [p99 * 2] for _ in range(3)]
    calls = digest.latencies({"filter": {"500": runs, "5000": runs}, "prioritize": {"500": runs}})
    rate = [Rate(binds, {"extender": 0.5, "rig": 0.1})] * 3
    twice = [Rate(500, {"rig": 0.2})] * 3
    plain, extended = [Rate(250, {"rig": 0.2})] * 3, [Rate(pods, {"rig": 0.3})] * 3
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
        "code": "1234567 of 2026-01-02",
        "nodes": 5000,
        "cards": 8,
        "pods": 50_000,
        "runs": 3,
    }
    return {**about, "subjects": [subject], "load_average": [("start", 0.5)]}


DOCS = Path(__file__).parents[3] / "docs"


def verdicts(found: dict[str, Any]) -> dict[str, bool]:
    """Whether each bar is met."""
    return {one.what: one.met for one in bars.judge(found["subjects"][0])}


def test_a_bar_is_met_at_its_very_figure() -> None:
    """At most and at least include the bar itself."""
    met = verdicts(figures(p99=1.5, binds=697, pods=200))
    assert met["filter p99, 500 names"]
    assert met["binds/s over 8 connections"]
    assert met["of the same scheduler alone, 1000 nodes: the aim"]
    assert met["start to ready"]


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({"p99": 1.6}, {"filter p99, 500 names", "prioritize p99, 500 names"}),
        ({"binds": 690}, {"binds/s over 8 connections"}),
        (
            {"pods": 180},
            {
                "pods/s through kube-scheduler, 1000 nodes",
                "of the same scheduler alone, 1000 nodes: the aim",
            },
        ),
    ],
)
def test_what_misses_its_bar_is_said_so(change: dict[str, float], missed: set[str]) -> None:
    """The words are worked out from the figures."""
    found = figures(**change)
    assert {what for what, met in verdicts(found).items() if not met} == missed
    page = report.page(found)
    assert page.count("**not met**") == len(missed)


def test_what_was_not_measured_has_no_row() -> None:
    """Another extender is not started here: nothing is said of its start."""
    found = figures()
    found["subjects"][0] |= {"ready_seconds": None, "resident_mib": None, "writes_per_bind": None}
    del found["subjects"][0]["latency_ms"]["filter"]["5000"]
    met = verdicts(found)
    assert not {"start to ready", "filter p99, 5000 names", "resident memory"} & met.keys()


def test_medians_are_of_runs_and_the_slowest_call_of_all() -> None:
    """One bad run moves the greatest, not the median."""
    quick, slow = [1.0] * 100, [1.0] * 90 + [9.0] * 10
    at = digest.latencies({"filter": {"5": [quick, slow, quick]}})["filter"]["5"]
    assert at["p99"] == {"min": 1.0, "median": 1.0, "max": 9.0}
    assert at["max"] == 9.0


def test_the_page_shows_what_each_process_spends() -> None:
    """A column for every process, empty where it had no part."""
    page = report.page(figures())
    assert "| connections | a second | extender, ms CPU | rig, ms CPU |" in page
    assert "| 8 | 1000 (1000 to 1000) | 0.5 | 0.1 |" in page
    assert "| 1000, with extender | 200 (200 to 200) | 0.3 |" in page


def test_binds_stand_beside_the_originals_two_writes() -> None:
    """How many times as fast a bind is, and what two writes take, by connections."""
    page = report.page(figures(binds=650))
    assert "so many times as fast: 1.3 over 1, 1.3 over 8, 1.3 over 32 connections." in " ".join(
        page.split()
    )
    assert "| 8, two writes | 500 (500 to 500) |" in page


def test_the_page_names_the_code_that_was_measured() -> None:
    """Figures are of one commit, and a reader sees which."""
    assert "Measured at commit 1234567 of 2026-01-02;" in report.page(figures())


def test_the_page_in_the_documentation_follows_from_its_figures() -> None:
    """docs/benchmarks-extender.md is what docs/benchmarks/extender.json makes."""
    found = json.loads((DOCS / "benchmarks" / "extender.json").read_text())
    assert report.page(found) == (DOCS / "benchmarks-extender.md").read_text()
