"""Pieces of clusters with one pending pod ``p`` each, for ``test_pending_situations``."""

import json
from typing import Any

from drawncluster import FakeCluster, Gpu

A100 = "NVIDIA A100-PCIE-40GB"


def waits(cluster: FakeCluster, units: Any = 8, **fields: Any) -> FakeCluster:
    """The pending pod."""
    return cluster.pod("p", units, phase="Pending", **fields)


def wants(cluster: FakeCluster, limits: dict[str, str], **fields: Any) -> FakeCluster:
    """The pending pod with these limits of the domain."""
    whole = {f"aliyun.com/{name}": text for name, text in limits.items()}
    return cluster.pod("p", phase="Pending", limits=whole, **fields)


def spread(cluster: FakeCluster, units: int, count: str) -> FakeCluster:
    """The pending pod over several GPUs."""
    labels = {"aliyun.com/gpu-count": count}
    return cluster.pod("p", units, phase="Pending", metadata={"labels": labels})


def node(cluster: FakeCluster, *indexes: Gpu, name: str = "n", **fields: Any) -> FakeCluster:
    """A node that shares its GPUs; one of 15 units by default."""
    return cluster.node(name, gpus=indexes or [Gpu(15)], **fields)


def holds(cluster: FakeCluster, units: int, index: int = 0, name: str = "h", **fields: Any) -> None:
    """A running pod with a share of a GPU of ``n``."""
    cluster.pod(name, units, node=fields.pop("on", "n"), index=index, **fields)


def taint(cluster: FakeCluster, effect: str, **more: str) -> None:
    """Taints the last node."""
    cluster.items[-1]["spec"]["taints"] = [{"key": "team", "effect": effect, **more}]


def gpus(cluster: FakeCluster, count: int, **fields: Any) -> FakeCluster:
    """A node with shares and exclusive GPUs."""
    have = {"aliyun.com/gpu-mem": str(15 * count), "aliyun.com/gpu": str(count)}
    return cluster.node("n", gpus=[Gpu(15)] * count, resources=have, **fields)


def affinity(operator: str, *values: str) -> dict[str, Any]:
    """A required node affinity for label ``gpu``."""
    rule = {"key": "gpu", "operator": operator, **({"values": list(values)} if values else {})}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def gang(size: str) -> dict[str, Any]:
    """Metadata of a pod of a gang."""
    prefix = "pod-group.scheduling.sigs.k8s.io"
    labels = {f"{prefix}/name": "g", f"{prefix}/min-available": size}
    return {"metadata": {"labels": labels}}


def box(units: int, **requests: str) -> dict[str, Any]:
    """A container with units of GPU memory and other requests."""
    limits = {"aliyun.com/gpu-mem": str(units)}
    return {"name": "c", "resources": {"limits": limits, "requests": requests}}


def away(cluster: FakeCluster) -> None:
    """The last node's device plugin is stopped."""
    annotations = cluster.items[-1]["metadata"]["annotations"]
    inventory = json.loads(annotations["gpushare/inventory"])
    annotations["gpushare/inventory"] = json.dumps({**inventory, "serving": False})
