"""Allocation of a bound pod from three generations of annotations; it never counts too little.

The amount comes from the specification, which is immutable. Annotations only name the GPUs.
Impossible text is reported as a fault, and the larger of its amount and the specification's counts;
an amount without a GPU is *pending* on the node.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from gpucore.model import Allocation, AllocationState, GpuAmounts, Placement, PodRequest
from gpucore.units import GpuIndex, MemoryUnit, UnitError
from gpucore.wire import names as wire_names
from gpucore.wire.kept import kept_where
from gpucore.wire.names import Names
from gpucore.wire.pod.gangs import gang_of
from gpucore.wire.pod.placements import (
    EMPTY_ALLOCATION,
    MAX_INDEX,
    AllocationMap,
    decode_allocation,
    per_device,
)
from gpucore.wire.pod.requests import kai_limit, request_in
from gpucore.wire.pod.spec import Pod
from gpucore.wire.pod.texts import Texts, texts_of
from gpucore.wire.quantity import first_number, number


def allocation_of(pod: Pod, names: Names) -> Allocation | None:
    """What ``pod`` holds; ``None`` when it is unbound, has finished or requests no GPU.

    Raises:
        WireError: an amount of the specification is no Kubernetes quantity.
    """
    if not pod.node or pod.finished:
        return None
    texts = texts_of(pod, names)
    recorded = None if texts is None else _allocation_texts(texts, names)
    if recorded is None:
        return None
    gang = gang_of(pod)
    placement = recorded.placement
    return Allocation(  # a copy with changes would take 2 us more for each pod
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        state=recorded.state,
        placement=Placement(
            pod.node, placement.mem, placement.core, placement.containers, placement.group
        ),
        pending=recorded.pending,
        pending_core=recorded.pending_core,
        pending_gpus=recorded.pending_gpus,
        exclusive=recorded.exclusive,
        burst=recorded.burst or _kai_burst(pod, recorded.unit, names),
        unit=recorded.unit,
        assume_time=first_number(map(pod.annotations.get, _assume_time_keys(names))),
        gang="" if gang is None or pod.terminating else gang.name,
        faults=recorded.faults,
    )


def _kai_burst(pod: Pod, unit: MemoryUnit | None, names: Names) -> int:
    """Whole units of the limit that KAI's annotations give; 0 where the unit is not known."""
    return kai_limit(pod, unit, names) // unit.mib if unit else 0


@kept_where(lambda texts, _: texts.is_short())
def _allocation_texts(texts: Texts, names: Names) -> Allocation | None:
    """The allocation in a pod's texts, of a pod without a name on a node without one."""
    pod_request = request_in(texts, names)
    return None if pod_request is None else _Reader(texts.pod(), names, pod_request).recorded()


