"""``gpushare explain pod``: why it waits, why it sits where it sits, what would help."""

import json
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from invoking import Run


@pytest.fixture
def crowded(cluster: FakeCluster) -> FakeCluster:
    """Two nodes with two GPUs of 15, each GPU partly used; 6 is the largest free block."""
    for name in ("n1", "n2"):
        cluster.node(name, gpus=[Gpu(15), Gpu(15)])
    cluster.pod("a", 9, node="n1", index=0).pod("b", 12, node="n1", index=1)
    cluster.pod("c", 11, node="n2", index=0).pod("d", 14, node="n2", index=1)
    cluster.node("cpu", resources={"cpu": "8"})
    return cluster.pod("waits", 8, phase="Pending")


def event(reason: str, message: str, *, pod: str = "waits") -> dict[str, Any]:
    """An event about a pod of the default namespace."""
    return {
        "kind": "Event",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": pod},
        "reason": reason,
        "message": message,
        "lastTimestamp": "2026-01-02T03:05:00Z",
    }


def test_refusing_nodes_are_grouped(run: Run, crowded: FakeCluster) -> None:
    """Nodes with one reason are one row with the largest free block and what is requested."""
    out = run("explain", "pod", "default/waits", on=crowded).out
    assert "pending: it fits no node now" in out
    assert "2      InsufficientMemory  largest free block 6 GiB, requested 8" in out
    assert "GPU 0 has 6 of 15 free" in out
    assert "1      NotShared" in out


def test_the_fewest_pods_whose_end_would_help(run: Run, crowded: FakeCluster) -> None:
    """The smallest step is one pod, the smallest that leaves enough room; and what fits now."""
    helps = json.loads(run("explain", "pod", "waits", "-o", "json", on=crowded).out)["helps"]
    assert helps == [
        "it fits GPU 0 of n1 once default/a ends (9 GiB)",
        "a share of 6 GiB fits now, on n1",
    ]


def reserved(cluster: FakeCluster) -> FakeCluster:
    """One node with 8 of 15 units free, and a pod of priority 5 that is nominated to it."""
    cluster.node("n1", gpus=[Gpu(15)]).pod("a", 7, node="n1", index=0)
    cluster.pod(
        "first", 6, phase="Pending", spec={"priority": 5}, status={"nominatedNodeName": "n1"}
    )
    return cluster


@pytest.mark.parametrize("priority", [0, 5])
def test_capacity_reserved_for_a_nominated_pod_is_not_free(
    run: Run, cluster: FakeCluster, priority: int
) -> None:
    """A pod of the same or a lower priority waits behind it, and reads that there is one."""
    reserved(cluster).pod("waits", 4, phase="Pending", spec={"priority": priority})
    found = json.loads(run("explain", "pod", "waits", "-o", "json", on=cluster).out)
    assert found["state"] == "Waiting"
    assert found["helps"][0] == "n1: capacity is reserved for 1 pod nominated to this node"


@pytest.mark.parametrize(("name", "priority"), [("more", 6), ("first", 5)])
def test_a_nominated_pod_keeps_nothing_from_higher_priority_or_itself(
    run: Run, cluster: FakeCluster, name: str, priority: int
) -> None:
    """The scheduler does not count it for them either."""
    reserved(cluster)
    if name == "more":
        cluster.pod("more", 4, phase="Pending", spec={"priority": priority})
    found = json.loads(run("explain", "pod", name, "-o", "json", on=cluster).out)
    assert (found["state"], found["fits"]) == ("Fits", ["n1"])


def test_no_step_frees_what_a_nominated_pod_takes(run: Run, cluster: FakeCluster) -> None:
    """Neither the end of a pod nor a smaller share is promised where the pod would be refused."""
    reserved(cluster).pod("waits", 12, phase="Pending")
    found = json.loads(run("explain", "pod", "waits", "-o", "json", on=cluster).out)
    assert found["helps"] == ["a share of 2 GiB fits now, on n1"]


def test_pods_behind_a_nominated_pod_are_listed_so(run: Run, cluster: FakeCluster) -> None:
    """Equal pods of different priority have different answers in one list."""
    reserved(cluster)
    for name, priority in (("behind", 0), ("ahead", 9)):
        cluster.pod(name, 4, phase="Pending", spec={"priority": priority})
    pods = json.loads(run("pending", "-o", "json", on=cluster).out)["items"]
    reasons = {pod["name"]: pod["state"] for pod in pods}
    assert reasons == {"first": "Fits", "behind": "Waiting", "ahead": "Fits"}


def test_a_scheduler_that_never_looked(run: Run, crowded: FakeCluster) -> None:
    """Events at hand, and none from a scheduler: it is named."""
    crowded.add(event("Pulled", "image is here", pod="a"))
    out = run("explain", "pod", "waits", on=crowded).out
    assert "gpushare-scheduler, which has not handled it" in out


