"""Amounts of memory: where the unit is known, outputs name it and never write "units"."""

import json
import re
from pathlib import Path
from typing import Final

import pytest
from drawncluster import FakeCluster, Gpu
from invoking import Run
from test_golden import COMMANDS, FORMS, POD
from test_golden import everything as nodes_of_every_kind
from test_pages_golden import PAGES, served
from test_pages_golden import everything as pages_of_every_kind

pytestmark = pytest.mark.slow

_DOCS: Final = Path(__file__).parents[3] / "docs" / "examples"
EXAMPLES: Final = sorted(path for path in _DOCS.glob("*.json") if b'"items"' in path.read_bytes())
ABOUT_THE_UNIT: Final = {
    r'"?unit"?: ': "the field of documents that names the unit",
    r"\bunit GiB( \(derived from its figures\))?;": "the unit of a node, in the facts of its page",
    r"(?i)check\s+the\s+unit \(GiB or MiB\)": "advice: the amount may be meant in another unit",
    r"IPADDRESS +UNIT\b": "the column with the unit of each node",
    r"GPUs of [0-9]+ units, assumed to be MiB": "the check that nodes publish it",
    r"\b(unit-published|one-unit)\b": "names of checks of doctor",
    r"publishes\s+its(\s+memory)?\s+unit": "the check that nodes publish it",
    r"use one memory unit": "the check that nodes agree on it",
}
"""What may name units, and why it does."""
UNITS: Final = re.compile(r"\bunits?\b", re.IGNORECASE)
OTHERS: Final = {
    "top-gpu": ("top", "gpu"),
    "explain-gang": ("explain", "pod", "member"),
    "explain-burst": ("explain", "pod", "burst"),
    "explain-unplaced": ("explain", "pod", "stray"),
    "pending-sorted": ("pending", "-A", "--sort-by", "reason"),
    "usage-own": ("usage",),
    "defrag-memory": ("defrag", "--units", "14"),
    "top-node-r": ("top", "node", "-d"),
}
"""Commands beside those of the golden files."""


def naming_units(text: str) -> list[str]:
    """The lines that name units without a reason."""
    for allowed in ABOUT_THE_UNIT:
        text = re.sub(allowed, "", text)
    return [line.strip() for line in text.splitlines() if UNITS.search(line)]


def many() -> FakeCluster:
    """The cluster of the golden files, with a gang that lacks room and a pod with a limit."""
    cluster = nodes_of_every_kind()
    gang = {"name": "g", "min-available": "4"}
    labels = {f"pod-group.scheduling.sigs.k8s.io/{key}": value for key, value in gang.items()}
    for name in ("member", "member-2", "member-3", "member-4"):
        cluster.pod(name, 14, phase="Pending", metadata={"labels": labels})
    return cluster.pod("burst", 2, phase="Pending", annotations={"gpushare/memory-limit": "4"})


def in_mib() -> FakeCluster:
    """Nodes that count in MiB, one of which does not publish it; one pod waits."""
    cluster = FakeCluster().node("new", gpus=[Gpu(15360), Gpu(15360)], unit="MiB")
    cluster.node("old", total=30720, count=2).pod("web-0", 3000, node="new", index=0)
    cluster.pod("large", 40_000, phase="Pending", namespace="research")
    cluster.pod("burst", 2000, phase="Pending", annotations={"gpushare/memory-limit": "4000"})
    return cluster.pod("member", 14_000, phase="Pending").pod("stray", 2000, node="old")


@pytest.mark.parametrize("made", [many, in_mib])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", sorted({**COMMANDS, **OTHERS}.keys() - {"cost", "node-template"}))
def test_commands_name_the_unit(
    run: Run, manifest: Path, name: str, form: str, made: type[FakeCluster]
) -> None:
    """Every command in every form, on nodes in GiB and in MiB."""
    manifest.write_text(POD)
    words = {**COMMANDS, **OTHERS}[name]
    output = [] if name == "top-gpu" else ["-o", form]
    line = [str(manifest) if word == "POD" else word for word in words]
    outcome = run(*line, *output, on=made())
    assert naming_units(outcome.out + outcome.err) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("name", ["inspect-d", "pending", "usage", "usage-node", "doctor"])
def test_commands_name_the_unit_of_the_examples(run: Run, path: Path, name: str) -> None:
    """The snapshots of the documentation."""
    outcome = run(*COMMANDS[name], "--snapshot", str(path))
    assert naming_units(outcome.out + outcome.err) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_explanations_name_the_unit_of_the_examples(run: Run, path: Path) -> None:
    """Every pod of the snapshots of the documentation."""
    items = json.loads(path.read_bytes())["items"]
    for pod in (item["metadata"] for item in items if item["kind"] == "Pod"):
        name = f"{pod.get('namespace', 'default')}/{pod['name']}"
        outcome = run("explain", "pod", name, "-o", "yaml", "--snapshot", str(path))
        assert naming_units(outcome.out + outcome.err) == []


@pytest.mark.parametrize("address", PAGES.values(), ids=PAGES)
def test_pages_name_the_unit(address: str) -> None:
    """Every page of the dashboard."""
    for browser in served(pages_of_every_kind()):
        assert naming_units(browser.get(address).text) == []


def test_units_are_named_where_nodes_differ(run: Run) -> None:
    """A pod's amount has another size on each node then, so that no unit would be right."""
    cluster = FakeCluster().node("a", gpus=[Gpu(15)]).node("b", gpus=[Gpu(15360)], unit="MiB")
    cluster.pod("w", 20, phase="Pending").pod("x", 200_000, phase="Pending")
    out = run("pending", on=cluster).out
    assert "20 units of memory" in out


def test_a_size_of_its_own_is_stated(run: Run) -> None:
    """With 256 MiB a unit, neither GiB nor MiB counts what the pod requests."""
    cluster = FakeCluster().node("a", gpus=[Gpu(60)], unit="256MiB")
    out = run("explain", "pod", "w", on=cluster.pod("w", 20, node="a", index=0)).out
    assert "Requests:   20 units of 256MiB of memory on one GPU" in out
    assert "alone; 40 of 60 units of 256MiB free" in out
