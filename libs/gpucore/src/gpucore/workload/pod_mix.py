"""The mix of pods that usually come, as a node sees it by the CPU and memory that it has left.

Free GPUs on a node without free CPU are as unusable as a quarter of a GPU that no request matches.
A kind that the node's CPU or memory does not admit at all makes all free parts fragments, as in the
published formula. Beyond the formula, GPUs also count where the CPU is enough for one pod of a kind
and not for as many as the free GPUs could hold: these are scarce rather than lost, so they count by
a part (:data:`SCARCE`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final, TypeVar

import msgspec

from gpucore.units import MILLI
from gpucore.workload.kinds import TYPICAL, Kind, Workload

K = TypeVar("K")
V = TypeVar("V")

SCARCE: Final = 0.15
"""Part by which GPUs count that CPU or memory would keep free if one kind of pods alone came."""
VIEWS: Final = 4096
"""Views and scarcities of one mix that are kept."""
CPU_STEP_MILLI: Final = 250
MEMORY_STEP_MIB: Final = 1024
CORE_MILLI: Final = 10
"""Thousandths of a GPU in one percent of its compute."""
COVERED: Final = 0.98
"""Part of the pods whose kinds are in a mix: the rest is too rare to keep room for."""
MOST_KINDS: Final = 128
UNLIMITED: Final = 1 << 60


class PodKind(msgspec.Struct, frozen=True, order=True):
    """One kind of pods: those with equal requests.

    Attributes:
        mem: units on each GPU; 0 for exclusive GPUs and for shares of compute alone.
        core: percent of each GPU.
        models: GPU models it runs on; empty for any.
    """

    gpus: int = 1
    mem: int = 0
    core: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    models: tuple[str, ...] = ()

    @property
    def exclusive(self) -> bool:
        """It requests GPUs for itself."""
        return not (self.mem or self.core)

    def milli(self, units: int) -> int:
        """Thousandths of each GPU, where a GPU has this number of units."""
        if self.exclusive or not units:
            return MILLI
        return max(-(-self.mem * MILLI // units), self.core * CORE_MILLI)


class _Seen(msgspec.Struct, frozen=True):
    """A kind as nodes of one sort see it."""

    weight: float
    milli: int
    gpus: int
    cpu_milli: int
    memory_mib: int

    def limit(self, cpu_milli: int, memory_mib: int) -> int:
        """Thousandths of GPUs that pods of this kind alone could use with this CPU and memory."""
        cpu = cpu_milli // self.cpu_milli if self.cpu_milli else UNLIMITED
        memory = memory_mib // self.memory_mib if self.memory_mib else UNLIMITED
        return min(cpu, memory) * self.milli * self.gpus


class _Scarcity:
    """Free thousandths beyond what the CPU and memory of a node let each kind use."""

    def __init__(self, limits: Iterable[tuple[int, float]], total: float) -> None:
        ordered = sorted(limits)
        self._limits = [limit for limit, _ in ordered]
        self._weights = list(accumulate((weight for _, weight in ordered), initial=0.0))
        sums = (limit * weight for limit, weight in ordered)
        self._sums = list(accumulate(sums, initial=0.0))
        self._scale = SCARCE / total / MILLI if total else 0.0

    def beyond(self, free: int) -> float:
        """GPUs by which ``free`` thousandths are more than can be used."""
        if not self._limits or free <= self._limits[0]:
            return 0.0
        number = bisect_left(self._limits, free)
        return self._scale * (free * self._weights[number] - self._sums[number])


NO_SCARCITY: Final = _Scarcity((), 0.0)


class MixView(msgspec.Struct, frozen=True):
    """The mix for one node in its present state."""

    workload: Workload
    scarcity: _Scarcity

    def fragmentation(self, free: tuple[int, ...]) -> float:
        """GPUs of the free parts that the mix cannot use.

        Args:
            free: thousandths free on each GPU, sorted.
        """
        return self.workload.fragmentation(free) + self.scarcity.beyond(sum(free))


GUESS: Final = MixView(TYPICAL, NO_SCARCITY)
"""What a node sees while the mix is not known."""


class _NodeSort:
    """Nodes with the same GPU model and size, which see the same kinds."""

    def __init__(self, kinds: Mapping[PodKind, float], model: str, units: int) -> None:
        mine = [(k, w) for k, w in kinds.items() if not k.models or model in k.models]
        self._kinds = [
            _Seen(weight, kind.milli(units), kind.gpus, kind.cpu_milli, kind.memory_mib)
            for kind, weight in mine
        ]
        self._total = sum(kinds.values())
        self._cpus = sorted({kind.cpu_milli for kind in self._kinds})
        self._memories = sorted({kind.memory_mib for kind in self._kinds})
        self._workloads: dict[tuple[int, int], Workload] = {}
        self._scarcities: dict[tuple[int, int], _Scarcity] = {}

    def view(self, cpu_milli: int, memory_mib: int) -> MixView:
        """The mix where this CPU and memory are left."""
        fit = bisect_right(self._cpus, cpu_milli), bisect_right(self._memories, memory_mib)
        workload = self._workloads.get(fit)
        if workload is None:
            workload = _keep(self._workloads, fit, self._workload(cpu_milli, memory_mib))
        steps = cpu_milli // CPU_STEP_MILLI, memory_mib // MEMORY_STEP_MIB
        scarcity = self._scarcities.get(steps)
        if scarcity is None:
            found = self._scarcity(steps[0] * CPU_STEP_MILLI, steps[1] * MEMORY_STEP_MIB)
            scarcity = _keep(self._scarcities, steps, found)
        return MixView(workload, scarcity)

    def _workload(self, cpu_milli: int, memory_mib: int) -> Workload:
        fitting = [
            kind
            for kind in self._kinds
            if kind.cpu_milli <= cpu_milli and kind.memory_mib <= memory_mib
        ]
        unresolvable = max(self._total - sum(kind.weight for kind in fitting), 0.0)
        kinds = (Kind(kind.weight, kind.milli, kind.gpus) for kind in fitting)
        return Workload(kinds, unresolvable=unresolvable)

    def _scarcity(self, cpu_milli: int, memory_mib: int) -> _Scarcity:
        limits = ((kind.limit(cpu_milli, memory_mib), kind.weight) for kind in self._kinds)
        return _Scarcity(((limit, weight) for limit, weight in limits if limit), self._total)


def _keep(known: dict[K, V], key: K, value: V) -> V:
    if len(known) >= VIEWS:
        known.clear()
    known[key] = value
    return value


class PodMix:
    """Kinds of pods with their weights.

    Args:
        kinds: weight by kind; the weights need not add up to 1.
    """

    def __init__(self, kinds: Mapping[PodKind, float]) -> None:
        self.kinds = dict(kinds)
        self._sorts: dict[tuple[str, int], _NodeSort] = {}
        self._views: dict[tuple[str, int, int, int], MixView] = {}

    def view(self, model: str, units: int, cpu_milli: int, memory_mib: int) -> MixView:
        """The mix as a node sees it.

        Args:
            units: of one GPU.
            cpu_milli: thousandths of a CPU that are left.
            memory_mib: host memory that is left, in MiB.
        """
        key = model, units, cpu_milli, memory_mib
        known = self._views.get(key)
        if known is None:
            sort = self._sorts.get((model, units))
            if sort is None:
                sort = _keep(self._sorts, (model, units), _NodeSort(self.kinds, model, units))
            known = _keep(self._views, key, sort.view(cpu_milli, memory_mib))
        return known


def usual_mix(weights: Mapping[PodKind, float]) -> PodMix:
    """The mix of the most frequent kinds: those of nearly all pods, at most :data:`MOST_KINDS`."""
    ordered = sorted(weights.items(), key=lambda item: (-item[1], item[0]))
    left = COVERED * sum(weights.values())
    kinds: dict[PodKind, float] = {}
    for kind, weight in ordered[:MOST_KINDS]:
        if left <= 0.0:
            break
        kinds[kind] = weight
        left -= weight
    return PodMix(kinds)


class HostRoom(msgspec.Struct, frozen=True):
    """What a node has left besides GPUs, and the pods that usually come.

    Attributes:
        model, units: of its GPUs.
        cpu_milli, memory_mib: what is left of the host.
    """

    mix: PodMix
    model: str
    units: int
    cpu_milli: int = UNLIMITED
    memory_mib: int = UNLIMITED

    def view(self) -> MixView:
        """The mix as the node sees it now."""
        return self.mix.view(self.model, self.units, self.cpu_milli, self.memory_mib)

    def after(self, cpu_milli: int, memory_mib: int) -> "HostRoom":
        """What is left once a pod with this CPU and memory is there."""
        return HostRoom(
            self.mix,
            self.model,
            self.units,
            self.cpu_milli - cpu_milli,
            self.memory_mib - memory_mib,
        )
