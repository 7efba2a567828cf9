"""``gpushare usage``: how figures of pods, GPUs and quotas are added, and in which order."""

import json
from typing import Any

import fakeprometheus
import pytest
from drawncluster import FakeCluster, Gpu
from invoking import Run

from gpuinspect.sources.prometheus import POD_USED_BYTES

GIB = 1 << 30
COUNT = {"aliyun.com/gpu": "1"}


def groups(run: Run, cluster: FakeCluster, *flags: str) -> list[dict[str, Any]]:
    """The groups in order."""
    found = run("usage", *flags, "-o", "json", on=cluster)
    assert found.code == 0, found.err
    items: list[dict[str, Any]] = json.loads(found.out)["items"]
    return items


def quota(name: str, units: str, namespace: str = "default") -> dict[str, Any]:
    """A ResourceQuota on GPU memory."""
    metadata = {"name": name, "namespace": namespace}
    spec = {"hard": {"requests.aliyun.com/gpu-mem": units}}
    return {"kind": "ResourceQuota", "metadata": metadata, "spec": spec}


def labelled(team: str) -> dict[str, Any]:
    """Metadata of a pod."""
    return {"labels": {"team": team}}


@pytest.fixture
def node(cluster: FakeCluster) -> FakeCluster:
    """A node of three GPUs."""
    have = {"aliyun.com/gpu": "3", "aliyun.com/gpu-mem": "45", "aliyun.com/gpu-count": "3"}
    gpus = [Gpu(15), Gpu(15), Gpu(15, "NVIDIA L4")]
    return cluster.node("n", gpus=gpus, resources=have)


@pytest.mark.parametrize("amounts", [("20", "12", "16"), ("12", "20"), ("16", "20", "12")])
def test_of_several_quotas_the_lowest_holds(
    run: Run, node: FakeCluster, amounts: tuple[str, ...]
) -> None:
    """In whatever order they are listed."""
    for number, units in enumerate(amounts):
        node.add(quota(f"q{number}", units))
    assert [item["limit"] for item in groups(run, node)] == [12]


def test_labels_have_no_limits(run: Run, node: FakeCluster) -> None:
    """Quotas are of namespaces, even where a team is called as one."""
    node.pod("a", 3, node="n", index=0, metadata=labelled("default"))
    node.add(quota("q", "12"))
    (found,) = groups(run, node, "-A", "--by", "label:team")
    assert (found["name"], found["limit"]) == ("default", None)


def test_nodes_of_two_units_leave_limits_out(run: Run, node: FakeCluster) -> None:
    """A quota counts units, and nobody knows which."""
    node.add(quota("q", "12"))
    assert [item["limit"] for item in groups(run, node)] == [12]
    node.node("m", gpus=[Gpu(15 * 1024)], unit="MiB")
    assert groups(run, node) == []


def test_requests_without_a_known_unit_are_not_added_to_mib(run: Run, cluster: FakeCluster) -> None:
    """Where nodes use GiB and MiB, requests of pods on no known node are counted apart."""
    cluster.node("a", gpus=[Gpu(15)]).node("b", gpus=[Gpu(15360)], unit="MiB")
    cluster.pod("held", 4, node="a", index=0)
    cluster.pod("ghost", 3, node="gone", index=0).pod("w", 5, phase="Pending")
    cluster.pod("other", 2, phase="Pending", namespace="other")
    found, other = groups(run, cluster, "-A")
    assert (found["allocated"], found["allocatedUnknownUnit"]) == (4096, 3)
    assert (found["pending"], found["pendingUnknownUnit"]) == (0, 5)
    assert "allocatedUnknownUnit" not in other
    outcome = run("usage", "-A", "--no-headers", on=cluster)
    assert [line.split() for line in outcome.out.splitlines()] == [
        ["default", "2", "4096", "0", "-", "1", "-", "0"],
        ["other", "0", "0", "0", "-", "1", "-", "0"],
    ]
    assert outcome.err == (
        "note: 3 units allocated and 7 units pending are not counted (default, other): nodes use"
        " GiB and MiB, and the unit of these requests is unknown\n"
    )


