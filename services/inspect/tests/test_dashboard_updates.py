"""Which changes of a cluster make open pages of the dashboard fetch their part again."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from claimobjects import device_class
from doctorcluster import item
from drawncluster import FakeCluster, Gpu

from gpucore.wire.names import DEFAULT_NAMES, VERIFIED
from gpuinspect.cluster.snapshots import decode
from gpuinspect.web.feed import Feed
from gpukube.testing.plugin_pods import plugin_pod

RESULTS = {"at": 1_790_000_000, "gpus": {"0": {"memory": "pass"}}}


@pytest.fixture
def cluster() -> FakeCluster:
    """A node with its plugin, a pod with a share, an extender, and a pod that waits."""
    cluster = FakeCluster().node("n", gpus=[Gpu(15)]).pod("web", 4, node="n", index=0)
    cluster.pod("large", 16, phase="Pending")
    labels = {"app.kubernetes.io/component": "scheduler"}
    box = {"name": "extender", "args": ["--policy=spread"]}
    cluster.pod("e", namespace="gpushare", metadata={"labels": labels}, spec={"containers": [box]})
    return cluster.add(plugin_pod("plugin", "n"))


@pytest.fixture
def feed(cluster: FakeCluster) -> Feed:
    """Reads the cluster when the test specifies it."""
    return Feed(
        lambda: decode(cluster.json().encode()), DEFAULT_NAMES, interval_seconds=3600, began=1.0
    )


def taint(cluster: FakeCluster) -> None:
    """The node is tainted, so that pods wait for another reason."""
    item(cluster, "n")["spec"]["taints"] = [{"key": "k", "effect": "NoSchedule"}]


def label_node(cluster: FakeCluster) -> None:
    """The node has another label."""
    item(cluster, "n")["metadata"]["labels"]["pool"] = "gold"


def label_pod(cluster: FakeCluster) -> None:
    """The pod belongs to another team in the report of usage."""
    item(cluster, "web")["metadata"]["labels"] = {"team": "red"}


def verify(cluster: FakeCluster) -> None:
    """The node has been verified."""
    item(cluster, "plugin")["metadata"]["annotations"] = {VERIFIED: json.dumps(RESULTS)}


def configure(cluster: FakeCluster) -> None:
    """The extender has another policy."""
    item(cluster, "e")["spec"]["containers"][0]["args"] = ["--policy=binpack"]


def add_class(cluster: FakeCluster) -> None:
    """The DeviceClass that claims lacked has been created."""
    cluster.add(device_class())


def report(cluster: FakeCluster) -> None:
    """A scheduler has tried to place the pod, and its event is the first record of that."""
    about = {"kind": "Pod", "namespace": "default", "name": "large"}
    event = {"reason": "FailedScheduling", "message": "0/1 nodes", "involvedObject": about}
    cluster.add({"kind": "Event", "metadata": {"name": "e"}, **event})


def run_beside(cluster: FakeCluster) -> None:
    """A pod without GPUs takes CPU of the node."""
    cluster.pod("plain", node="n")


def beat(cluster: FakeCluster) -> None:
    """Kubelet and a controller report that nothing has changed."""
    node: dict[str, Any] = item(cluster, "n")
    node["metadata"]["resourceVersion"] = "2"
    node["metadata"]["annotations"]["example.com/seen"] = "2026-01-02T03:04:05Z"
    node["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-02T03:04:05Z"
    item(cluster, "web")["metadata"]["resourceVersion"] = "2"


def run_elsewhere(cluster: FakeCluster) -> None:
    """A pod without GPUs runs on a node without GPUs."""
    cluster.pod("plain", node="other")


CHANGES = [taint, label_node, label_pod, verify, configure, add_class, run_beside, report]


@pytest.mark.parametrize("change", CHANGES)
async def test_pages_are_updated(
    feed: Feed, cluster: FakeCluster, change: Callable[[FakeCluster], None]
) -> None:
    """Browsers are notified of each change that some page shows."""
    await feed.refresh()
    change(cluster)
    await feed.refresh()
    assert feed.version == 2


@pytest.mark.parametrize("change", [beat, run_elsewhere])
async def test_pages_stay_as_they_are(
    feed: Feed, cluster: FakeCluster, change: Callable[[FakeCluster], None]
) -> None:
    """Browsers are not notified of heartbeats and of pods that no page shows."""
    await feed.refresh()
    change(cluster)
    await feed.refresh()
    assert feed.version == 1


async def test_the_plugin_is_one_whose_results_are_shown(feed: Feed, cluster: FakeCluster) -> None:
    """The results of the cluster of these tests reach the pages."""
    verify(cluster)
    await feed.refresh()
    assert feed.frame is not None
    assert [(each.gpu, each.row) for each in feed.frame.verified] == [("0", "memory")]
