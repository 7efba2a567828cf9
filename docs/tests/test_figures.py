"""Figures that pages state in words are those of the tables that they point at."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpucore.node.isolation.cdi import Support, support_of
from gpuextender.nomination.ends import KEPT_BACKLOG_SECONDS, KEPT_SECONDS
from gpuextender.nomination.nominator import MOST_ON_A_NODE
from gpuextender.settings import ExtenderSettings

DOCS = Path(__file__).parents[1]
UNMEASURED = re.compile(
    r"(not|not been|been) measured\s+(on\s+hardware|by\s+this\s+project|here)\s+yet"
    r"|No run on hardware has been recorded yet|on real GPUs: nothing so far"
)
"""Words that go once docs/isolation.md has figures."""


def test_the_gain_over_binpack_is_the_range_of_the_table() -> None:
    """What the comparison reports of the fragmentation policy follows from every mix replayed."""
    table = (DOCS / "benchmarks-core.md").read_text().partition("## Replay of a trace")[2]
    gains = [-float(text) for text in re.findall(r"\| (-\d+\.\d) % \|", table)]
    stated = re.search(r"leaves (\S+) to (\S+) % fewer", (DOCS / "comparison.md").read_text())
    assert stated is not None
    assert (float(stated[1]), float(stated[2])) == (min(gains), max(gains))


def test_the_differences_of_the_table_follow_from_its_runs() -> None:
    """Each row's difference is that of the means of its three runs."""
    text = (DOCS / "benchmarks-core.md").read_text()
    numbers = r"(\d+\.\d), (\d+\.\d), (\d+\.\d)"
    rows = re.findall(rf"\| \w+ \| {numbers} \| {numbers} \| (-\d+\.\d) % \|", text)
    assert len(rows) == 6
    for *runs, difference in rows:
        binpack, other = (sum(map(float, part)) for part in (runs[:3], runs[3:]))
        assert abs(100 * (other / binpack - 1) - float(difference)) < 0.06


def extender() -> dict[str, Any]:
    """Figures of the extender that the page benchmarks-extender.md shows."""
    figures = json.loads((DOCS / "benchmarks" / "extender.json").read_text())
    found: dict[str, Any] = figures["subjects"][0]
    return found


def test_the_start_time_of_the_decision_is_the_measured_one() -> None:
    """The decision for Python states what a start takes."""
    text = (DOCS / "adr" / "0005-python-with-narrow-decoders.md").read_text()
    assert f"{extender()['ready_seconds']['median']:.1f} s with 5,000 nodes" in text


def test_the_latencies_of_the_runbook_are_the_measured_ones() -> None:
    """The runbook of a slow extender states what is usual."""
    text = (DOCS / "runbooks" / "GpushareExtenderSlow.md").read_text()
    usual = extender()["latency_ms"]
    for verb in ("filter", "prioritize"):
        assert f"{usual[verb]['5000']['p99']['median']:.1f} ms for `{verb}`" in text


def test_the_memory_of_the_runbook_is_the_measured_one() -> None:
    """The runbook of a container near its limit states what is usual."""
    text = (DOCS / "runbooks" / "GpushareMemoryNearLimit.md").read_text()
    assert f"{extender()['resident_mib']['median']:.0f} MiB with 5,000 nodes" in text


ROWS = {
    "kube-scheduler alone": "scheduler alone",
    "`nominate: off`, `candidates: 0`, a sample of nodes": "all candidates, no nominations",
    "a sample of nodes": "best candidate of a sample",
    "a sample of nodes, `nominate: backlog`": "best candidate of a sample, backlog nominated",
    "100 nodes (`percentageOfNodesToScore: 1`)": "best candidate of 100 nodes",
    "all nodes": "best candidate of all nodes",
    "all nodes, `nominate: backlog`": "best candidate of all nodes, backlog nominated",
}
"""The first cell of a row of the table in nomination.md, and the name of its measurement."""


def backlog_line(shown: str, name: str) -> str:
    """The row of the table: for 1,000 and 5,000 nodes pods/s, the ratio, and CPU."""
    cells = [shown]
    for nodes in ("1000", "5000"):
        rows = extender()["backlog"][nodes]
        rate, alone = (rows[each]["per_second"]["median"] for each in (name, "scheduler alone"))
        cpu = sum(used for process, used in rows[name]["cpu_ms"].items() if process != "rig")
        cells += [f"{rate:.0f}", f"{rate / alone:.2f}", f"{cpu:.1f}"]
    return f"| {' | '.join(cells)} |"


@pytest.mark.parametrize(("shown", "name"), ROWS.items())
def test_the_figures_of_a_backlog_are_the_measured_ones(shown: str, name: str) -> None:
    """The page about nominations compares the ways to place a backlog."""
    assert backlog_line(shown, name) in (DOCS / "nomination.md").read_text().splitlines()


def test_pages_call_isolation_unmeasured_as_long_as_it_is() -> None:
    """Once the suite ran on hardware, no page goes on saying that nothing was measured."""
    pages = {DOCS.parent / "README.md", *DOCS.rglob("*.md")} - {DOCS / "isolation.md"}
    found = sorted(page.name for page in pages if UNMEASURED.search(page.read_text()))
    measured = "## No figures yet" not in (DOCS / "isolation.md").read_text()
    assert measured != bool(found), found


def test_the_limits_of_nominations_are_those_of_the_extender() -> None:
    """How long and how many, on the page about nominations."""
    text = (DOCS / "nomination.md").read_text()
    most = ExtenderSettings.model_fields["nominate_limit"].default
    assert f"at most {most:,} (flag `--nominate-limit`)" in text
    assert f"A node with {MOST_ON_A_NODE} nominated pods" in text
    kept = f"after {KEPT_SECONDS:.0f} s ({KEPT_BACKLOG_SECONDS:.0f} s with `backlog`, and for pods"
    assert kept in text


@pytest.mark.parametrize("page", ["values.md", "guides/mps-operators.md"])
def test_pages_name_the_runtimes_on_which_limits_are_delivered_by_cdi(page: str) -> None:
    """The oldest versions with which `devicePlugin.cdi.enabled=auto` uses it."""
    text = (DOCS / page).read_text()
    assert "kubelet 1.28 or later" in text
    assert "containerd 1.7 or CRI-O 1.28" in text
    assert "enable_cdi = true" in text
    versions = ("containerd://1.7.0", "cri-o://1.28.0", "containerd://1.6.9", "cri-o://1.27.9")
    found = [support_of("v1.28.0", runtime) for runtime in versions]
    assert found == [Support.POSSIBLE, Support.POSSIBLE, Support.NONE, Support.NONE]
    assert support_of("v1.27.9", "containerd://2.0.0") is Support.NONE
    assert "DevicePluginCDIDevices" in text
    assert support_of("v1.29.0", "cri-o://1.28.0") is Support.CERTAIN
