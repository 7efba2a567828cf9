"""What is reported of pods that do not run after the last kill."""

from typing import Any, cast

import pytest

from chaos.load import PodLoad
from chaos.rig import Rig
from chaos.settling import differences

DELETED = "2026-11-27T01:00:00Z"
CONDITION = {"type": "PodScheduled", "message": "0/3 nodes are available"}


class NodelessRig:
    """A rig whose containers hold nothing and whose extender has no nodes."""

    def grants(self) -> dict[str, Any]:
        return {}

    def extender_nodes(self) -> str:
        return '{"nodes": []}'


class Pods:
    """The pods of the last list, none of which run."""

    def __init__(self, **pods: dict[str, Any]) -> None:
        self.pods, self.unsettled = pods, sorted(pods)


@pytest.mark.parametrize(
    ("pod", "state"),
    [
        (
            {"spec": {}, "status": {"phase": "Pending", "conditions": [CONDITION]}},
            "Pending without a node, 0/3 nodes are available",
        ),
        (
            {"spec": {}, "status": {"phase": "Pending"}},
            "Pending without a node, no message of the scheduler",
        ),
        (
            {"spec": {"nodeName": "large"}, "status": {"phase": "Pending"}},
            "Pending on large",
        ),
        (
            {
                "spec": {"nodeName": "large"},
                "status": {"phase": "Pending"},
                "metadata": {"deletionTimestamp": DELETED},
            },
            f"Pending on large, deleted at {DELETED}",
        ),
    ],
)
def test_a_pod_that_does_not_run_is_named_with_its_state(pod: dict[str, Any], state: str) -> None:
    """The reader sees whether the scheduler, the kubelet or the deletion is what is missing."""
    load = Pods(first={"metadata": {}} | pod)
    faults = differences(cast(Rig, NodelessRig()), cast(PodLoad, load))
    assert faults == [f"first does not run: {state}"]
