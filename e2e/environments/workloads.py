"""The pods and jobs that cases and demo create, as plain objects."""

from collections.abc import Mapping, Sequence
from typing import Any

Object = dict[str, Any]

SCHEDULER = "gpushare-scheduler"
GPU_MEM = "aliyun.com/gpu-mem"
GPU = "aliyun.com/gpu"


def pod(
    name: str,
    units: Sequence[int],
    *,
    namespace: str,
    image: str,
    node: str | None = None,
    command: Sequence[str] = (),
    resource: str = GPU_MEM,
    labels: Mapping[str, str] | None = None,
) -> Object:
    """A pod with one container for each entry of ``units`` (of ``resource``; 0 requests none)."""
    containers = [
        _container(f"c{position}", {resource: amount}, image=image, command=command)
        for position, amount in enumerate(units)
    ]
    spec: Object = {
        "schedulerName": SCHEDULER,
        "terminationGracePeriodSeconds": 1,
        "containers": containers,
    }
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    meta = {"name": name, "namespace": namespace, "labels": {"app": name, **(labels or {})}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def job(
    name: str,
    units: int,
    *,
    namespace: str,
    image: str,
    node: str,
    script: str,
    resource: str = GPU_MEM,
) -> Object:
    """A Job of one pod that runs a shell script on its GPUs and ends."""
    template = pod(
        name,
        [units],
        namespace=namespace,
        image=image,
        node=node,
        command=["sh", "-c", script],
        resource=resource,
    )
    spec = {**template["spec"], "restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": template["metadata"],
        "spec": {"backoffLimit": 0, "template": {"spec": spec}},
    }


def deployment(
    name: str, units: int, *, replicas: int, namespace: str, image: str, node: str | None = None
) -> Object:
    """Equal pods on shares, as a user's Deployment makes them."""
    template = pod(name, [units], namespace=namespace, image=image, node=node)
    labels: Mapping[str, str] = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": template["metadata"],
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }


def namespace(name: str) -> Object:
    """A namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _container(
    name: str, requests: Mapping[str, int], *, image: str, command: Sequence[str]
) -> Object:
    container: Object = {"name": name, "image": image, "imagePullPolicy": "IfNotPresent"}
    if command:
        container["command"] = list(command)
    limits = {resource: str(amount) for resource, amount in requests.items() if amount}
    if limits:
        container["resources"] = {"limits": limits}
    return container