def test_nothing_is_claimed_without_events(run: Run, crowded: FakeCluster) -> None:
    """A snapshot without events states that nothing is known of the scheduler."""
    assert "no events of it are available" in run("explain", "pod", "waits", on=crowded).out


def test_the_scheduler_is_quoted(run: Run, crowded: FakeCluster) -> None:
    """What the scheduler reported last is shown as it reported it."""
    crowded.add(event("FailedScheduling", "0/3 nodes are available: 3 are full."))
    out = run("explain", "pod", "waits", on=crowded).out
    assert "which has tried to place it" in out
    assert "message: 0/3 nodes are available: 3 are full." in out


def test_the_condition_of_the_pod_counts_too(run: Run, cluster: FakeCluster) -> None:
    """PodScheduled=False is proof of a scheduler, even when its events have expired."""
    condition = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
    cluster.node("n", total=15).pod("p", 16, phase="Pending", status={"conditions": [condition]})
    document = json.loads(run("explain", "pod", "p", "-o", "json", on=cluster).out)
    assert document["schedulerSawIt"] is True
    assert document["schedulerMessage"] == "0/1 nodes are available"


def test_a_unit_mistake_is_named(run: Run, cluster: FakeCluster) -> None:
    """An amount in MiB on a node in GiB is larger than every GPU, and the hint reports it."""
    cluster.node("n", gpus=[Gpu(15)]).pod("p", 8138, phase="Pending")
    out = run("explain", "pod", "p", on=cluster).out
    assert "if you meant MiB, request 8" in out
    assert "check the unit (GiB or MiB)" in out


def test_a_gpu_that_is_too_small_is_named_by_its_size(run: Run, cluster: FakeCluster) -> None:
    """What no GPU could ever hold is measured against exclusive GPUs, not against what is free."""
    cluster.node("n", total=15).pod("held", 6, node="n", index=0).pod("p", 20, phase="Pending")
    assert "largest GPU 15 GiB, requested 20" in run("explain", "pod", "p", on=cluster).out


def test_a_pod_that_fits_waits_for_something_else(run: Run, cluster: FakeCluster) -> None:
    """Where a node admits it by every rule that is evaluated, the answer reports it."""
    cluster.node("n", total=15).pod("p", 4, phase="Pending")
    out = run("explain", "pod", "p", on=cluster).out
    assert "pending, although it fits a node" in out
    assert "n can take it now" in out


def test_room_on_a_cordoned_node_is_reported(run: Run, cluster: FakeCluster) -> None:
    """A node that would fit but takes no new pods is named as such."""
    cluster.node("n", total=15, cordoned=True).pod("p", 4, phase="Pending")
    out = run("explain", "pod", "p", on=cluster).out
    assert "pending: it fits no node now" in out
    assert "n has enough capacity, but is cordoned or not ready" in out


def test_a_placed_pod_has_its_gpus_and_neighbours(run: Run, crowded: FakeCluster) -> None:
    """Where it sits, beside whom, and what is left of the GPU."""
    crowded.pod("e", 2, node="n1", index=0)
    out = run("explain", "pod", "e", on=crowded).out
    assert "2 GiB on GPU 0 of node n1" in out
    assert "GPU 0: beside default/a (9); 4 of 15 GiB free" in out


def test_why_a_pod_sits_on_its_gpu(run: Run, cluster: FakeCluster) -> None:
    """The choice is taken again: the same GPU with its rule, or another that is reported."""
    cluster.node("n", gpus=[Gpu(15), Gpu(15)])
    cluster.pod("first", 6, node="n", index=1).pod("second", 4, node="n", index=1)
    same = run("explain", "pod", "second", on=cluster).out
    assert "binpack would choose the same again: the fullest GPU that fits" in same
    cluster.pod("stray", 2, node="n", index=0)
    other = run("explain", "pod", "stray", on=cluster).out
    assert "binpack would choose 2 GiB on GPU 1 of node n now" in other


def test_the_policy_of_the_pod_is_the_one_that_is_used(run: Run, cluster: FakeCluster) -> None:
    """An annotation of the pod overrules the default."""
    cluster.node("n", gpus=[Gpu(15), Gpu(15)]).pod("a", 6, node="n", index=0)
    cluster.pod("b", 2, node="n", index=1, annotations={"gpushare/policy": "spread"})
    out = run("explain", "pod", "b", on=cluster).out
    assert "spread would choose the same again: the emptiest GPU that fits" in out


def test_a_terminating_pod_counts(run: Run, cluster: FakeCluster) -> None:
    """Until its containers are gone it holds its GPU, and the answer reports it."""
    leaving = {"deletionTimestamp": "2026-01-02T03:04:05Z"}
    cluster.node("n", total=15).pod("p", 4, node="n", index=0, metadata=leaving)
    assert "terminating, it counts until" in run("explain", "pod", "p", on=cluster).out


