"""``kubectl inspect gpu``: the original's tables of exclusive GPUs."""

import json

import pytest
from drawncluster import FakeCluster, Gpu
from invoking import Run


@pytest.fixture
def four(cluster: FakeCluster) -> FakeCluster:
    """Four GPUs, all joined through a host bridge as the 2019 plugin reports it, one in use."""
    have = {"aliyun.com/gpu": "4"}
    cluster.node("n", gpus=[Gpu(15)] * 4, resources=have)
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    links = {f"GPU_PHB_{a}_{b}": "Host PCI bridge" for a, b in pairs}
    annotations = cluster.items[0]["metadata"]["annotations"]
    annotations["GPU_TOPOLOGY"] = json.dumps(links)
    annotations["NODE_TYPE"] = "ecs.gn5-c8g1.14xlarge"
    group = {"ALIYUN_COM_GPU_GROUP": "1"}
    return cluster.pod("w", node="n", annotations=group, limits={"aliyun.com/gpu": "1"})


def test_summary(run: Run, four: FakeCluster) -> None:
    """GPUs there are and GPUs in use; nodes without GPUs are left out."""
    four.node("cpu", resources={"cpu": "4"})
    assert run("gpu", on=four).out == "NAME  ALLGPU  USEDGPU\nn     4       1\n"


def test_details(run: Run, four: FakeCluster) -> None:
    """The matrix shows used GPUs as X, the holder is named, and the legend follows."""
    lines = run("gpu", "-d", "n", on=four).out.splitlines()
    assert lines[:8] == [
        "gpu policy: best-effort",
        "-" * 40,
        "node name: n",
        "all gpu: 4",
        "used gpu: 1",
        "node type: ecs.gn5-c8g1.14xlarge",
        "gpu topolocy:",
        "      GPU0 GPU1 GPU2 GPU3",
    ]
    assert lines[8].split() == ["GPU0", "X", "X", "PHB", "PHB"]
    assert lines[9].split() == ["GPU1", "X", "X", "X", "X"]
    assert "GPU1: default/w" in lines
    assert "Legend:" in lines


def test_document(run: Run, four: FakeCluster) -> None:
    """Programs get links, holders and counts."""
    node = json.loads(run("gpu", "-o", "json", on=four).out)["items"][0]
    assert (node["allGpu"], node["usedGpu"]) == (4, 1)
    assert node["links"]["0-1"] == ["PHB"]
    assert node["gpus"][1]["holders"] == ["default/w"]


def test_no_gpus(run: Run, cluster: FakeCluster) -> None:
    """Without any GPU the command fails, as the original did."""
    cluster.node("cpu", resources={"cpu": "4"})
    outcome = run("gpu", on=cluster)
    assert (outcome.code, outcome.out) == (1, "")


def test_the_policy_is_that_of_the_extender(run: Run, four: FakeCluster) -> None:
    """The first line and the document name the topology policy that the extender is set to."""
    labels = {"app.kubernetes.io/component": "extender"}
    box = {"name": "extender", "args": ["--topology-policy=simple"]}
    four.pod("e", namespace="gpushare", metadata={"labels": labels}, spec={"containers": [box]})
    assert run("gpu", "-d", on=four).out.startswith("gpu policy: simple\n")
    assert json.loads(run("gpu", "-o", "json", on=four).out)["policy"] == "simple"


def test_nodes_without_pods_are_listed(run: Run, four: FakeCluster) -> None:
    """A node that offers exclusive GPUs is listed before a pod holds one, with any plugin."""
    four.node("free", gpus=[Gpu(15)] * 2, resources={"aliyun.com/gpu": "2"})
    four.node("old", resources={"aliyun.com/gpu": "8"})
    rows = run("gpu", "--no-headers", on=four).out.splitlines()
    assert [row.split() for row in rows] == [["free", "2", "0"], ["n", "4", "1"], ["old", "8", "0"]]


def test_gpus_of_a_pod_without_an_annotation_are_in_use(run: Run, four: FakeCluster) -> None:
    """A bound pod without an annotation counts with its request, and a note names it."""
    four.pod("lost", node="n", limits={"aliyun.com/gpu": "2"})
    note = (
        "note: n: 2 exclusive GPUs PENDING, bound to the node, GPU unknown: the scheduler extender"
        " did not place default/lost (see 'gpushare doctor')\n"
    )
    outcome = run("gpu", on=four)
    assert outcome.out == "NAME  ALLGPU  USEDGPU\nn     4       3\n"
    assert outcome.err == note
    details = run("gpu", "-d", on=four)
    assert "used gpu: 3" in details.out
    assert note in details.err
    node = json.loads(run("gpu", "-o", "json", on=four).out)["items"][0]
    assert (node["usedGpu"], node["pendingGpu"]) == (3, 2)
    assert run("top", "node", "--no-headers", on=four).out.split()[-1] == "3"


def test_inspect_notes_pending_exclusive_gpus(run: Run, cluster: FakeCluster) -> None:
    """``inspect`` of a node with shares names the pods whose exclusive GPUs are unknown."""
    cluster.node("s", gpus=[Gpu(15)] * 2)
    cluster.pod("lost", node="s", limits={"aliyun.com/gpu": "1"})
    assert "s: 1 exclusive GPU PENDING" in run("inspect", on=cluster).err
    pod = json.loads(run("inspect", "-o", "json", on=cluster).out)["items"][0]["pods"][0]
    assert pod["pendingGpus"] == 1
