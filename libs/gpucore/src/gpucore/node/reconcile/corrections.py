"""Corrects annotations to kubelet's allocations, which take precedence over every plan.

Two equal pods may have been swapped, a pod may have bypassed the extender, two schedulers may have
clashed. The annotation is corrected to what kubelet allocated, and the correction has one sentence
about the change. A pod is not corrected until kubelet has allocated the full request of all its
containers.

kubelet lists devices of containers and sidecars, not of other init containers; for those the
caller adds what the plugin gave them.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from gpucore.model import (
    Allocation,
    AllocationState,
    ContainerRequest,
    GpuAmounts,
    Inventory,
    Placement,
    PodRequest,
)
from gpucore.node.allocation.allocation_error import gpu_list
from gpucore.node.allocation.device_ids import DeviceTable, Resource
from gpucore.node.allocation.holdings import Held
from gpucore.units import GpuIndex, PodUid
from gpucore.wire import names as wire_names
from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.placements import annotations_of
from gpucore.wire.pod.spec import Pod
from gpucore.wire.whole_requests import pod_request_of

ADOPTED: Final = "GpuShareAdopted"
CORRECTED: Final = "GpuShareCorrected"
_V3_MAPS: Final = (wire_names.V3_MEMORY, wire_names.V3_CORE_PERCENTAGE)


class Correction(msgspec.Struct, frozen=True):
    """One patch of one pod's annotations.

    Attributes:
        annotations: new values; ``None`` removes.
        reason: of the event; empty where the plan was kept and only ASSIGNED becomes true.
        message: of the event.
    """

    uid: PodUid
    namespace: str
    name: str
    annotations: Mapping[str, str | None]
    reason: str = ""
    message: str = ""


class CorrectionInput(msgspec.Struct, frozen=True):
    """The input of the corrections.

    Attributes:
        tables: the device IDs that the node offers, those of its oversell label among them.
        now_ns: Unix nanoseconds, for pods without an assume time.
        inherited: pods whose GPU kubelet does not report, by namespace and name.
    """

    inventory: Inventory
    tables: Mapping[Resource, DeviceTable]
    names: Names
    now_ns: int
    inherited: frozenset[tuple[str, str]] = frozenset()


def corrections(
    held: Iterable[Held], pods: Iterable[Pod], given: CorrectionInput
) -> list[Correction]:
    """The patches that make the annotations of ``pods`` agree with what they hold."""
    by_name = {(each.namespace, each.name): each for each in held}
    found = []
    for pod in pods:
        key = (pod.namespace, pod.name)
        holding = None if key in given.inherited else by_name.get(key)
        correction = _correction(pod, holding, given) if holding is not None else None
        if correction is not None:
            found.append(correction)
    return found


def _correction(pod: Pod, holding: Held, given: CorrectionInput) -> Correction | None:
    try:
        pod_request, allocation = pod_request_of(pod, given.names), allocation_of(pod, given.names)
    except WireError:
        return None
    if pod_request is None or allocation is None:
        return None
    actual = actual_placement(pod, pod_request, holding, given.tables)
    if actual is None and not any(pod_request.containers) and pod.phase == "Running":
        actual = _as_planned(
            allocation
        )  # kubelet lists no init containers, but it admitted the pod
    if actual is None:
        return None
    actual = _in_planned_order(actual, allocation.placement, pod_request)
    wanted = _wanted(pod, pod_request, allocation, actual, given)
    changed = {key: text for key, text in wanted.items() if pod.annotations.get(key) != text}
    if not changed:
        return None
    reason, message = _event(allocation, actual)
    return Correction(pod.uid, pod.namespace, pod.name, changed, reason, message)


def _as_planned(allocation: Allocation) -> Placement | None:
    """The plan of a pod, if it places the full request."""
    pending = allocation.pending or allocation.pending_core or allocation.pending_gpus
    return None if pending else allocation.placement


def _wanted(
    pod: Pod,
    pod_request: PodRequest,
    allocation: Allocation,
    actual: Placement,
    given: CorrectionInput,
) -> dict[str, str | None]:
    wanted: dict[str, str | None] = dict(
        annotations_of(
            actual,
            pod_request,
            given.names,
            inventory=given.inventory,
            assume_time=allocation.assume_time or given.now_ns,
            assigned=True,
            exclusive=allocation.exclusive and bool(allocation.placement.gpus),
        )
    )
    if not _same_place(allocation.placement, actual):  # an older map would be believed before ours
        stale = (key for key in _V3_MAPS if key in pod.annotations and key not in wanted)
        wanted |= dict.fromkeys(stale)
    return wanted


def actual_placement(
    pod: Pod, pod_request: PodRequest, holding: Held, tables: Mapping[Resource, DeviceTable]
) -> Placement | None:
    """The containers' allocated GPUs; ``None`` until kubelet has allocated the full request."""
    rows = {resource: _row(pod, holding, table, resource) for resource, table in tables.items()}
    for resource, row in rows.items():
        given = [sum(row.get(place, {}).values()) for place in range(len(pod_request.containers))]
        if given != [resource.requested(request) for request in pod_request.containers]:
            return None
    held = {resource: _held_gpus(holding, table) for resource, table in tables.items()}
    if any(_amount(pod_request, resource) and not held[resource] for resource in tables):
        return None
    return Placement(
        node=pod.node,
        mem=_with_surplus(held[Resource.MEM], pod_request.mem),
        core=_with_surplus(held[Resource.CORE], pod_request.core),
        containers=rows[Resource.MEM],
        group=_group(rows[Resource.GPU], held[Resource.GPU]),
    )


