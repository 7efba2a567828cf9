"""What a pending pod's owner reads: state, reason in one line and first suggestion, by situation.

The expected answers are in ``golden/pending-situations.yaml``. Each was checked against the rules
of the core and of kube-scheduler: what must change so that the pod fits.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from drawncluster import FakeCluster, Gpu
from invoking import Run
from pendingclusters import (
    A100,
    affinity,
    away,
    box,
    gang,
    gpus,
    holds,
    node,
    spread,
    taint,
    waits,
    wants,
)

pytestmark = pytest.mark.slow

Build = Callable[[FakeCluster], object]
ALLOCATABLE = {"aliyun.com/gpu-mem": "15", "cpu": "4", "memory": "8Gi", "pods": "10"}
EXPECTED = yaml.safe_load((Path(__file__).parent / "golden/pending-situations.yaml").read_text())

SITUATIONS: dict[str, Build] = {
    "a full GPU": lambda c: (node(c), holds(c, 15), waits(c)),
    "a GPU that is partly free": lambda c: (node(c), holds(c, 10), waits(c)),
    "free memory split over two GPUs": lambda c: (
        node(c, Gpu(15), Gpu(15)),
        holds(c, 10, 0),
        holds(c, 10, 1, "h2"),
        waits(c),
    ),
    "larger than every GPU": lambda c: (node(c), waits(c, 16)),
    "larger than the free GPU, the large one is full": lambda c: (
        node(c),
        node(c, Gpu(39, A100), name="a"),
        holds(c, 39, on="a"),
        waits(c, 20),
    ),
    "an amount in MiB": lambda c: (node(c), waits(c, 8192)),
    "an amount in bytes": lambda c: (node(c), waits(c, 8 << 30)),
    "no node with GPUs": lambda c: (
        c.node("n", resources={"cpu": "8"}, labels={"gpushare": "false"}),
        waits(c),
    ),
    "no node at all": waits,
    "a node whose number of GPUs is unknown": lambda c: (
        c.node("n", resources={"aliyun.com/gpu-mem": "30", "aliyun.com/gpu-count": "0"}),
        waits(c),
    ),
    "a cordoned node": lambda c: (node(c, cordoned=True), waits(c)),
    "a node that is not ready": lambda c: (node(c, ready=False), waits(c)),
    "an unhealthy GPU": lambda c: (node(c, Gpu(15, healthy=False)), waits(c)),
    "an unhealthy GPU beside a full one": lambda c: (
        node(c, Gpu(15, healthy=False), Gpu(15)),
        holds(c, 15, 1),
        waits(c),
    ),
    "a taint": lambda c: (node(c), taint(c, "NoSchedule", value="ml"), waits(c)),
    "a taint NoExecute": lambda c: (node(c), taint(c, "NoExecute"), waits(c)),
    "a taint that is only a preference": lambda c: (
        node(c),
        taint(c, "PreferNoSchedule"),
        waits(c),
    ),
    "a tolerated taint": lambda c: (
        node(c),
        taint(c, "NoSchedule", value="ml"),
        waits(c, spec={"tolerations": [{"key": "team", "operator": "Exists"}]}),
    ),
    "a nodeSelector": lambda c: (node(c), waits(c, spec={"nodeSelector": {"gpu": "a100"}})),
    "a node affinity": lambda c: (node(c), waits(c, spec=affinity("In", "a100", "h100"))),
    "a node affinity for a missing label": lambda c: (node(c), waits(c, spec=affinity("Exists"))),
    "too little CPU": lambda c: (
        node(c, resources=ALLOCATABLE),
        waits(c, spec={"containers": [box(8, cpu="6")]}),
    ),
    "too little memory": lambda c: (
        node(c, resources=ALLOCATABLE),
        waits(c, spec={"containers": [box(8, memory="16Gi")]}),
    ),
    "too many pods": lambda c: (
        node(c, resources={**ALLOCATABLE, "pods": "1"}),
        holds(c, 1),
        waits(c),
    ),
    "more compute than a GPU has": lambda c: (node(c), wants(c, {"gpu-core.percentage": "150"})),
    "compute in use": lambda c: (
        node(c),
        holds(c, 2, limits={"aliyun.com/gpu-core.percentage": "80"}),
        wants(c, {"gpu-core.percentage": "50", "gpu-mem": "2"}),
    ),
    "exclusive GPUs, but nodes offer shares only": lambda c: (node(c), wants(c, {"gpu": "1"})),
    "an exclusive GPU in use by a share": lambda c: (
        gpus(c, 2),
        holds(c, 1, 0),
        wants(c, {"gpu": "2"}),
    ),
    "more exclusive GPUs than a node has": lambda c: (gpus(c, 2), wants(c, {"gpu": "4"})),
    "a share on an exclusive GPU": lambda c: (
        gpus(c, 1),
        c.pod(
            "h", node="n", limits={"aliyun.com/gpu": "1"}, annotations={"ALIYUN_COM_GPU_GROUP": "0"}
        ),
        waits(c, 4),
    ),
    "a share over two GPUs, one of them full": lambda c: (
        node(c, Gpu(15), Gpu(15)),
        holds(c, 12, 0),
        spread(c, 10, "2"),
    ),
    "an amount that does not divide": lambda c: (node(c, Gpu(15), Gpu(15)), spread(c, 7, "2")),
    "a share over more GPUs than the node has": lambda c: (node(c), spread(c, 8, "2")),
    "a number of GPUs that is none": lambda c: (node(c), spread(c, 8, "x")),
    "an isolation mode that no GPU has": lambda c: (
        node(c),
        waits(c, annotations={"gpushare/isolation": "mps"}),
    ),
    "an unknown isolation mode": lambda c: (
        node(c),
        waits(c, annotations={"gpushare/isolation": "strong"}),
    ),
    "a whole device while a share is there": lambda c: (
        node(c),
        holds(c, 1),
        waits(c, 4, metadata={"labels": {"ack.gpushare.placement": "require-whole-device"}}),
    ),
    "as many pods as the GPU may have": lambda c: (
        node(c, labels={"ack.node.gpu.max-pod": "1"}),
        holds(c, 1),
        waits(c, 4),
    ),
    "a scheduling gate": lambda c: (
        node(c),
        waits(c, spec={"schedulingGates": [{"name": "example.com/quota"}]}),
    ),
    "a scheduler that does not run": lambda c: (node(c), waits(c, spec={"schedulerName": "none"})),
    "exclusive GPUs and a share at once": lambda c: (
        gpus(c, 2),
        wants(c, {"gpu": "1", "gpu-mem": "4"}),
    ),
    "units of a pod on no known GPU": lambda c: (node(c), c.pod("h", 10, node="n"), waits(c)),
    "two containers together": lambda c: (node(c), waits(c, (8, 8))),
    "an init container that requests more": lambda c: (
        node(c),
        waits(c, 2, spec={"containers": [box(2)], "initContainers": [box(20)]}),
    ),
    "a pod that is being deleted": lambda c: (
        node(c),
        holds(c, 15, metadata={"deletionTimestamp": "2026-01-02T03:05:00Z"}),
        waits(c),
    ),
    "a pod that has succeeded": lambda c: (node(c), holds(c, 15, phase="Succeeded"), waits(c)),
    "a gang with missing pods": lambda c: (node(c), waits(c, 8, **gang("3"))),
    "a gang of which only a part fits": lambda c: (
        node(c),
        waits(c, 8, **gang("2")),
        c.pod("p2", 8, phase="Pending", **gang("2")),
    ),
    "a device plugin that is stopped": lambda c: (node(c), away(c), waits(c)),
    "nodes with different reasons": lambda c: (
        node(c),
        holds(c, 15),
        node(c, name="m", cordoned=True),
        node(c, name="o"),
        taint(c, "NoSchedule"),
        waits(c),
    ),
}


def test_every_situation_has_an_answer() -> None:
    """At least forty, and no row is lost by a name that occurs twice."""
    assert list(SITUATIONS) == list(EXPECTED)
    assert len(SITUATIONS) == 50


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_pending_pod_is_explained(run: Run, cluster: FakeCluster, name: str) -> None:
    """``gpushare pending`` and ``explain pod`` give the reviewed answer."""
    SITUATIONS[name](cluster)
    listed = json.loads(run("pending", "-A", "-o", "json", on=cluster).out)["items"]
    explained = json.loads(run("explain", "pod", "p", "-o", "json", on=cluster).out)
    reason = next(item["reason"] for item in listed if item["name"] == "p")
    answer = {"state": explained["state"], "reason": reason, "suggestion": explained["helps"][0]}
    assert answer == EXPECTED[name]
