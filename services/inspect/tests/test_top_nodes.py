"""How arena's figures of a node come about, without a table."""

from fractions import Fraction
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu

from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.cluster.snapshots import decode
from gpuinspect.errors import MissingObjectError
from gpuinspect.queries.top import TopNode, top_nodes, with_figures
from gpuinspect.sources.prometheus import GpuFigures

GIB = 1 << 30
CONFIRMED = {"ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}


def figures(cluster: FakeCluster, *names: str, kind: str = "") -> tuple[TopNode, ...]:
    """The figures of these nodes."""
    snapshot = decode(cluster.json().encode())
    return top_nodes(snapshot, DEFAULT_NAMES, only=names, kind=kind)


def only(cluster: FakeCluster) -> TopNode:
    """The figures of the one node."""
    (found,) = figures(cluster)
    return found


@pytest.mark.parametrize(
    ("phase", "allocated"), [("Running", 2), ("Pending", 2), ("Succeeded", 0), ("Failed", 0)]
)
def test_gpus_of_nvidias_plugin_are_held_until_the_pod_ends(phase: str, allocated: int) -> None:
    """All containers of a pod count; a pod without a node holds nothing."""
    cluster = FakeCluster().node("n", resources={"nvidia.com/gpu": "4"})
    limits = {"nvidia.com/gpu": "1"}
    cluster.pod("p", [0, 0], node="n", limits=limits, phase=phase)
    cluster.pod("waits", limits=limits, phase="Pending")
    found = only(cluster)
    assert (found.total, found.allocated) == (4, allocated)
    assert [pod.name for pod in found.pods] == (["p"] if allocated else [])
    assert found.kinds == {"exclusive"}


def test_a_share_is_a_part_of_its_gpu() -> None:
    """Pods come by namespace and name."""
    cluster = FakeCluster().node("n", gpus=[Gpu(15), Gpu(10)])
    cluster.pod("b", 3, node="n", index=0, annotations=CONFIRMED)
    cluster.pod("a", 5, node="n", index=1, annotations=CONFIRMED, namespace="z")
    cluster.pod("c", 3, node="n", index=0, annotations=CONFIRMED, namespace="a")
    found = only(cluster)
    assert [(pod.namespace, pod.name, pod.gpus) for pod in found.pods] == [
        ("a", "c", Fraction(1, 5)),
        ("default", "b", Fraction(1, 5)),
        ("z", "a", Fraction(1, 2)),
    ]
    assert found.allocated == Fraction(9, 10)
    assert [(gpu.index, gpu.total_bytes, gpu.allocated_bytes) for gpu in found.gpus] == [
        (0, 15 * GIB, 6 * GIB),
        (1, 10 * GIB, 5 * GIB),
    ]
    assert (found.shareable, found.kinds) == (True, {"share"})


@pytest.mark.parametrize(
    ("init", "held"),
    [
        ({"restartPolicy": "Always"}, 3),
        ({}, 2),
        ({"resources": {"limits": {"nvidia.com/gpu": "4"}}}, 4),
    ],
    ids=["sidecar", "init container", "larger init container"],
)
def test_gpus_of_nvidias_plugin_are_counted_as_kubelet_counts_them(
    init: dict[str, Any], held: int
) -> None:
    """A sidecar runs beside the containers, other init containers before them."""
    cluster = FakeCluster().node("n", resources={"nvidia.com/gpu": "4"})
    one = {"name": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    two = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    cluster.pod("p", node="n", spec={"initContainers": [{**one, **init}], "containers": [two]})
    found = only(cluster)
    assert (found.allocated, [pod.gpus for pod in found.pods]) == (held, [held])


def test_a_gpu_that_one_pod_has_alone_is_allocated_in_full() -> None:
    """Whatever it requested of its memory."""
    cluster = FakeCluster().node("n", gpus=[Gpu(15)])
    alone = {**CONFIRMED, "gpushare/exclusive": "true"}
    cluster.pod("p", 3, node="n", index=0, annotations=alone)
    found = only(cluster)
    assert found.gpus[0].allocated_bytes == 15 * GIB
    assert (found.allocated, found.pods[0].gpus) == (1, 1)


def test_a_gpu_that_is_gone_is_neither_there_nor_unhealthy() -> None:
    """A pod may still name it."""
    cluster = FakeCluster().node("n", gpus=[Gpu(15), Gpu(15, healthy=False)])
    cluster.pod("p", 3, node="n", index=7, annotations=CONFIRMED)
    found = only(cluster)
    assert (found.total, found.unhealthy, len(found.gpus)) == (2, 1, 2)


@pytest.mark.parametrize(
    ("labels", "role"),
    [
        ({}, "<none>"),
        ({"node-role.kubernetes.io/worker": ""}, "worker"),
        ({"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/gpu": ""}, "gpu,worker"),
        ({"kubernetes.io/role": "master"}, "master"),
        ({"node-role.kubernetes.io/master": "", "kubernetes.io/role": "master"}, "master"),
        ({"node-role.kubernetes.io/": "", "kubernetes.io/role": ""}, "<none>"),
    ],
)
def test_roles_are_those_of_kubectl(labels: dict[str, str], role: str) -> None:
    """Labels of both kinds, each role once, in order."""
    assert only(FakeCluster().node("n", labels=labels)).role == role


def test_nodes_are_chosen_by_name_and_kind() -> None:
    """By name in order; a name that is unknown is an error."""
    cluster = FakeCluster().node("b", total=15).node("a", resources={"cpu": "1"})
    cluster.node("c", resources={"nvidia.com/gpu": "1"})
    assert [node.name for node in figures(cluster)] == ["a", "b", "c"]
    assert [node.name for node in figures(cluster, "c", "a")] == ["a", "c"]
    assert [node.name for node in figures(cluster, kind="none")] == ["a"]
    assert [node.name for node in figures(cluster, "a", "b", kind="share")] == ["b"]
    with pytest.raises(MissingObjectError, match='nodes "d" not found'):
        figures(cluster, "a", "d")


def test_figures_of_prometheus_are_put_to_their_gpu() -> None:
    """Figures are matched by UUID; a GPU without a series has none."""
    nodes = figures(FakeCluster().node("n", gpus=[Gpu(15), Gpu(15)]))
    found = GpuFigures(used_bytes={"GPU-n-1": 7.0}, utilization={"GPU-n-0": 30.0})
    (node,) = with_figures(nodes, found)
    assert [(gpu.used_bytes, gpu.utilization) for gpu in node.gpus] == [(None, 30.0), (7.0, None)]
