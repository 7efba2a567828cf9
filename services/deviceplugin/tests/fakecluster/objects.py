"""Pods and nodes as an API server would write them."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

Object = dict[str, Any]
Requests = Mapping[str, int]

_numbers = itertools.count(1)


def pod(
    name: str,
    containers: Sequence[Requests],
    *,
    node: str = "n1",
    inits: Sequence[Requests] = (),
    sidecars: Sequence[Requests] = (),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    created: int | None = None,
    namespace: str = "default",
) -> Object:
    """A bound pod; a request is ``{"gpu-mem": 3}`` without the domain."""
    number = next(_numbers)
    second = number if created is None else created
    return {
        "metadata": {
            "uid": f"uid-{number}",
            "namespace": namespace,
            "name": name,
            "creationTimestamp": _time(second),
            "annotations": dict(annotations or {}),
            "labels": dict(labels or {}),
        },
        "spec": {
            "nodeName": node,
            "containers": [_container(f"c{i}", request) for i, request in enumerate(containers)],
            "initContainers": [
                *(_container(f"i{i}", request) for i, request in enumerate(inits)),
                *(
                    _container(f"s{i}", request) | {"restartPolicy": "Always"}
                    for i, request in enumerate(sidecars)
                ),
            ],
        },
        "status": {"phase": "Pending"},
    }


def _time(second: int) -> str:
    return f"2026-01-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"


def _container(name: str, request: Requests) -> Object:
    limits = {f"aliyun.com/{resource}": str(amount) for resource, amount in request.items()}
    return {"name": name, "resources": {"limits": limits, "requests": limits}}


def planned(gpu: int, amount: int, *, dev: int = 15) -> dict[str, str]:
    """The annotations that a bind writes for a share of one GPU."""
    return {
        "ALIYUN_COM_GPU_MEM_IDX": str(gpu),
        "ALIYUN_COM_GPU_MEM_DEV": str(dev),
        "ALIYUN_COM_GPU_MEM_POD": str(amount),
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1700000000000000000",
    }


def node(name: str = "n1", labels: Mapping[str, str] | None = None) -> Object:
    """A node that offers shares unless its labels differ."""
    return {
        "metadata": {
            "uid": f"node-{name}",
            "name": name,
            "labels": dict({"gpushare": "true"} if labels is None else labels),
            "annotations": {},
        },
        "status": {"capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"}},
    }