def _amount(pod_request: PodRequest, resource: Resource) -> int:
    """The request of the whole pod for one resource."""
    return resource.requested(ContainerRequest(pod_request.mem, pod_request.core, pod_request.gpus))


def _held_gpus(holding: Held, table: DeviceTable) -> dict[GpuIndex, int]:
    """What the pod holds on each GPU: containers may use devices of an init container again."""
    rows = holding.containers.values()
    ids = {one for row in rows for one in row.get(table.resource, ())}
    return dict(sorted(table.per_device(ids).items()))


def _row(
    pod: Pod, holding: Held, table: DeviceTable, resource: Resource
) -> dict[int, dict[GpuIndex, int]]:
    row = {}
    for place, container in enumerate((*pod.containers, *pod.sidecars)):
        ids = holding.containers.get(container.name, {}).get(resource, ())
        gpus = dict(sorted(table.per_device(ids).items()))
        if gpus:
            row[place] = gpus
    return row


def _with_surplus(gpus: dict[GpuIndex, int], effective: int) -> dict[GpuIndex, int]:
    """What only init containers needed stays with the pod until it ends, on the same GPUs."""
    surplus = effective - sum(gpus.values())
    for place, gpu in enumerate(gpus):
        gpus[gpu] += surplus // len(gpus) + (place < surplus % len(gpus))
    return gpus


def _group(row: Mapping[int, GpuAmounts], held: GpuAmounts) -> tuple[GpuIndex, ...]:
    """GPUs of the containers in their order, then those that only init containers had."""
    return tuple(dict.fromkeys((*(gpu for place in sorted(row) for gpu in row[place]), *held)))


def _in_planned_order(actual: Placement, planned: Placement, pod_request: PodRequest) -> Placement:
    """Each container's exclusive GPUs in the order of its plan, in which it was given them."""
    order = {gpu: position for position, gpu in enumerate(planned.group)}
    group: list[GpuIndex] = []
    rest = pod_request.gpus - sum(request.gpus for request in pod_request.containers)
    for count in (*(request.gpus for request in pod_request.containers), rest):
        row = actual.group[len(group) : len(group) + count]
        group += sorted(row, key=lambda gpu: (order.get(gpu, len(order)), gpu))
    return msgspec.structs.replace(actual, group=tuple(group))


def _same_place(planned: Placement, actual: Placement) -> bool:
    return (
        planned.mem == actual.mem
        and set(planned.core) == set(actual.core)
        and set(planned.group) == set(actual.group)
        and (not planned.containers or planned.containers == actual.containers)
    )


def _event(allocation: Allocation, actual: Placement) -> tuple[str, str]:
    planned = allocation.placement
    if _same_place(planned, actual):
        return "", ""
    real = gpu_list(actual.mem or actual.core or actual.group)
    where = planned.mem or planned.core or planned.group
    if not where:
        return ADOPTED, f"no scheduler named a GPU; kubelet allocated {real}"
    if allocation.state is AllocationState.CONFIRMED:
        return CORRECTED, f"the annotations named {gpu_list(where)}, kubelet allocated {real}"
    return CORRECTED, f"planned for {gpu_list(where)}, kubelet allocated {real}"
