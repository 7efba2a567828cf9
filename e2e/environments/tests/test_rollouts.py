"""A workload is complete by its pods, whatever its status reports."""

from typing import Any

import pytest

from environments.rollouts import complete


def pod(*, ready: bool = True, phase: str = "Running", deleted: bool = False) -> dict[str, Any]:
    """A pod of a workload."""
    conditions = [{"type": "Ready", "status": str(ready)}]
    going = {"deletionTimestamp": "2026-01-02T03:04:05Z"} if deleted else {}
    return {"metadata": going, "status": {"phase": phase, "conditions": conditions}}


DAEMON = {"kind": "DaemonSet", "status": {"desiredNumberScheduled": 2, "numberReady": 2}}
DEPLOYMENT = {"kind": "Deployment", "spec": {"replicas": 2}, "status": {"readyReplicas": 2}}


@pytest.mark.parametrize("workload", [DAEMON, DEPLOYMENT], ids=["DaemonSet", "Deployment"])
@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([pod(), pod()], True, id="ready"),
        pytest.param([pod()], False, id="one-is-deleted"),
        pytest.param([pod(), pod(ready=False)], False, id="one-is-not-ready"),
        pytest.param([pod(), pod(deleted=True)], False, id="one-terminates"),
        pytest.param([pod(), pod(), pod(deleted=True)], False, id="an-old-one-terminates"),
        pytest.param([pod(), pod(), pod(phase="Failed", ready=False)], True, id="one-failed"),
        pytest.param([], False, id="none"),
    ],
)
def test_pods_decide_and_not_the_status(
    workload: dict[str, Any], pods: list[dict[str, Any]], expected: bool
) -> None:
    """The status reports that both pods are ready in every example."""
    assert complete(workload, pods) is expected
