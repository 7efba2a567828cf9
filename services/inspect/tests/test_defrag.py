"""``gpushare defrag``: the fewest pods to move so that GPUs become free."""

import json
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from invoking import Run
from test_defrag_apply import owned

WHOLE = {"aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2", "aliyun.com/gpu": "2"}
"""Resources of a node with two GPUs of 15 that offers shares and exclusive GPUs."""

ONE = {"aliyun.com/gpu-mem": "15", "aliyun.com/gpu-count": "1", "pods": "110"}
LIMITS = {"limits": {"aliyun.com/gpu-mem": "6"}}
BOX = {"name": "c"}


@pytest.fixture
def scattered(cluster: FakeCluster) -> FakeCluster:
    """Two nodes of two GPUs; every GPU holds something, n1 GPU 1 the fewest pods."""
    for name in ("n1", "n2"):
        cluster.node(name, gpus=[Gpu(15), Gpu(15)], resources=WHOLE)
    cluster.pod("a", 6, node="n1", index=0).pod("b", 4, node="n1", index=0)
    cluster.pod("c", 3, node="n1", index=1)
    cluster.pod("d", 8, node="n2", index=0).pod("e", 2, node="n2", index=0)
    return cluster.pod("f", 3, node="n2", index=1).pod("g", 3, node="n2", index=1)


def test_one_exclusive_gpu(run: Run, scattered: FakeCluster) -> None:
    """The GPU with the fewest pods is emptied, onto the fullest GPU that fits."""
    outcome = run("defrag", "--gpus", "1", on=scattered)
    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        "POD        FROM                       TO",
        "default/c  3 GiB on GPU 1 of node n1  3 GiB on GPU 0 of node n1",
        "moving 1 pod frees GPU 1 of node n1",
    ]


def test_two_whole_gpus_are_on_one_node(run: Run, scattered: FakeCluster) -> None:
    """GPUs of one node are freed together, for a pod cannot use GPUs of two."""
    document = json.loads(run("defrag", "--gpus", "2", "-o", "json", on=scattered).out)
    assert (document["node"], document["gpus"]) == ("n1", [0, 1])
    assert {move["name"] for move in document["moves"]} == {"a", "b", "c"}
    assert {move["toNode"] for move in document["moves"]} == {"n2"}


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"zone": "a"}},
        {"containers": [{**BOX, "resources": {**LIMITS, "requests": {"cpu": "3"}}}]},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
    ],
    ids=["node selector", "cpu", "not evaluated"],
)
def test_no_pod_is_moved_where_the_scheduler_would_not_place_it(
    run: Run, cluster: FakeCluster, spec: dict[str, Any]
) -> None:
    """Only n2 has free GPU memory; a pod that may not go there would stay pending."""
    for name, zone, cpu in (("n1", "a", "8"), ("n2", "b", "2")):
        cluster.node(name, gpus=[Gpu(15)], labels={"zone": zone}, resources=ONE | {"cpu": cpu})
    cluster.pod("p", 6, node="n1", index=0)
    cluster.pod("q", 6, node="n2", index=0)
    moved = run("defrag", "--units", "12", on=cluster)
    assert "moving 1 pod frees 12 GiB on GPU 0 of node n1" in moved.out
    cluster.items[-2]["spec"] |= spec
    cluster.items[-1]["metadata"]["annotations"] |= {"gpushare/defrag": "never"}
    outcome = run("defrag", "--units", "12", on=cluster)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.endswith("error: moving pods cannot free 12 GiB on one GPU\n")


def test_a_block_of_units(run: Run, scattered: FakeCluster) -> None:
    """One move frees 13 units; the pods that stay keep their places."""
    document = json.loads(run("defrag", "--units", "13", "-o", "json", on=scattered).out)
    assert len(document["moves"]) == 1
    assert document["conclusion"].startswith("moving 1 pod frees 13 GiB on GPU")


def test_units_of_another_size_are_named(run: Run, cluster: FakeCluster) -> None:
    """`--units` counts in units of the nodes, of 256 MiB here."""
    cluster.node("n", gpus=[Gpu(60)], resources=WHOLE, unit="256MiB")
    outcome = run("defrag", "--units", "8", on=cluster)
    free = "8 units of 256MiB on GPU 0 of node n is free already"
    assert outcome.out == f"nothing needs to move: {free}\n"


def test_nothing_to_do(run: Run, scattered: FakeCluster) -> None:
    """Room that is there already needs no move."""
    outcome = run("defrag", "--units", "10", on=scattered)
    assert outcome.out == "nothing needs to move: 10 GiB on GPU 1 of node n1 is free already\n"


def test_no_plan(run: Run, cluster: FakeCluster) -> None:
    """Where the pods have nowhere to go, the answer is no."""
    cluster.node("n", gpus=[Gpu(15), Gpu(15)], resources=WHOLE)
    cluster.pod("a", 8, node="n", index=0).pod("b", 8, node="n", index=1)
    outcome = run("defrag", "--gpus", "1", on=cluster)
    assert outcome == (1, "", "error: moving pods cannot free 1 GPU on one node\n")


def test_exclusive_gpus_of_a_node_that_offers_shares_alone(run: Run, cluster: FakeCluster) -> None:
    """No pod gets them, however free they are, so no plan is made for them."""
    cluster.node("n", gpus=[Gpu(15), Gpu(15)])
    outcome = run("defrag", "--gpus", "1", on=cluster)
    words = "error: no ready and schedulable node offers aliyun.com/gpu\n"
    assert outcome == (1, "", words)