def test_a_bound_pod_without_a_gpu_was_not_placed_by_the_extender(
    run: Run, cluster: FakeCluster
) -> None:
    """PENDING is explained with the remedy."""
    cluster.node("n", total=15).pod("p", 4, node="n")
    out = run("explain", "pod", "p", on=cluster).out
    assert "bound to a node, GPU unknown" in out
    assert "did not call the extender" in out


def test_a_faulty_request_is_quoted(run: Run, cluster: FakeCluster) -> None:
    """A request that no node can take states what is wrong with it, once."""
    limits = {"aliyun.com/gpu": "1"}
    cluster.node("n", total=15).pod("p", 4, phase="Pending", limits=limits)
    helps = json.loads(run("explain", "pod", "p", "-o", "json", on=cluster).out)["helps"]
    assert len(helps) == 1
    assert "both exclusive GPUs and shares" in helps[0]


@pytest.mark.parametrize("name", ["default/none", "none", "x/waits"])
def test_no_such_pod(run: Run, crowded: FakeCluster, name: str) -> None:
    """A pod that does not exist is an error, printed as kubectl does."""
    outcome = run("explain", "pod", name, on=crowded)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("error: pods ")


def test_pods_without_gpus(run: Run, cluster: FakeCluster) -> None:
    """A pod that requests nothing is distinguished from one that waits."""
    cluster.pod("p", phase="Pending")
    assert "requests no GPU" in run("explain", "pod", "p", on=cluster).out


def test_a_finished_pod(run: Run, cluster: FakeCluster) -> None:
    """A pod that has ended holds nothing."""
    cluster.node("n", total=15).pod("p", 4, node="n", index=0, phase="Succeeded")
    assert "finished" in run("explain", "pod", "p", on=cluster).out


def test_exclusive_gpus(run: Run, cluster: FakeCluster) -> None:
    """For exclusive GPUs the figures are GPUs, and the shortage is reported."""
    have = {"aliyun.com/gpu": "2", "aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2"}
    cluster.node("n", gpus=[Gpu(15), Gpu(15)], resources=have)
    cluster.pod("share", 1, node="n", index=0)
    cluster.pod("p", phase="Pending", limits={"aliyun.com/gpu": "2"})
    out = run("explain", "pod", "p", on=cluster).out
    assert "1 GPU free, requested 2" in out
    assert "it fits n once default/share ends" in out
    assert "n is 1 free GPU short" in out
    assert "GPU 1 can be had now, on n" in out


def test_a_gang_without_room_for_all(run: Run, cluster: FakeCluster) -> None:
    """A pod that would fit alone waits for its gang, and the answer has the gang's figures."""
    have = {"aliyun.com/gpu": "2", "aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2"}
    cluster.node("n", gpus=[Gpu(15), Gpu(15)], resources=have)
    gang = {"labels": {"gpu-topology": "train", "gpu-topology-replica": "3"}}
    for name in ("p", "q", "r"):
        cluster.pod(name, phase="Pending", limits={"aliyun.com/gpu": "1"}, metadata=gang)
    out = run("explain", "pod", "p", on=cluster).out
    assert "pending: not all pods of its gang fit" in out
    assert "gang train needs 3 x 1 GPU: capacity for 2 members on 1 node" in out
    assert "n has 2 GPUs free, for 2 members" in out


def test_a_gang_whose_pods_do_not_exist_yet(run: Run, cluster: FakeCluster) -> None:
    """The answer states how many pods are missing, not that there is no room."""
    have = {"aliyun.com/gpu": "2", "aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2"}
    cluster.node("n", gpus=[Gpu(15), Gpu(15)], resources=have)
    gang = {"labels": {"gpu-topology": "train", "gpu-topology-replica": "2"}}
    cluster.pod("p", phase="Pending", limits={"aliyun.com/gpu": "1"}, metadata=gang)
    out = run("explain", "pod", "p", on=cluster).out
    assert "pending: not all pods of its gang exist yet" in out
    assert "gang train waits for 1 of its 2 pods: 1 exists in namespace default" in out


def test_a_gang_with_room_for_all(run: Run, cluster: FakeCluster) -> None:
    """Where all fit, the answer states where they would go."""
    have = {"aliyun.com/gpu": "2", "aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "2"}
    cluster.node("n", gpus=[Gpu(15), Gpu(15)], resources=have)
    gang = {"labels": {"gpu-topology": "train", "gpu-topology-replica": "2"}}
    for name in ("p", "q"):
        cluster.pod(name, phase="Pending", limits={"aliyun.com/gpu": "1"}, metadata=gang)
    helps = json.loads(run("explain", "pod", "p", "-o", "json", on=cluster).out)["helps"]
    assert helps[0] == "n can take it now, on GPU 0"
    assert helps[1].startswith("2 members of the gang would be placed on n: ")
