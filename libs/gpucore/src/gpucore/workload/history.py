"""The mix of a cluster, learned from the pods that came lately.

Every pod with GPUs counts once, by the time of its creation, whether it waits, runs or has ended:
long and short pods count alike. It counts half where it is three days older than the newest one.
What is kept is bounded. A process that starts again takes over what was saved of an earlier one and
counts the pods that exist and were created since.

A tenant must not steer the placement of all others. Namespaces with less than
:data:`SMALL_PART` of the pods do not count while the others have most of them, and the mix that is
in use stays until the learned one differs by more than :data:`DIFFERENCE`. So a namespace that
floods the cluster with odd pods moves nothing before it is a tenth of all pods.
"""

import itertools
from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from typing import Final

import msgspec

from gpucore.steps import Steps
from gpucore.units import GIB, MemoryUnit, PodUid
from gpucore.workload.arrivals import (
    EMPTY,
    MOST_PODS,
    VERSION,
    Arrival,
    Models,
    NodeLabels,
    SavedHistory,
    aged,
    bounded,
    saved_part,
)
from gpucore.workload.known_selectors import KnownSelectors, in_turn, weights_by_namespace
from gpucore.workload.pod_mix import PodKind, PodMix, usual_mix

FEWEST_PODS: Final = 20
"""With fewer pods the mix is not known."""
SMALL_PART: Final = 0.1
"""Part of the pods below which a namespace is small."""
MOST: Final = 0.5
"""Part of the pods that namespaces which are not small must have to decide alone."""
DIFFERENCE: Final = 0.15
"""Part of the weight by which two mixes may differ and count as one."""
MOST_DIFFERENT: Final = 1024
"""Different kinds that are kept once for all their pods."""
PODS_A_STEP: Final = 500
SETTLED_SECONDS: Final = 60.0
"""Pods that are this much older than the newest are saved: all of them have come by the watch."""


class PodHistory:
    """The pods that came lately.

    Args:
        limit: maximum number of pods.
    """

    def __init__(self, limit: int = MOST_PODS) -> None:
        self._limit = limit
        self._arrivals: dict[PodUid, Arrival] = {}
        self._by_age: list[tuple[float, int, PodUid]] = []  # a heap: the oldest first
        self._numbers = itertools.count()
        self._kinds: dict[PodKind, PodKind] = {}
        self._selectors = KnownSelectors()
        self._earlier = EMPTY

    def __len__(self) -> int:
        """How many pods are counted."""
        return len(self._arrivals) + self._earlier.pods

    def __contains__(self, uid: PodUid) -> bool:
        """Whether the pod is counted."""
        return uid in self._arrivals

    def misses(self, uid: PodUid, created: float) -> bool:
        """Whether a pod that was created then would be counted anew.

        Pods that were created before what was saved ends are counted there, and beyond the limit
        the newest stay.
        """
        if uid in self._arrivals or created < self._earlier.until:
            return False
        return len(self._arrivals) < self._limit or created >= self._oldest()

    def note(self, uid: PodUid, arrival: Arrival) -> None:
        """Count a pod if it is missing; one that is counted stays as it is."""
        if not self.misses(uid, arrival.created):
            return
        if len(self._arrivals) >= self._limit:
            self._drop_oldest()
        heappush(self._by_age, (arrival.created, next(self._numbers), uid))
        self._arrivals[uid] = msgspec.structs.replace(
            arrival,
            kind=self._shared(arrival.kind),
            selector=self._selectors.add(arrival.namespace, arrival.selector),
        )

    def selectors(self) -> Steps[list[NodeLabels]]:
        """Different selectors of the namespaces that decide the mix, by turns, in steps."""
        counted = list(self._counted(self._newest()))
        namespaces = yield from weights_by_namespace(counted)
        pods = {namespace: sum(weights.values()) for namespace, weights in namespaces.items()}
        return in_turn({namespace: namespaces[namespace] for namespace in deciding(pods)})

    def weights(self, models: Models, unit: MemoryUnit = GIB) -> Steps[dict[PodKind, float]]:
        """Weight of each kind of pods; empty while there are too few, in steps.

        Args:
            models: by which selectors become GPU models.
            unit: in which the nodes count GPU memory.
        """
        tenants: dict[str, dict[PodKind, float]] = {}
        if len(self) < FEWEST_PODS:
            return {}
        for number, (arrival, weight) in enumerate(list(self._counted(self._newest()))):
            if number % PODS_A_STEP == 0:
                yield
            kind = arrival.kind_on(models(arrival.selector), unit)
            mine = tenants.setdefault(arrival.namespace, {})
            mine[kind] = mine.get(kind, 0.0) + weight
        return _together(tenants)

    def saved(self) -> Steps[SavedHistory]:
        """What another process needs to go on from here, in steps."""
        until = self._newest() - SETTLED_SECONDS
        if until <= self._earlier.until:
            return self._earlier
        sums: dict[Arrival, float] = {}
        for number, (arrival, weight) in enumerate(list(self._counted(until, before=until))):
            if number % PODS_A_STEP == 0:
                yield
            same = msgspec.structs.replace(arrival, created=0.0)
            sums[same] = sums.get(same, 0.0) + weight
        parts = yield from bounded(saved_part(each, weight) for each, weight in sums.items())
        pods = sum(each.created < until for each in self._arrivals.values())
        return SavedHistory(until, min(self._earlier.pods + pods, MOST_PODS), parts, VERSION)

    def restore(self, saved: SavedHistory) -> None:
        """Take over what an earlier process saved; pods that it counted are not counted again."""
        self._earlier = saved
        while self._by_age and self._oldest() < saved.until:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, _, uid = heappop(self._by_age)
        gone = self._arrivals.pop(uid)
        self._selectors.drop(gone.namespace, gone.selector)

    def _shared(self, kind: PodKind) -> PodKind:
        """Equal kinds as one object, as far as few enough differ."""
        if kind in self._kinds or len(self._kinds) < MOST_DIFFERENT:
            return self._kinds.setdefault(kind, kind)
        return kind

    def _oldest(self) -> float:
        created, _, _ = self._by_age[0]
        return created

    def _newest(self) -> float:
        created = (arrival.created for arrival in self._arrivals.values())
        return max(created, default=self._earlier.until)

    def _counted(
        self, at: float, *, before: float = float("inf")
    ) -> Iterator[tuple[Arrival, float]]:
        """Pods with their weights at a time; those that were saved as one for each part.

        Args:
            before: pods that were created then or later are left out.
        """
        since = aged(at - self._earlier.until)
        for part in self._earlier.parts:
            yield part.arrival(), part.weight * since
        for arrival in self._arrivals.values():
            if arrival.created < before:
                yield arrival, aged(at - arrival.created)


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