class _Reader:
    """One reading of a pod's annotations, which gathers faults on the way."""

    def __init__(self, pod: Pod, names: Names, pod_request: PodRequest) -> None:
        self._pod = pod
        self._names = names
        self._pod_request = pod_request
        self._faults: list[str] = []

    def recorded(self) -> Allocation:
        pod, pod_request = self._pod, self._pod_request
        containers, mem = self._memory()
        core = self._core(mem)
        group = self._group()
        return Allocation(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            state=AllocationState.CONFIRMED if self._assigned() else AllocationState.BOUND,
            placement=Placement(pod.node, mem, core, containers, group),
            pending=max(pod_request.mem - sum(mem.values()), 0),
            pending_core=max(pod_request.core - sum(core.values()), 0),
            pending_gpus=max(pod_request.gpus - len(group), 0),
            exclusive=self._exclusive(),
            burst=pod_request.burst,
            unit=self._unit(),
            faults=tuple(self._faults),
        )

    def _memory(self) -> tuple[AllocationMap, GpuAmounts]:
        pod_request = self._pod_request
        if not pod_request.mem:
            return {}, {}
        requests = [request.mem for request in pod_request.containers]
        found = self._map((wire_names.V2_ALLOCATION, wire_names.V3_MEMORY), requests)
        if found is not None:
            return found, self._counted(found, requests, pod_request.mem)
        index = self._index()
        if index is None:
            return {}, {}
        share = -(-pod_request.mem // pod_request.gpu_count)
        containers = {i: {index: units} for i, units in enumerate(requests) if units}
        return containers if pod_request.gpu_count == 1 else {}, {index: share}

    def _core(self, mem: GpuAmounts) -> GpuAmounts:
        pod_request = self._pod_request
        if not pod_request.core:
            return {}
        requests = [request.core for request in pod_request.containers]
        found = self._map((wire_names.V3_CORE_PERCENTAGE,), requests)
        if found is not None:
            return self._counted(found, requests, pod_request.core)
        index = self._index()
        gpus = list(mem) if mem else [] if index is None else [index]
        count = max(len(gpus), pod_request.gpu_count)
        return dict.fromkeys(gpus, -(-pod_request.core // count))

    def _map(self, keys: Sequence[str], requests: Sequence[int]) -> AllocationMap | None:
        """The first map that names a GPU; without ``requests`` an empty one is no fault, and last.

        A Binding replaces the first one alone, so that a tenant may have written the others.
        """
        for key in keys:
            text = self._pod.annotations.get(key)
            if text is None:
                continue
            found = decode_allocation(text)
            if found is not None:
                return found
            if text == EMPTY_ALLOCATION and not any(requests):
                return None
            self._faults.append(f"annotation {key} does not name a GPU")
        return None

    def _counted(self, found: AllocationMap, requests: Sequence[int], effective: int) -> GpuAmounts:
        """Units on each GPU: the map where it is true, else never less than an even share."""
        gpus = per_device(found)
        recorded = {i: sum(row.values()) for i, row in found.items() if row}
        apps = requests[
            : len(self._pod.containers)
        ]  # older schedulers left sidecars out of the map
        agrees = any(
            recorded == {i: units for i, units in enumerate(each) if units}
            for each in (requests, apps)
        )
        if agrees and sum(recorded.values()) == effective:
            return gpus
        if not agrees:
            self._faults.append("the allocation map disagrees with the pod's limits")
        share = -(-effective // len(gpus))
        return {index: max(units, share) for index, units in gpus.items()}

    def _index(self) -> GpuIndex | None:
        text = self._pod.annotations.get(self._names.mem_idx)
        if text is None:
            return None
        index = number(text, below=MAX_INDEX)
        if index is None:
            self._fault_once(f"annotation {self._names.mem_idx} is not the index of a GPU")
            return None
        return GpuIndex(index)

    def _group(self) -> tuple[GpuIndex, ...]:
        keys = (self._names.group, wire_names.GPU_GROUP)
        key = next((key for key in keys if key in self._pod.annotations), None)
        if not self._pod_request.gpus or key is None:
            return ()
        text = self._pod.annotations[key]
        indexes = [number(part, below=MAX_INDEX) for part in text.split(",")]
        group = tuple(dict.fromkeys(GpuIndex(i) for i in indexes if i is not None))
        if len(group) != self._pod_request.gpus or len(indexes) != self._pod_request.gpus:
            self._faults.append(
                f"annotation {key} names {len(group)} GPUs, but the pod requests "
                f"{self._pod_request.gpus}"
            )
        return group

    def _unit(self) -> MemoryUnit | None:
        text = self._pod.annotations.get(wire_names.UNIT)
        if text is None:
            return None
        try:
            return MemoryUnit.parse(text)
        except UnitError:
            self._faults.append(f"annotation {wire_names.UNIT} is not a unit of memory")
            return None

    def _exclusive(self) -> bool:
        """As recorded at the bind; pods of other schedulers have only the label."""
        text = self._pod.annotations.get(wire_names.EXCLUSIVE)
        if text in {"true", "false"}:
            return text == "true"
        if text is not None:
            self._faults.append(f"annotation {wire_names.EXCLUSIVE} is neither true nor false")
        return self._pod_request.whole_device

    def _assigned(self) -> bool:
        return any(_flag(self._pod.annotations, key) for key in _assigned_keys(self._names))

    def _fault_once(self, fault: str) -> None:
        if fault not in self._faults:
            self._faults.append(fault)


def _flag(annotations: Mapping[str, str], key: str) -> bool:
    return annotations.get(key) == "true"


def _assigned_keys(names: Names) -> tuple[str, ...]:
    return (
        names.mem_assigned,
        wire_names.V2_ASSIGNED,
        wire_names.V3_ASSIGNED,
        names.group_assigned,
    )


@lru_cache
def _assume_time_keys(names: Names) -> tuple[str, ...]:
    return (
        names.mem_assume_time,
        wire_names.V2_ASSUME_TIME,
        wire_names.V3_ASSUME_TIME,
        names.group_assume_time,
    )
