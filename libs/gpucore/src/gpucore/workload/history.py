"""The mix of a cluster, learned from the pods that came lately.

Every pod with GPUs counts once, by the time of its creation, whether it waits, runs or has ended:
long and short pods count alike. It counts half where it is :data:`HALF_LIFE_SECONDS` older than the
newest one. What is kept is bounded; a process that starts again counts the pods that exist.

A tenant must not steer the placement of all others. Namespaces with less than
:data:`SMALL_PART` of the pods do not count while the others have most of them, and the mix that is
in use stays until the learned one differs by more than :data:`DIFFERENCE`. So a namespace that
floods the cluster with odd pods moves nothing before it is a tenth of all pods.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec

from gpucore.model.constraints import NodeSelectorTerm
from gpucore.steps import Steps
from gpucore.units import GIB, MemoryUnit, PodUid
from gpucore.workload.pod_mix import PodKind, PodMix, usual_mix

T = TypeVar("T")

MOST_PODS: Final = 20_000
"""Pods that are kept; beyond that, the oldest are dropped."""
HALF_LIFE_SECONDS: Final = 3 * 24 * 3600
FEWEST_PODS: Final = 20
"""With fewer pods the mix is not known."""
SMALL_PART: Final = 0.1
"""Part of the pods below which a namespace is small."""
MOST: Final = 0.5
"""Part of the pods that namespaces which are not small must have to decide alone."""
DIFFERENCE: Final = 0.15
"""Part of the weight by which two mixes may differ and count as one."""
MOST_DIFFERENT: Final = 1024
"""Different kinds and selectors that are kept once for all their pods."""
PODS_A_STEP: Final = 500


class NodeLabels(msgspec.Struct, frozen=True):
    """Labels that a pod requires of its node."""

    labels: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None


ANY_NODE: Final = NodeLabels()


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


Models = Callable[[NodeLabels], tuple[str, ...]]
"""The GPU models of the nodes that a selector allows; empty for all."""


class PodHistory:
    """The pods that came lately.

    Args:
        limit: maximum number of pods.
    """

    def __init__(self, limit: int = MOST_PODS) -> None:
        self._limit = limit
        self._arrivals: OrderedDict[PodUid, Arrival] = OrderedDict()
        self._kinds: dict[PodKind, PodKind] = {}
        self._selectors: dict[NodeLabels, NodeLabels] = {ANY_NODE: ANY_NODE}

    def __len__(self) -> int:
        """How many pods are kept."""
        return len(self._arrivals)

    def __contains__(self, uid: PodUid) -> bool:
        """Whether the pod is counted."""
        return uid in self._arrivals

    def note(self, uid: PodUid, arrival: Arrival) -> None:
        """Count a pod; one that is counted stays as it is, and beyond the limit the newest stay."""
        if uid in self._arrivals:
            return
        if len(self._arrivals) >= self._limit:
            first = next(iter(self._arrivals))
            if arrival.created < self._arrivals[first].created:
                return
            del self._arrivals[first]
        self._arrivals[uid] = msgspec.structs.replace(
            arrival,
            kind=_shared(self._kinds, arrival.kind, arrival.kind),
            selector=_shared(self._selectors, arrival.selector, ANY_NODE),
        )

    def selectors(self) -> list[NodeLabels]:
        """Different selectors of the pods, at most :data:`MOST_DIFFERENT`."""
        return list(self._selectors)

    def weights(self, models: Models, unit: MemoryUnit = GIB) -> Steps[dict[PodKind, float]]:
        """Weight of each kind of pods; empty while there are too few, in steps.

        Args:
            models: by which selectors become GPU models.
            unit: in which the nodes count GPU memory.
        """
        tenants: dict[str, dict[PodKind, float]] = {}
        if len(self._arrivals) < FEWEST_PODS:
            return {}
        newest = max(arrival.created for arrival in self._arrivals.values())
        for number, arrival in enumerate(list(self._arrivals.values())):
            if number % PODS_A_STEP == 0:
                yield
            kind = arrival.kind_on(models(arrival.selector), unit)
            age = newest - arrival.created
            mine = tenants.setdefault(arrival.namespace, {})
            mine[kind] = mine.get(kind, 0.0) + 0.5 ** (age / HALF_LIFE_SECONDS)
        return _together(tenants)


def _shared(known: dict[T, T], value: T, further: T) -> T:
    """Equal values as one object; ``further`` where too many differ."""
    if value in known or len(known) < MOST_DIFFERENT:
        return known.setdefault(value, value)
    return further


def _together(tenants: Mapping[str, Mapping[PodKind, float]]) -> dict[PodKind, float]:
    """The kinds of all namespaces, with what each namespace counts."""
    pods = {namespace: sum(kinds.values()) for namespace, kinds in tenants.items()}
    found: dict[PodKind, float] = {}
    for namespace in deciding(pods):
        for kind, weight in tenants[namespace].items():
            found[kind] = found.get(kind, 0.0) + weight
    return found


def deciding(pods: Mapping[str, float]) -> list[str]:
    """The namespaces that decide the mix, by the number of pods of each."""
    total = sum(pods.values())
    large = [namespace for namespace, count in pods.items() if count >= SMALL_PART * total]
    return large if sum(pods[each] for each in large) >= MOST * total else list(pods)


def difference(one: Mapping[PodKind, float], other: Mapping[PodKind, float]) -> float:
    """Part of the weight that lies on other kinds, 0 to 1."""
    first, second = sum(one.values()), sum(other.values())
    if not first or not second:
        return float(bool(first) != bool(second))
    kinds = one.keys() | other.keys()
    parts = (abs(one.get(k, 0.0) / first - other.get(k, 0.0) / second) for k in kinds)
    return sum(parts) / 2


class LearnedMix:
    """The mix in use, and the pods from which it is learned.

    Attributes:
        history: the pods that came lately.
        mix: in use; ``None`` while there were too few pods.
    """

    def __init__(self, history: PodHistory | None = None) -> None:
        self.history = PodHistory() if history is None else history
        self.mix: PodMix | None = None
        self._weights: Mapping[PodKind, float] = {}

    def learn(self, models: Models, unit: MemoryUnit = GIB) -> Steps[bool]:
        """Use what the pods say now, where that differs; whether the mix in use changed.

        Args:
            models: as in :meth:`PodHistory.weights`; ``unit`` likewise.
        """
        found = yield from self.history.weights(models, unit)
        if not found or difference(found, self._weights) <= DIFFERENCE:
            return False
        self._weights, self.mix = found, usual_mix(found)
        return True
