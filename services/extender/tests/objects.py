"""Nodes and pods as an API server would have them, as small as a case needs."""

import itertools
import json
from typing import Any

Object = dict[str, Any]
_counter = itertools.count(1)


def node(name: str, *units: int, unit: str | None = None, **labels: str) -> Object:
    """A node with a GPU for each of ``units``; with ``unit`` it has our inventory."""
    annotations = {}
    if unit is not None:
        gpus = [
            {"index": i, "minor": i, "uuid": f"GPU-{name}-{i}", "model": "T4", "units": u}
            for i, u in enumerate(units)
        ]
        annotations["gpushare/inventory"] = json.dumps({"version": 1, "unit": unit, "gpus": gpus})
    capacity = {"cpu": "8"}
    if units:
        capacity |= {"aliyun.com/gpu-mem": str(sum(units)), "aliyun.com/gpu-count": str(len(units))}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def whole_node(name: str, gpus: int) -> Object:
    """A node of the topology plugin: exclusive GPUs."""
    found = node(name)
    found["status"]["capacity"]["aliyun.com/gpu"] = str(gpus)
    return found


def pod(name: str, *mem: int, uid: str = "", gpus: int = 0, core: int = 0, **more: Any) -> Object:
    """A pod with a container for each of ``mem``, or one that requests ``gpus`` exclusive GPUs."""
    limits = [{"aliyun.com/gpu-mem": str(amount)} for amount in mem] or [{}]
    if gpus:
        limits[0]["aliyun.com/gpu"] = str(gpus)
    if core:
        limits[0]["aliyun.com/gpu-core.percentage"] = str(core)
    containers = [
        {"name": f"c{i}", "image": "i", "resources": {"limits": limit}}
        for i, limit in enumerate(limits)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": more.get("namespace", "default"),
            "uid": uid or f"uid-{name}-{next(_counter)}",
            "labels": more.get("labels", {}),
            "annotations": more.get("annotations", {}),
        },
        "spec": {"containers": containers, "priority": more.get("priority", 0)},
        "status": {"phase": more.get("phase", "Pending")},
    }


def placed(item: Object, node_name: str, gpu: int, *, phase: str = "Running") -> Object:
    """The pod as it is once it runs on a GPU, by the first generation's annotations."""
    limits = (c["resources"]["limits"] for c in item["spec"]["containers"])
    amount = sum(int(limit.get("aliyun.com/gpu-mem", 0)) for limit in limits)
    metadata = item["metadata"] | {
        "annotations": {
            "ALIYUN_COM_GPU_MEM_IDX": str(gpu),
            "ALIYUN_COM_GPU_MEM_POD": str(amount),
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
            "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1",
        }
    }
    return item | {
        "metadata": metadata,
        "spec": item["spec"] | {"nodeName": node_name},
        "status": {"phase": phase},
    }
