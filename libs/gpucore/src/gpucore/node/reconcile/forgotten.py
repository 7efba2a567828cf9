"""Running pods whose devices are missing from kubelet's checkpoint, because it was lost.

Newer kubelets give a running container no devices again, so they would offer the same ones to the
next pod. What such a pod holds is known from what this plugin gave, else from the annotations.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from gpucore.model import AllocationState
from gpucore.node.allocation.device_ids import DeviceTable, Resource
from gpucore.node.allocation.expected import ExpectedContainer, expected_of
from gpucore.node.allocation.holdings import Held, Holder, Holdings
from gpucore.units import PodUid
from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpucore.wire.pods import Pod, allocation_of

Rows = Mapping[str, Mapping[Resource, tuple[str, ...]]]
"""Container to resource to ids."""

_NO_IDS: Final[tuple[str, ...]] = ()


def forgotten(held: Iterable[Held], pods: Iterable[Pod], names: Names) -> set[PodUid]:
    """The running pods that kubelet lists without their devices.

    Call it after kubelet or the plugin started: at any other time such a pod is about to end.
    """
    listed_empty = {(each.namespace, each.name) for each in held if not each.containers}
    return {
        pod.uid
        for pod in pods
        if (pod.namespace, pod.name) in listed_empty and had_devices(pod, names)
    }


def had_devices(pod: Pod, names: Names) -> bool:
    """Whether containers of the pod run with devices that kubelet must list."""
    if pod.phase != "Running":
        return False
    try:
        allocation = allocation_of(pod, names)
    except WireError:
        return False
    expected = expected_of(pod, names)
    confirmed = allocation is not None and allocation.state is AllocationState.CONFIRMED
    return confirmed and expected is not None and not all(step.init for step in expected.steps)


def allocated_rows(
    pod: Pod, names: Names, tables: Mapping[Resource, DeviceTable], holdings: Holdings
) -> Rows:
    """Ids that stand for what the pod's containers hold."""
    expected = expected_of(pod, names)
    chosen: dict[Resource, set[str]] = {each: set() for each in tables}
    rows: dict[str, dict[Resource, tuple[str, ...]]] = {}
    for step in expected.steps if expected else ():
        known = holdings.rows_of(Holder(pod.namespace, pod.name, step.container))
        for resource, table in tables.items():
            taken = chosen[resource] | holdings.taken(resource)
            ids = known.get(resource) or _free_ids(step, table, taken)
            chosen[resource].update(ids)
            if ids:
                rows.setdefault(step.container, {})[resource] = ids
    return rows


def _free_ids(
    step: ExpectedContainer, table: DeviceTable, taken: Collection[str]
) -> tuple[str, ...]:
    """As many ids of the planned GPUs as planned, the highest free ones."""
    ids: list[str] = []
    for gpu, amount in step.plan.get(table.resource, {}).items():
        free = [one for one in reversed(table.ids.get(gpu, _NO_IDS)) if one not in taken]
        ids += free[:amount]
    return tuple(ids)
