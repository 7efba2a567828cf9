"""A later run is worse where a figure is more than 20 % beyond the recorded one."""

import json
from pathlib import Path
from typing import Any

import pytest

from scale import figures, page

DOCS = Path(__file__).parents[3] / "docs"
RECORDED = DOCS / "benchmarks" / "scale.json"


def found(*, p99: float = 2.0, ready: float = 5.0, rate: float = 30.0, mib: float = 400) -> Any:
    """Figures of a run."""
    spread = {"min": ready, "median": ready, "max": ready}
    at = {"p50": {"median": 1.0}, "p99": {"median": p99}, "max": 9.0}
    return {
        "ready_seconds": spread,
        "latency_ms": {"filter": {"10000": at}},
        "pods_per_second": rate,
        "resident_mib": {"extender": mib},
    }


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"p99": 2.41}, "filter p99, 10000 node names"),
        ({"ready": 6.1}, "start of the extender to ready"),
        ({"rate": 24.9}, "pods through kube-scheduler"),
        ({"mib": 481}, "resident memory of extender"),
    ],
)
def test_a_figure_that_is_more_than_a_fifth_worse_is_reported(
    change: dict[str, float], name: str
) -> None:
    """One sentence, for that figure only."""
    sentences = figures.worse(found(), found(**change))
    assert [sentence.partition(":")[0] for sentence in sentences] == [name]


def test_a_figure_within_a_fifth_is_accepted() -> None:
    """Also a figure that is much better."""
    assert figures.worse(found(), found(p99=2.4, ready=6, rate=25, mib=480)) == []
    assert figures.worse(found(), found(p99=0.1, ready=1, rate=900, mib=10)) == []


def test_the_page_is_that_of_the_recorded_figures() -> None:
    """Nobody edits the page by hand."""
    recorded = json.loads(RECORDED.read_text())
    assert (DOCS / "benchmarks-scale.md").read_text() == page.text(recorded)
