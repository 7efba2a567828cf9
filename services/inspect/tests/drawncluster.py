"""Clusters made of the JSON that an API server would send."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpucore.units import MemoryUnit


class Gpu(NamedTuple):
    """One GPU of an inventory."""

    units: int
    model: str = "Tesla T4"
    healthy: bool = True
    mode: str = "none"


class FakeCluster:
    """Nodes and pods as ``kubectl get nodes,pods -A -o json`` prints them."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []

    def node(
        self,
        name: str,
        *,
        address: str = "",
        total: int = 0,
        count: int = 1,
        gpus: Sequence[Gpu] = (),
        unit: str = "GiB",
        labels: Mapping[str, str] | None = None,
        cordoned: bool = False,
        ready: bool = True,
        resources: Mapping[str, str] | None = None,
        allocatable: Mapping[str, str] | None = None,
    ) -> "FakeCluster":
        """A node with an original plugin (``total``, ``count``), or one with its ``gpus``.

        What kubelet allocates is its capacity, but for the amounts in ``allocatable``.
        """
        total = total or sum(gpu.units for gpu in gpus)
        have = {"aliyun.com/gpu-mem": str(total), "aliyun.com/gpu-count": str(len(gpus) or count)}
        have = dict(resources) if resources is not None else have
        annotations = {"gpushare/inventory": _inventory(name, gpus, unit)} if gpus else {}
        addresses = [{"type": "InternalIP", "address": address}] if address else []
        self.items.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "annotations": annotations,
                    "labels": {"gpushare": "true", **(labels or {})},
                },
                "spec": {"unschedulable": True} if cordoned else {},
                "status": {
                    "capacity": have,
                    "allocatable": {**have, **(allocatable or {})},
                    "addresses": addresses,
                    "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
                },
            }
        )
        return self

    def pod(
        self,
        name: str,
        units: int | Sequence[int] = 0,
        *,
        node: str = "",
        index: int | str | None = None,
        namespace: str = "default",
        phase: str = "Running",
        annotations: Mapping[str, str] | None = None,
        limits: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> "FakeCluster":
        """A pod whose containers request ``units``, placed on GPU ``index`` of ``node``."""
        amounts = [units] if isinstance(units, int) else list(units)
        placed = {} if index is None else {"ALIYUN_COM_GPU_MEM_IDX": str(index)}
        per_container = [{"aliyun.com/gpu-mem": str(n)} if n else {} for n in amounts]
        self.items.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": f"uid-{namespace}-{name}",
                    "annotations": {**placed, **(annotations or {})},
                    "creationTimestamp": "2026-01-02T03:04:05Z",
                    **fields.pop("metadata", {}),
                },
                "spec": {
                    **({"nodeName": node} if node else {}),
                    "schedulerName": "gpushare-scheduler",
                    "containers": [
                        {"name": f"c{i}", "resources": {"limits": {**own, **(limits or {})}}}
                        for i, own in enumerate(per_container)
                    ],
                    **fields.pop("spec", {}),
                },
                "status": {"phase": phase, **fields.pop("status", {})},
                **fields,
            }
        )
        return self

    def add(self, item: dict[str, Any]) -> "FakeCluster":
        """Any other object."""
        self.items.append(item)
        return self

    def json(self) -> str:
        """The list."""
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": self.items})


def _inventory(node: str, indexes: Sequence[Gpu], unit: str) -> str:
    gpus = [
        {
            "index": index,
            "minor": index,
            "uuid": f"GPU-{node}-{index}",
            "model": gpu.model,
            "units": gpu.units,
            "memoryMiB": MemoryUnit.parse(unit).mib * gpu.units,
            "numa": 0,
            "healthy": gpu.healthy,
            "mode": gpu.mode,
        }
        for index, gpu in enumerate(indexes)
    ]
    return json.dumps({"version": 1, "unit": unit, "driver": "580.95.05", "gpus": gpus})
