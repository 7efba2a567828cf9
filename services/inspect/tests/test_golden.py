"""Every command in every form on one cluster, to the byte.

``UPDATE_GOLDEN=1 pytest services/inspect/tests/test_golden.py`` writes the files anew; read the
difference before you keep it.
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import fakeprometheus
import measuredworkloads
import pytest
import yaml
from drawncluster import FakeCluster, Gpu
from invoking import Run

from gpuinspect.documents import schema
from gpuinspect.sources.prometheus import GPU_HOURS
from gpuinspect.terminal import ages

GOLDEN = Path(__file__).parent / "golden"
SCHEMA = Path(__file__).parents[1] / "schema" / "gpushare-v1.json"
FORMS = ("table", "wide", "json", "yaml", "name")
POD = """
kind: Pod
metadata: {name: new}
spec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: 12}}}]}
"""
COMMANDS = {
    "inspect": ("inspect",),
    "inspect-d": ("inspect", "-d"),
    "gpu": ("gpu",),
    "gpu-d": ("gpu", "-d"),
    "top-node": ("top", "node"),
    "top-node-d": ("top", "node", "-d"),
    "top-node-s": ("top", "node", "-s"),
    "top-node-s-d": ("top", "node", "-s", "-d"),
    "explain-waiting": ("explain", "pod", "research/large"),
    "explain-placed": ("explain", "pod", "web-0"),
    "explain-workload": ("explain", "deploy/research/web"),
    "pending": ("pending", "-A"),
    "usage": ("usage", "-A"),
    "usage-label": ("usage", "-A", "--by", "label:team"),
    "usage-model": ("usage", "--by", "model"),
    "usage-node": ("usage", "--by", "node"),
    "whatif": ("whatif", "-f", "POD", "--replicas", "8"),
    "mix": ("mix",),
    "defrag": ("defrag", "--gpus", "2", "-l", "zone=a"),
    "defrag-evictions": ("defrag",),
    "doctor": ("doctor",),
    "recommend": ("recommend", "-A", "--history", "HISTORY"),
    "recommend-whatif": ("recommend", "-A", "--whatif", "--price", "2", "--history", "HISTORY"),
    "cost": ("cost", "-A", "--price", "2.5", "--prometheus", "PROMETHEUS"),
    "node-template": ("node-template", "gpu-a"),
}

HOURS = {
    GPU_HOURS.format(series="namespace:gpushare_allocated_gpus:sum", since="7d"): {
        "research": "100",
        "web": "12.25",
    },
    GPU_HOURS.format(series="namespace:gpushare_used_gpus:sum", since="7d"): {"web": "3.5"},
}


def everything() -> FakeCluster:
    """Nodes and pods of every kind there is."""
    cluster = FakeCluster()
    zone = {"zone": "a"}
    cluster.node("gpu-a", address="10.0.0.1", gpus=[Gpu(15), Gpu(15)], labels=zone)
    amounts = {"gpu-mem": "30", "gpu-count": "2", "gpu": "2"}
    both = {f"aliyun.com/{name}": amount for name, amount in amounts.items()}
    pair = [Gpu(15), Gpu(15)]
    cluster.node("gpu-b", address="10.0.0.2", gpus=pair, labels=zone, resources=both)
    sick = [Gpu(39, "NVIDIA A100-PCIE-40GB", mode="mps"), Gpu(39, healthy=False)]
    cluster.node("gpu-c", gpus=sick, cordoned=True, ready=False)
    cluster.node("old", address="10.0.0.4", total=31, count=2)
    cluster.node("plain", resources={"cpu": "8"}, labels={"gpushare": "false"})
    cluster.pod("web-0", 3, node="gpu-a", index=0).pod("web-1", 9, node="gpu-a", index=1)
    cluster.pod("web-2", (2, 4), node="gpu-b", index=1).pod("stray", 2, node="old")
    cluster.pod("odd", 2, node="old", index="x", namespace="research")
    condition = {"type": "PodScheduled", "status": "False", "message": "0/5 nodes are available"}
    owner = {"kind": "ReplicaSet", "name": "web-7f8d", "controller": True}
    owned = {"ownerReferences": [owner], "labels": {"pod-template-hash": "7f8d", "team": "vision"}}
    pending = {"status": {"conditions": [condition]}, "metadata": owned}
    cluster.pod("large", 40, phase="Pending", namespace="research", **pending)
    return cluster


@pytest.fixture(autouse=True)
def an_hour_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is an hour after the pods were created."""
    monkeypatch.setattr(ages, "now", lambda: datetime(2026, 1, 2, 4, 4, 5, tzinfo=UTC))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", COMMANDS)
def test_output(run: Run, tmp_path: Path, name: str, form: str) -> None:
    """What is printed is what the golden file holds."""
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(POD)
    with fakeprometheus.serving(HOURS) as url:
        measured = measuredworkloads.written(
            tmp_path / "history", measuredworkloads.of_everything()
        )
        given = {"POD": str(manifest), "PROMETHEUS": url, "HISTORY": str(measured)}
        line = [given.get(word, word) for word in COMMANDS[name]]
        # `cost` reads Prometheus only, and takes no snapshot.
        outcome = run(*line, "-o", form, on=None if name == "cost" else everything())
    path = GOLDEN / "forms" / f"{name}.{form}"
    if "UPDATE_GOLDEN" in os.environ:
        path.parent.mkdir(exist_ok=True)
        path.write_text(outcome.out, encoding="utf-8")
    assert outcome.out == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "cost"])
def test_a_snapshot_gives_the_same_answer(run: Run, tmp_path: Path, name: str) -> None:
    """No command misses what ``gpushare snapshot`` leaves out."""
    manifest, path = tmp_path / "pod.yaml", tmp_path / "cluster.json"
    manifest.write_text(POD)
    measured = measuredworkloads.written(tmp_path / "history", measuredworkloads.of_everything())
    assert run("snapshot", str(path), on=everything()).code == 0
    given = {"POD": str(manifest), "HISTORY": str(measured)}
    line = [given.get(word, word) for word in COMMANDS[name]]
    expected = (GOLDEN / "forms" / f"{name}.json").read_text(encoding="utf-8")
    assert run(*line, "-o", "json", "--snapshot", str(path)).out == expected


@pytest.mark.parametrize("name", COMMANDS)
def test_both_notations_hold_one_document(name: str) -> None:
    """JSON and YAML are the same document, of a known kind and version."""
    document = json.loads((GOLDEN / "forms" / f"{name}.json").read_text())
    assert document == yaml.safe_load((GOLDEN / "forms" / f"{name}.yaml").read_text())
    assert document["apiVersion"] == "gpushare/v1"
    assert document["kind"] in schema.DOCUMENTS


def test_the_schema_is_the_written_one() -> None:
    """``python -m gpuinspect.documents.schema`` prints the file that the docs refer to."""
    if "UPDATE_GOLDEN" in os.environ:
        SCHEMA.write_text(schema.text(), encoding="utf-8")
    assert schema.text() == SCHEMA.read_text(encoding="utf-8")


def test_every_kind_has_a_golden_file() -> None:
    """No kind of document is without an example."""
    kinds = {json.loads(path.read_text())["kind"] for path in (GOLDEN / "forms").glob("*.json")}
    assert kinds == set(schema.DOCUMENTS)
