"""Nodes and pods that exist only as objects, for a control plane without kubelets."""

import json
from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]

UNITS = 80
GPUS = 8
NAMESPACE = "default"


def nodes(count: int, *, gpus: int = GPUS, units: int = UNITS) -> Iterator[Object]:
    """GPU nodes ``node-00000`` ... as a device plugin would have left them, ready for pods."""
    return (_node(f"node-{i:05}", gpus, units) for i in range(count))


def running(
    count: int, nodes: int, *, gpus: int = GPUS, units: int = 1, kinds: int = 1
) -> Iterator[Object]:
    """Pods that already hold shares, dealt out evenly over nodes and GPUs.

    Args:
        units: of the smallest share.
        kinds: how many sizes there are, each a unit larger; mixed, so that nodes differ.
    """
    for number in range(count):
        node, gpu = number % nodes, (number // nodes) % gpus
        size = units + (number * 2_654_435_761 >> 16) % kinds
        yield _held(f"held-{number:06}", f"node-{node:05}", gpu, size)


def pod(name: str, units: int, *, scheduler: str, resource: str = "aliyun.com/gpu-mem") -> Object:
    """A pod that waits for a scheduler."""
    limits = {resource: str(units), "cpu": "10m"}
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


def inventory(name: str, count: int, units: int, *, healthy: bool = True) -> str:
    """The text of the inventory annotation of a machine of equal GPUs."""
    gpus = [
        {
            "index": i,
            "minor": i,
            "uuid": f"GPU-{name}-{i}",
            "model": "A100-SXM4-80GB",
            "units": units,
            "memoryMiB": units * 1024 + 512,
            "numa": i * 2 // count,
            "healthy": healthy,
            "mode": "none",
        }
        for i in range(count)
    ]
    return json.dumps({"version": 1, "unit": "GiB", "driver": "550", "gpus": gpus, "links": {}})


def _node(name: str, gpus: int, units: int) -> Object:
    amounts = {
        "cpu": "256",
        "memory": "2048Gi",
        "pods": "500",
        "aliyun.com/gpu-mem": str(gpus * units),
        "aliyun.com/gpu-count": str(gpus),
        "aliyun.com/gpu-core.percentage": str(gpus * 100),
    }
    labels = {"kubernetes.io/hostname": name, "gpushare": "true"}
    annotations = {"gpushare/inventory": inventory(name, gpus, units)}
    ready = {"type": "Ready", "status": "True", "reason": "FakeNode"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def _held(name: str, node: str, gpu: int, units: int) -> Object:
    item = pod(name, units, scheduler="none")
    item["spec"]["nodeName"] = node
    allocation = {"scheduler.framework.gpushare.allocation": json.dumps({"0": {str(gpu): units}})}
    item["metadata"]["annotations"] = _written(gpu, units, assigned="true") | allocation
    return item


def original_patch(gpu: int, units: int) -> Object:
    """What the original extender writes to a pod before its Binding."""
    return {"metadata": {"annotations": _written(gpu, units, assigned="false")}}


def _written(gpu: int, units: int, *, assigned: str) -> dict[str, str]:
    return {
        "ALIYUN_COM_GPU_MEM_IDX": str(gpu),
        "ALIYUN_COM_GPU_MEM_DEV": str(UNITS),
        "ALIYUN_COM_GPU_MEM_POD": str(units),
        "ALIYUN_COM_GPU_MEM_ASSIGNED": assigned,
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1500000000000000000",
    }
