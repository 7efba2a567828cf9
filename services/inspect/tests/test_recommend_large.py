"""``gpushare recommend`` for 1,000 workloads, from a file."""

import json
import time
from pathlib import Path

import pytest
from invoking import Run
from measuredworkloads import history, written

from gpucore.sizing.usage_history import UsageHistory

pytestmark = pytest.mark.slow

WORKLOADS, NODES, SECONDS = 1000, 4, 2.0


@pytest.fixture
def large(tmp_path: Path) -> str:
    """Histories of 100 samples in many buckets, each workload on two of four nodes."""
    found: list[list[UsageHistory]] = [[] for _ in range(NODES)]
    for number in range(WORKLOADS):
        used = [0.1 + (number * 7 + sample * 13) % 300 / 10 for sample in range(100)]
        for node in (number % NODES, (number + 1) % NODES):
            found[node].append(history(f"w-{number}", *used, requested=40))
    return str(written(tmp_path / "history", *found))


def test_every_workload_of_a_large_cluster_has_a_recommendation(run: Run, large: str) -> None:
    """1,000 workloads, whose histories of two nodes are one."""
    document = json.loads(run("recommend", "--history", large, "-o", "json").out)
    assert len(document["items"]) == WORKLOADS
    assert {item["pods"] for item in document["items"]} == {6}


@pytest.mark.budget
def test_a_thousand_workloads_take_less_than_two_seconds(run: Run, large: str) -> None:
    """From the call to the end of the table."""
    began = time.perf_counter()
    outcome = run("recommend", "--history", large)
    assert time.perf_counter() - began < SECONDS
    assert len(outcome.out.splitlines()) == WORKLOADS + 1
