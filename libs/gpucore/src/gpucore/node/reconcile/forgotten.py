"""Running pods whose devices are missing from kubelet's checkpoint, because it was lost.

Newer kubelets give a running container no devices again, so they would offer the same ones to the
next pod. What such a pod holds is known from what this plugin gave, else from the annotations.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from gpucore.model import AllocationState
from gpucore.node.allocation.device_ids import DeviceTable, Resource
from gpucore.node.allocation.expected import ExpectedContainer
from gpucore.node.allocation.holdings import Held, Holder, Holdings
from gpucore.node.allocation.reading import expected_of
from gpucore.units import PodUid
from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.spec import Pod

Rows = Mapping[str, Mapping[Resource, tuple[str, ...]]]
"""Container to resource to ids."""

_NO_IDS: Final[tuple[str, ...]] = ()

MISSING: Final = "GpuShareMissing"
WITHOUT_SHARE: Final = (
    "kubelet started the pod without its GPU share, because it had lost its record of device "
    "plugins, as in a power cut: the pod has no GPU of its own and no limit; delete it"
)


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


def started_without(held: Iterable[Held], pods: Iterable[Pod], names: Names) -> set[PodUid]:
    """The running pods that kubelet gave no devices of ours at all.

    A kubelet without its checkpoint does not know that a plugin has the resource until the plugin
    registers, and starts pods that were bound before with nothing but the amount. A pod that ends
    is listed like this for a moment too.
    """
    listed_empty = {(each.namespace, each.name) for each in held if not each.containers}
    return {
        pod.uid
        for pod in pods
        if (pod.namespace, pod.name) in listed_empty and _runs_as(AllocationState.BOUND, pod, names)
    }


def had_devices(pod: Pod, names: Names) -> bool:
    """Whether containers of the pod run with devices that kubelet must list."""
    return _runs_as(AllocationState.CONFIRMED, pod, names)


def _runs_as(state: AllocationState, pod: Pod, names: Names) -> bool:
    """Whether the pod runs, its allocation is in this state, and its containers need devices."""
    if pod.phase != "Running":
        return False
    try:
        allocation = allocation_of(pod, names)
    except WireError:
        return False
    expected = expected_of(pod, names)
    found = allocation is not None and allocation.state is state
    return found and expected is not None and not all(step.init for step in expected.steps)


def allocated(
    pods: Iterable[Pod],
    names: Names,
    tables: Mapping[Resource, DeviceTable],
    holdings: Holdings,
    *,
    listed: Iterable[Held] = (),
) -> list[Held]:
    """Ids that stand for what each pod's containers hold; no id stands for two.

    Args:
        pods: that run with devices of which kubelet reports nothing.
        names: of annotations.
        tables: the ids of the node.
        holdings: what is known of them.
        listed: what kubelet reports of other pods; none of these ids is chosen.
    """
    chosen: dict[Resource, set[str]] = {each: set() for each in tables}
    for resource, one in (pair for each in listed for pair in each.ids()):
        chosen[resource].add(one)
    rows = ((pod, _rows(pod, names, tables, holdings, chosen)) for pod in pods)
    return [Held(pod.namespace, pod.name, row) for pod, row in rows if row]


def _rows(
    pod: Pod,
    names: Names,
    tables: Mapping[Resource, DeviceTable],
    holdings: Holdings,
    chosen: Mapping[Resource, set[str]],
) -> Rows:
    expected = expected_of(pod, names)
    rows: dict[str, dict[Resource, tuple[str, ...]]] = {}
    for step in expected.steps if expected else ():
        known = holdings.rows_of(Holder(pod.namespace, pod.name, step.container))
        for resource, table in tables.items():
            ids = known.get(resource, _NO_IDS)
            if not ids or not chosen[resource].isdisjoint(ids):
                others = holdings.taken(resource) - set(ids)
                ids = _free_ids(step, table, chosen[resource] | others)
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
