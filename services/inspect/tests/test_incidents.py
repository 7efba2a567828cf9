"""``gpushare explain`` and ``pending`` while a part of the cluster is down: why, and what to do."""

import pytest
from doctorcluster import CONFIRMED, inventory, item, sound
from drawncluster import FakeCluster
from invoking import Run

pytestmark = pytest.mark.slow

UNREADY = [{"type": "Ready", "status": "False"}]
LEAVING = "2026-01-02T03:04:05Z"


def without_gpu(cluster: FakeCluster) -> None:
    """The plugin of n1 restarted after GPU 1 fell off the bus; a pod still has it."""
    cluster.pod("lost", 3, node="n1", index=1, annotations=CONFIRMED)
    last = item(cluster, "n1")["metadata"]["annotations"]["gpushare/inventory"].rindex('{"index"')
    text = item(cluster, "n1")["metadata"]["annotations"]["gpushare/inventory"][last:]
    inventory(cluster, f", {text}", "]}")


def unready(cluster: FakeCluster, *names: str) -> None:
    """The condition Ready of nodes and pods is not true."""
    for name in names:
        item(cluster, name)["status"]["conditions"] = UNREADY


def test_a_pod_whose_gpu_is_gone_is_told_apart(run: Run) -> None:
    """Its GPU has no capacity to compare with, and no policy chooses again."""
    cluster = sound()
    without_gpu(cluster)
    lines = run("explain", "pod", "lost", on=cluster).out.splitlines()
    assert lines[lines.index("What would help:") + 1] == (
        "  - n1 no longer has GPU 1: delete the pod, and create it again"
    )
    assert "            GPU 1: the node no longer has it" in lines
    assert not [line for line in lines if line.startswith("Why:")]


@pytest.mark.parametrize("request_of", [{"units": 15}, {"limits": {"aliyun.com/gpu": "2"}}])
def test_no_reason_names_a_gpu_that_the_node_lost(run: Run, request_of: dict[str, object]) -> None:
    """It is not "unhealthy": the operator would look for a GPU that is not there."""
    cluster = sound()
    without_gpu(cluster)
    for name in ("n1", "n2"):
        item(cluster, name)["metadata"]["labels"]["gputopology"] = "true"
        for amounts in ("capacity", "allocatable"):
            item(cluster, name)["status"][amounts]["aliyun.com/gpu"] = "2"
    unready(cluster, "n2")
    cluster.pod("w", phase="Pending", **request_of)  # type: ignore[arg-type]
    text = run("explain", "pod", "w", on=cluster).out
    assert "n1" in text
    assert "GPU 1" not in text
    assert "is unhealthy" not in text


def test_a_terminating_pod_on_a_dead_node_is_explained(run: Run) -> None:
    """Nothing ends it while kubelet is away, and a StatefulSet waits for its end."""
    cluster = sound()
    item(cluster, "p")["metadata"]["deletionTimestamp"] = LEAVING
    assert "What would help" not in run("explain", "pod", "p", on=cluster).out
    unready(cluster, "n1")
    assert run("explain", "pod", "p", on=cluster).out.endswith(
        """
What would help:
  - n1 is not ready, so that its kubelet does not confirm the end of the containers: the pod ends when the node is ready again; if the machine is certainly off, delete its Node object
"""  # noqa: E501 - as it is printed
    )


def test_without_a_ready_extender_no_pod_can_be_placed(run: Run) -> None:
    """``explain`` and ``pending`` name the extenders before any node that would fit."""
    cluster = sound()
    cluster.pod("w", 3, phase="Pending")
    reason = (
        "no extender is ready (gpushare/scheduler-n1, gpushare/scheduler-n2): until one is, no pod "
        "that requests GPUs is placed; see 'gpushare doctor'"
    )
    unready(cluster, "scheduler-n1")
    assert "no extender is ready" not in run("explain", "pod", "w", on=cluster).out
    unready(cluster, "scheduler-n2")
    lines = run("explain", "pod", "w", on=cluster).out.splitlines()
    assert lines[lines.index("What would help:") + 1] == f"  - {reason}"
    assert reason in run("pending", on=cluster).out


def test_a_pod_of_a_node_that_does_not_exist_is_told_apart(run: Run) -> None:
    """There are no figures of its GPU, but a step that helps."""
    cluster = sound()
    cluster.items.remove(item(cluster, "n1"))
    text = run("explain", "pod", "p", on=cluster).out
    assert "free" not in text
    last = "What would help:\n  - node n1 does not exist: delete the pod, and create it again\n"
    assert text.endswith(last)
