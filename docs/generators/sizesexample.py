"""Writes docs/examples/sizes.json: the cluster of the guide to the right size.

A node with two GPUs, a chat server whose use was measured for nine days, and a pod that waits. The
histories are recorded by the code of the device plugin.
"""
# ruff: noqa: INP001 - a script beside the pages, no package

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from gpucore.sizing.history_documents import encode_histories
from gpucore.sizing.usage_history import UsageHistory, WorkloadKey

FILE = Path(__file__).resolve().parents[1] / "examples" / "sizes.json"
GIB: Final = 1 << 30
DAY: Final = 86400
NOW: Final = 1_795_600_000
"""26 November 2026."""
CREATED: Final = "2026-11-16T09:00:00Z"
Object = dict[str, Any]


def example() -> Object:
    """The list, as ``kubectl get -o json`` prints it, with the histories."""
    pods = [
        _pod("chat-6d9f7c5b8-q4x7t", "chat-6d9f7c5b8", 16, gpu=0),
        _pod("summarize-5c8d7f9b4-m2k8w", "summarize-5c8d7f9b4", 18, gpu=1),
        _pod("rerank-7b6c9d8f5-t9z4n", "rerank-7b6c9d8f5", 12),
    ]
    histories = [
        _history("chat", 16, (5.1, 5.3, 5.2, 5.8, 5.6, 5.4, 6.4, 5.5, 5.2)),
        _history("summarize", 18, (11.2, 12.0, 11.6, 12.4, 11.9, 13.1, 12.2, 12.5, 11.8)),
    ]
    items = [_node(), *pods, json.loads(encode_histories("gpu-a", histories))]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def text() -> str:
    """The file as it should be."""
    return json.dumps(example(), indent=1) + "\n"


def _history(name: str, units: int, days: Iterable[float]) -> UsageHistory:
    """Nine days, 48 samples a day."""
    found = UsageHistory(WorkloadKey("research", "Deployment", name, "main"), pods=3, starts=10)
    requested = units * GIB
    for day, used in enumerate(days):
        moment = NOW - (9 - day) * DAY
        for _ in range(48):
            found.record(moment, int(used * GIB), requested_bytes=requested, limit_bytes=0)
    found.requested_bytes = requested
    found.first_seen, found.last_seen = NOW - 9 * DAY, NOW
    return found


def _node() -> Object:
    gpus = [
        {"index": i, "minor": i, "uuid": f"GPU-gpu-a-{i}", "model": "NVIDIA A10", "units": 22}
        | {"memoryMiB": 22 * 1024, "numa": 0, "healthy": True, "mode": "none"}
        for i in range(2)
    ]
    inventory = {"version": 1, "unit": "GiB", "driver": "580.95.05", "gpus": gpus}
    have = {"aliyun.com/gpu-mem": "44", "aliyun.com/gpu-count": "2", "pods": "110"}
    metadata = {"name": "gpu-a", "labels": {"gpushare": "true"}}
    metadata["annotations"] = {"gpushare/inventory": json.dumps(inventory)}
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"capacity": have, "allocatable": have, "conditions": conditions}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def _pod(name: str, owner: str, units: int, *, gpu: int | None = None) -> Object:
    reference: Object = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner}
    reference |= {"uid": f"uid-{owner}", "controller": True}
    metadata: Object = {"name": name, "namespace": "research", "uid": f"uid-{name}"}
    metadata |= {"creationTimestamp": CREATED, "ownerReferences": [reference]}
    metadata["labels"] = {"pod-template-hash": owner.rpartition("-")[2]}
    resources = {"limits": {"aliyun.com/gpu-mem": str(units)}}
    container = {"name": "main", "image": "registry.example/model", "resources": resources}
    spec: Object = {"schedulerName": "gpushare-scheduler", "containers": [container]}
    if gpu is not None:
        spec["nodeName"] = "gpu-a"
        metadata["annotations"] = {
            "ALIYUN_COM_GPU_MEM_IDX": str(gpu),
            "ALIYUN_COM_GPU_MEM_POD": str(units),
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
        }
    status = {"phase": "Pending" if gpu is None else "Running"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