def test_units_that_are_kept_for_a_pod_on_an_unknown_gpu(run: Run, cluster: FakeCluster) -> None:
    """They are not free, and no move frees them."""
    cluster.node("n", gpus=[Gpu(15)]).pod("stray", 7, node="n")
    assert run("defrag", "--units", "14", on=cluster).code == 1
    assert "8 GiB on GPU 0 of node n is free" in run("defrag", "--units", "8", on=cluster).out


@pytest.mark.parametrize(
    "metadata",
    [
        owned("a", "DaemonSet"),
        {"annotations": {"gpushare/defrag": "never"}},
        {"labels": {"gpu-topology": "g", "gpu-topology-replica": "2"}},
        {"labels": {"leaderworkerset.sigs.k8s.io/name": "llm"}},
    ],
    ids=["DaemonSet", "never", "gang", "LeaderWorkerSet"],
)
def test_pods_that_cannot_leave_alone_are_not_moved(
    run: Run, cluster: FakeCluster, metadata: dict[str, Any]
) -> None:
    """A DaemonSet would create its pod again on the same node, and the others have a say."""
    cluster.node("n1", gpus=[Gpu(15)]).node("n2", gpus=[Gpu(8)])
    cluster.pod("a", 8, node="n1", index=0)
    assert run("defrag", "--units", "14", on=cluster).code == 0
    pod = cluster.items[-1]["metadata"]
    pod |= {**metadata, "annotations": pod["annotations"] | metadata.get("annotations", {})}
    assert run("defrag", "--units", "14", on=cluster).code == 1


def test_exclusive_gpus_are_in_the_document(run: Run, cluster: FakeCluster) -> None:
    """A move names them by their index, as the table does."""
    for name in ("n1", "n2"):
        cluster.node(name, gpus=[Gpu(15), Gpu(15)], resources=WHOLE)
    placed = {"ALIYUN_COM_GPU_GROUP": "0"}
    cluster.pod("x", node="n1", limits={"aliyun.com/gpu": "1"}, annotations=placed)
    cluster.pod("y", 3, node="n2", index=0)
    (move,) = json.loads(run("defrag", "--gpus", "2", "-o", "json", on=cluster).out)["moves"]
    assert (move["fromGpus"], move["toGpus"]) == ({"0": 0}, {"1": 0})


@pytest.mark.parametrize("flags", [(), ("--units", "15")], ids=["waiting pod", "goal"])
def test_each_place_is_in_the_unit_of_its_node(
    run: Run, cluster: FakeCluster, flags: tuple[str, ...]
) -> None:
    """Eight units are less memory where a unit is smaller."""
    cluster.node("n1", gpus=[Gpu(15), Gpu(15)]).node("n2", gpus=[Gpu(60)], unit="256MiB")
    cluster.pod("a", 14, node="n1", index=0).pod("c", 50, node="n2", index=0)
    cluster.pod("b", 8, node="n1", index=1, metadata=owned("b")).pod("w", 15, phase="Pending")
    out = run("defrag", *flags, on=cluster).out
    assert "8 GiB on GPU 1 of node n1" in out
    assert "8 GiB on GPU 0 of node n2" not in out
    assert "on GPU 0 of node n2" in out


def test_what_cannot_be_freed_is_named(run: Run, scattered: FakeCluster) -> None:
    """The amount with its unit, and the nodes that were looked at."""
    assert run("defrag", "--units", "99", on=scattered).err == (
        "error: moving pods cannot free 99 GiB on one GPU\n"
    )
    assert run("defrag", "--gpus", "9", "-l", "zone=none", on=scattered).err == (
        "error: no node that matches --selector zone=none is ready and schedulable\n"
    )


def test_nothing_waits(run: Run, cluster: FakeCluster) -> None:
    """No plan is needed where no pod waits: the sentence names no pod."""
    outcome = run("defrag", on=cluster.node("n", gpus=[Gpu(15)]))
    assert outcome.out == "nothing is evicted: no pod waits for GPUs\n"


def test_nodes_that_take_no_pods_play_no_part(run: Run, cluster: FakeCluster) -> None:
    """Neither is their room offered nor are pods moved there."""
    cluster.node("free", gpus=[Gpu(15)], cordoned=True)
    cluster.node("n", gpus=[Gpu(15)]).pod("a", 8, node="n", index=0)
    assert run("defrag", "--gpus", "1", on=cluster).code == 1


def test_a_second_choice_is_found(run: Run, cluster: FakeCluster) -> None:
    """Where the largest pod has no other place, as many smaller ones may have one."""
    cluster.node("n1", gpus=[Gpu(20)]).node("n2", gpus=[Gpu(6)])
    cluster.pod("large", 8, node="n1", index=0).pod("small", 6, node="n1", index=0)
    document = json.loads(run("defrag", "--units", "12", "-o", "json", on=cluster).out)
    assert [move["name"] for move in document["moves"]] == ["small"]


@pytest.mark.parametrize("flags", [("--gpus=1", "--units=1"), ("--gpus=-1",)])
def test_one_goal_at_most(run: Run, scattered: FakeCluster, flags: tuple[str, ...]) -> None:
    """Two goals, or less than none, are a usage error."""
    assert run("defrag", *flags, on=scattered).code == 2