def test_exclusive_gpus_are_added(run: Run, node: FakeCluster) -> None:
    """Those that are held, and those that are waited for."""
    for index, name in enumerate("ab"):
        notes = {"ALIYUN_COM_GPU_GROUP": str(index)}
        node.pod(name, node="n", limits=COUNT, annotations=notes)
    for name in "cde":
        node.pod(name, phase="Pending", limits=COUNT)
    (found,) = groups(run, node)
    assert (found["pods"], found["gpus"]) == (2, 2)
    assert (found["pendingPods"], found["pendingGpus"]) == (3, 3)


def test_a_pod_that_was_bound_without_a_gpu_counts_with_its_request(
    run: Run, node: FakeCluster
) -> None:
    """Its units are held on the node, and kubelet will choose the GPU."""
    node.pod("a", 4, node="n")
    node.pod("b", 3, node="n", index=0)
    (found,) = groups(run, node)
    assert (found["pods"], found["allocated"]) == (2, 7)


def test_exclusive_gpus_of_a_pod_without_an_annotation_are_held(
    run: Run, node: FakeCluster
) -> None:
    """They count in EXCLUSIVE GPUS, and a note names the node: their memory is unknown."""
    node.pod("a", node="n", limits={"aliyun.com/gpu": "2"})
    (found,) = groups(run, node)
    assert (found["pods"], found["gpus"], found["pendingGpus"]) == (1, 2, 0)
    for by in ("namespace", "node", "model"):
        assert "n: 2 exclusive GPUs PENDING" in run("usage", "--by", by, on=node).err
    assert run("usage", "-n", "other", on=node).err.count("PENDING") == 0


def test_a_gpu_that_a_share_has_alone_is_exclusive(run: Run, node: FakeCluster) -> None:
    """All of its memory counts, so the GPU counts in EXCLUSIVE GPUS too."""
    alone = {"labels": {"ack.gpushare.placement": "require-whole-device"}}
    node.pod("a", 4, node="n", index=0, metadata=alone)
    (found,) = groups(run, node)
    assert (found["allocated"], found["gpus"]) == (15, 1)


def test_a_model_counts_the_pods_on_its_gpus(run: Run, node: FakeCluster) -> None:
    """Not all pods of the node."""
    node.pod("a", 4, node="n", index=0).pod("b", 4, node="n", index=1)
    node.pod("c", 4, node="n", index=2)
    found = {item["name"]: item["pods"] for item in groups(run, node, "--by", "model")}
    assert found == {"Tesla T4": 2, "NVIDIA L4": 1}


def test_a_note_states_the_memory_that_is_of_no_model(run: Run, node: FakeCluster) -> None:
    """It is on no known GPU, so the sum of all models is less than that of all nodes."""
    node.pod("a", 4, node="n", index=0)
    assert run("usage", "--by", "model", on=node).err == ""
    node.pod("b", 3, node="n").pod("c", 2, node="n", index=7)
    outcome = run("usage", "--by", "model", on=node)
    assert outcome.err == (
        "note: 5 GiB on unknown GPUs are not counted for a model (see 'gpushare doctor')\n"
    )


def test_a_node_without_figures_uses_nothing_that_is_known(run: Run, node: FakeCluster) -> None:
    """That is not zero."""
    with fakeprometheus.serving({POD_USED_BYTES: {}}) as url:
        (found,) = groups(run, node, "--by", "node", "--prometheus", url)
    assert found["usedBytes"] is None


def test_orders_go_by_their_own_amount(run: Run, node: FakeCluster) -> None:
    """Memory in use is not memory allocated; GPUs of pending pods count as well."""
    node.pod("a", 9, node="n", index=0, metadata=labelled("allocated"))
    node.pod("b", 2, node="n", index=1, metadata=labelled("used"))
    node.pod("c", phase="Pending", limits=COUNT, metadata=labelled("pending"))
    answers = {POD_USED_BYTES: {"default/a": str(GIB), "default/b": str(2 * GIB)}}
    with fakeprometheus.serving(answers) as url:
        line = ("-A", "--by", "label:team", "--prometheus", url)
        for order in ("allocated", "used", "pending"):
            assert groups(run, node, *line, "--sort-by", order)[0]["name"] == order
