"""Pods that came, as they are counted, and how much one counts by its age."""

from collections.abc import Callable
from math import exp2
from typing import Final

import msgspec

from gpucore.model.constraints import NodeSelectorTerm
from gpucore.units import MemoryUnit
from gpucore.workload.pod_mix import PodKind

HALF_LIFE_SECONDS: Final = 3 * 24 * 3600


class NodeLabels(msgspec.Struct, frozen=True):
    """Labels that a pod requires of its node."""

    labels: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None


ANY_NODE: Final = NodeLabels()
Models = Callable[[NodeLabels], tuple[str, ...]]
"""The GPU models of the nodes that a selector allows; empty for all."""


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """A pod that came.

    Attributes:
        kind: its requests, without GPU models.
        selector: from which the GPU models follow.
        created: Unix seconds.
        claimed_mib: memory in MiB that it requests of each GPU by claims, in place of ``kind.mem``.
    """

    namespace: str
    kind: PodKind
    selector: NodeLabels = ANY_NODE
    created: float = 0.0
    claimed_mib: int = 0

    def kind_on(self, models: tuple[str, ...], unit: MemoryUnit) -> PodKind:
        """Its kind in a cluster of this unit, on nodes of these GPU models."""
        mem = unit.units_for(self.claimed_mib) or self.kind.mem
        if not models and mem == self.kind.mem:
            return self.kind
        return msgspec.structs.replace(self.kind, mem=mem, models=models)


def aged(seconds: float) -> float:
    """The weight of a pod that is this much older than one of the weight 1."""
    return exp2(-seconds / HALF_LIFE_SECONDS)
