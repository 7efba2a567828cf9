"""A stand-in for the extender: best fit by the annotations of live pods, in one write per pod."""

import random
from collections import Counter
from typing import Any

from fakecluster.objects import pod
from msgspec import json

from gpucore.model import Inventory, Placement
from gpucore.units import GpuIndex, NodeName
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.placements import annotations_of
from gpucore.wire.pods import claim_of, decode_pod, demand_of
from gpukube.testing.apiserver import FakeApiServer

Asks = list[dict[str, int]]


class FakeScheduler:
    """Places pods on the cards of one node."""

    def __init__(self, cluster: FakeApiServer, inventory: Inventory, *, seed: int = 0) -> None:
        self._cluster = cluster
        self._inventory = inventory
        self.random = random.Random(seed)

    def used(self) -> Counter[GpuIndex]:
        """Units on each card, by the annotations of pods that have not ended."""
        total: Counter[GpuIndex] = Counter()
        for item in self._cluster.pods.objects.values():
            claim = claim_of(decode_pod(json.encode(item)), DEFAULT_NAMES)
            if claim is not None:
                total.update(claim.placement.mem)
        return total

    def create(self, name: str, containers: Asks, *, inits: Asks = [], plan: bool = True) -> bool:  # noqa: B006
        """Create a bound pod with a plan (or without one); false where no card has room."""
        item = pod(name, containers, inits=inits)
        demand = demand_of(decode_pod(json.encode(item)), DEFAULT_NAMES)
        assert demand is not None
        used = self.used()
        fitting = [g for g in self._inventory.gpus if g.units - used[g.index] >= demand.mem]
        if not fitting:
            return False
        best = min(fitting, key=lambda gpu: (gpu.units - used[gpu.index], gpu.index))
        if plan:
            item["metadata"]["annotations"] = self._annotations(best.index, demand)
        self._cluster.pods.put(item)
        return True

    def _annotations(self, card: GpuIndex, demand: Any) -> dict[str, str]:
        mem = {place: {card: ask.mem} for place, ask in enumerate(demand.containers) if ask.mem}
        core = {card: demand.core} if demand.core else {}
        placement = Placement(NodeName("n1"), {card: demand.mem}, core, mem)
        return annotations_of(
            placement, demand, DEFAULT_NAMES, inventory=self._inventory, assume_time=1
        )

    def end(self, name: str) -> None:
        """The pod completes and goes."""
        item = self._cluster.pods.objects["default", name]
        self._cluster.pods.put(item | {"status": {"phase": "Succeeded"}})
        self._cluster.pods.delete("default", name)
