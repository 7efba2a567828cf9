"""``gpushare node-template``: what autoscalers need of a group that has no nodes."""

import json

import yaml
from drawncluster import FakeCluster, Gpu
from invoking import Run

TAG = "k8s.io/cluster-autoscaler/node-template"
LABELS = {
    "node.kubernetes.io/instance-type": "g5.12xlarge",
    "ack.node.gpu.placement": "binpack",
    "gpushare/inventory-hash": "abc",
    "kubernetes.io/hostname": "n",
}


def group(cluster: FakeCluster, **labels: str) -> FakeCluster:
    """A node with four GPUs and taints, of which one is of its state."""
    cluster.node("n", gpus=[Gpu(22)] * 4, labels=LABELS | labels)
    cluster.items[0]["spec"]["taints"] = [
        {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
    ]
    return cluster


def test_tags_of_an_auto_scaling_group(run: Run, cluster: FakeCluster) -> None:
    """Labels, taints and resources of the group; nothing that differs from node to node."""
    outcome = run("node-template", "n", on=group(cluster))
    assert outcome.out.splitlines() == [
        f"{TAG}/label/gpushare=true",
        f"{TAG}/label/ack.node.gpu.placement=binpack",
        f"{TAG}/taint/gpu=yes:NoSchedule",
        f"{TAG}/resources/aliyun.com/gpu-mem=88",
    ]


def test_karpenter(run: Run, cluster: FakeCluster) -> None:
    """The labels and taints are in a NodePool, the amounts in a NodeOverlay of the same type."""
    outcome = run("node-template", "n", "--for", "karpenter", on=group(cluster))
    pool, overlay = yaml.safe_load_all(outcome.out)
    spec = pool["spec"]["template"]
    assert spec["metadata"]["labels"] == {"gpushare": "true", "ack.node.gpu.placement": "binpack"}
    assert spec["spec"]["taints"] == [{"key": "gpu", "effect": "NoSchedule", "value": "yes"}]
    (requirement,) = overlay["spec"]["requirements"]
    assert requirement["values"] == ["g5.12xlarge"]
    assert overlay["spec"]["capacity"] == {"aliyun.com/gpu-mem": "88"}
    assert pool["metadata"]["name"] == "gpushare-g5-12xlarge"


def test_json_has_what_an_autoscaler_needs(run: Run, cluster: FakeCluster) -> None:
    """One document for both autoscalers; Karpenter's objects are in it where they are requested."""
    document = json.loads(run("node-template", "n", "-o", "json", on=group(cluster)).out)
    assert (document["kind"], document["node"]) == ("NodeTemplate", "n")
    assert document["instanceType"] == "g5.12xlarge"
    assert document["resources"] == {"aliyun.com/gpu-mem": "88"}
    assert document["taints"] == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    assert document["tags"][f"{TAG}/resources/aliyun.com/gpu-mem"] == "88"
    assert document["objects"] == []


def test_json_for_karpenter_has_its_objects(run: Run, cluster: FakeCluster) -> None:
    """They are those of the YAML."""
    words = ("node-template", "n", "--for", "karpenter")
    objects = json.loads(run(*words, "-o", "json", on=group(cluster)).out)["objects"]
    assert [one["kind"] for one in objects] == ["NodePool", "NodeOverlay"]


def test_a_node_that_cannot_be_a_model(run: Run, cluster: FakeCluster) -> None:
    """Unknown, without GPUs, or without a type of instance."""
    cluster.node("plain", resources={"cpu": "8"}).node("old", total=30, count=2)
    assert 'nodes "nix" not found' in run("node-template", "nix", on=cluster).err
    assert "offers no GPUs" in run("node-template", "plain", on=cluster).err
    outcome = run("node-template", "old", "--for", "karpenter", on=cluster)
    assert "instance-type" in outcome.err
