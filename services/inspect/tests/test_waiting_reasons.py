"""The page /pods: each pod has the reason that its own page gives."""

from datetime import UTC, datetime
from random import Random

import pytest
from drawncluster import FakeCluster, Gpu

from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.cluster.snapshots import decode
from gpuinspect.queries.scheduling_status import SchedulingStatuses
from gpuinspect.web.frames import Frame

GROUP = "pod-group.scheduling.sigs.k8s.io"


def waiting_pods(seed: int) -> FakeCluster:
    """Two nodes, and pods that wait: of gangs and of none, some nominated to a node."""
    random, cluster = Random(seed), FakeCluster()
    for name in "ab":
        cluster.node(name, gpus=[Gpu(16)] * random.choice([1, 2]))
    for number in range(random.randint(0, 5)):
        held = random.choice([2, 4, 8])
        cluster.pod(f"held-{number}", held, node=random.choice("ab"), index=0)
    for number in range(random.randint(1, 8)):
        size = random.choice("223")
        gang = {f"{GROUP}/name": random.choice("gh"), f"{GROUP}/min-available": size}
        cluster.pod(
            f"waits-{number}",
            random.choice([4, 8, 16]),
            phase="Pending",
            metadata={"labels": gang if random.random() < 0.4 else {}},
            spec={"priority": random.choice([0, 0, 5])},
            status={"nominatedNodeName": "a"} if random.random() < 0.15 else {},
        )
    return cluster


@pytest.mark.parametrize("seed", range(60))
def test_a_reason_is_shared_by_pods_with_one_explanation_alone(seed: int) -> None:
    """The list of the dashboard and that of the command give what explains the pod itself."""
    snapshot = decode(waiting_pods(seed).json().encode())
    frame = Frame(snapshot, DEFAULT_NAMES, taken=datetime.now(UTC))
    listed = SchedulingStatuses(snapshot, DEFAULT_NAMES).in_namespace("")
    statuses = {status.pod.uid: status.found for status in listed}
    for pod, pod_request in frame.waiting:
        own = frame.explain(pod)
        for found in (frame.reason(pod, pod_request), statuses[pod.uid]):
            assert (found.state, found.helps, found.groups) == (own.state, own.helps, own.groups)
