"""A cluster of 200 nodes and 1,332 GPUs of three models, with pods of four namespaces."""

from typing import Final

from drawncluster import FakeCluster, Gpu

from gpuinspect.queries.memory_in_use import Figures

NODES: Final = 200
GPUS: Final = 1332
_SHAPES: Final = ((8, 80, "NVIDIA A100-SXM4-80GB"), (8, 40, "NVIDIA A100-PCIE-40GB"))
_SMALL: Final = (4, 15, "Tesla T4")
_EIGHTS: Final = 133
"""Nodes of eight GPUs; the others have four."""
_TEAMS: Final = ("research", "serving", "vision", "default")
_GIB: Final = 1 << 30


def large_cluster(nodes: int = NODES) -> FakeCluster:
    """The cluster; its racks have eight nodes each, and every 50th GPU is unhealthy."""
    cluster = FakeCluster()
    gpus = 0
    for number in range(nodes):
        count, units, model = _SHAPES[number % 2] if number < _EIGHTS else _SMALL
        name = f"gpu-node-{number:04}"
        drawn = [Gpu(units, model, healthy=(gpus + i) % 50 != 49) for i in range(count)]
        labels = {
            "topology.kubernetes.io/rack": f"rack-{number // 8 + 1}",
            "cloud.google.com/gke-nodepool": f"pool-{number % 3}",
        }
        cluster.node(name, gpus=drawn, labels=labels, cordoned=number % 40 == 39)
        for index in range(count):
            _add_pods(cluster, name, index, units, gpus + index)
        gpus += count
    for number in range(120):
        cluster.pod(f"wait-{number}", 50, phase="Pending", namespace=_TEAMS[number % 4])
    return cluster


def _add_pods(cluster: FakeCluster, node: str, index: int, units: int, gpu: int) -> None:
    """None, one or two pods on a GPU."""
    team = _TEAMS[gpu // 40 % 4]
    for place in range(gpu % 3):
        size = max(units * (1 + gpu % 7) // 16, 1)
        cluster.pod(f"train-{gpu}-{place}", size, node=node, index=index, namespace=team)


def large_figures(cluster: FakeCluster) -> Figures:
    """Memory in use of the GPUs of every node but each tenth."""
    gpus = {}
    nodes = [item for item in cluster.items if item["kind"] == "Node"]
    for number, node in enumerate(nodes):
        name, count = node["metadata"]["name"], node["status"]["capacity"]["aliyun.com/gpu-count"]
        for index in range(int(count) if number % 10 else 0):
            gpus[f"GPU-{name}-{index}"] = float((number * 3 + index) % 7 * _GIB)
    return Figures(gpus=gpus)
