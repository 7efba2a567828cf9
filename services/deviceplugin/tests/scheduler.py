"""A stand-in for the extender: best fit by the annotations of live pods, in one write per pod."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fakecluster.objects import pod
from msgspec import json

from gpucore.model import Inventory, Placement
from gpucore.units import GpuIndex, NodeName
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.placements import annotations_of
from gpucore.wire.pod.spec import decode_pod
from gpucore.wire.whole_requests import pod_request_of
from gpukube.testing.apiserver import FakeApiServer

Limits = Sequence[Mapping[str, int]]


class FakeScheduler:
    """Places pods on the GPUs of one node."""

    def __init__(self, cluster: FakeApiServer, inventory: Inventory, *, seed: int = 0) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self.random = random.Random(seed)

    def used(self) -> Counter[GpuIndex]:
        """Units on each GPU, by the annotations of pods that have not ended."""
        total: Counter[GpuIndex] = Counter()
        for item in self._cluster.pods.objects.values():
            allocation = allocation_of(decode_pod(json.encode(item)), DEFAULT_NAMES)
            if allocation is not None:
                total.update(allocation.placement.mem)
        return total

    def create(
        self, name: str, containers: Limits, *, inits: Limits = (), plan: bool = True
    ) -> bool:
        """Create a bound pod with a plan (or without one); false where no GPU has room."""
        item = pod(name, containers, inits=inits)
        pod_request = pod_request_of(decode_pod(json.encode(item)), DEFAULT_NAMES)
        assert pod_request is not None
        used = self.used()
        fitting = [g for g in self._inventory.gpus if g.units - used[g.index] >= pod_request.mem]
        if not fitting:
            return False
        best = min(fitting, key=lambda gpu: (gpu.units - used[gpu.index], gpu.index))
        if plan:
            item["metadata"]["annotations"] = self._annotations(best.index, pod_request)
        self._cluster.pods.put(item)
        return True

    def _annotations(self, gpu: GpuIndex, pod_request: Any) -> dict[str, str]:
        mem = {
            place: {gpu: limit.mem}
            for place, limit in enumerate(pod_request.containers)
            if limit.mem
        }
        core = {gpu: pod_request.core} if pod_request.core else {}
        placement = Placement(NodeName("n1"), {gpu: pod_request.mem}, core, mem)
        return annotations_of(
            placement, pod_request, DEFAULT_NAMES, inventory=self._inventory, assume_time=1
        )

    def end(self, name: str) -> None:
        """The pod completes and goes."""
        item = self._cluster.pods.objects["default", name]
        self._cluster.pods.put(item | {"status": {"phase": "Succeeded"}})
        self._cluster.pods.delete("default", name)
