"""Devices of pods that kubelet does not list: it lost its checkpoint, or lists no init containers.

Newer kubelets give a running container no devices again, so without their checkpoint they would
offer the same ones to the next pod. What a pod holds is known from what this plugin gave, else
from the annotations.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from gpucore.model import AllocationState, ContainerRequest, PodRequest
from gpucore.node.allocation.device_ids import DeviceTable, Resource
from gpucore.node.allocation.expected import Expected, ExpectedContainer
from gpucore.node.allocation.holdings import Held, Holder, Holdings
from gpucore.node.allocation.reading import expected_of
from gpucore.units import PodUid
from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.spec import Pod

Row = Mapping[Resource, tuple[str, ...]]
Rows = Mapping[str, Row]
"""Container to resource to ids."""

_NO_IDS: Final[tuple[str, ...]] = ()

MISSING: Final = "GpuShareMissing"
WITHOUT_SHARE: Final = (
    "kubelet started the pod without its GPU share, because it had lost its record of device "
    "plugins, as in a power cut: the pod has no GPU of its own and no limit; delete it"
)


def forgotten(held: Iterable[Held], pods: Iterable[Pod], names: Names) -> set[PodUid]:
    """The running pods of which kubelet lists a container without its devices.

    Call it after kubelet or the plugin started: at any other time such a pod is about to end.
    """
    known = list(pods)
    had = {pod.uid for pod in known if had_devices(pod, names)}
    return had & {each.uid for each in restarting(held, known, names)}


def restarting(held: Iterable[Held], pods: Iterable[Pod], names: Names) -> list[Expected]:
    """The running pods with containers that kubelet lists without their devices, and only these.

    kubelet allocates devices for such a container alone when it restarts.
    """
    listed = {(each.namespace, each.name): each.containers for each in held}
    found = []
    for pod in pods:
        own = listed.get((pod.namespace, pod.name))
        expected = expected_of(pod, names) if own is not None and pod.phase == "Running" else None
        if own is not None and expected is not None:
            steps = tuple(s for s in expected.steps if not s.init and s.container not in own)
            found += [msgspec.structs.replace(expected, steps=steps)] if steps else []
    return found


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


def with_inits(held: Iterable[Held], pods: Iterable[Pod], names: Names) -> list[Pod]:
    """The pods whose init containers were given devices, by their annotations.

    kubelet lists the devices of all their containers, so only those of init containers are missing.
    """
    listed = {(each.namespace, each.name): each.containers for each in held}
    return [
        pod
        for pod in pods
        if not pod.finished
        and any(not each.is_sidecar for each in pod.init_containers)
        and _complete_but_inits(pod, listed.get((pod.namespace, pod.name), {}), names)
    ]


def _complete_but_inits(pod: Pod, listed: Rows, names: Names) -> bool:
    expected = expected_of(pod, names)
    allocation = allocation_of(pod, names) if expected is not None else None
    if expected is None or allocation is None or allocation.state is not AllocationState.CONFIRMED:
        return False
    unlisted = {step.container for step in expected.steps} - listed.keys()
    return bool(unlisted) and unlisted.isdisjoint(_running(pod))


def _running(pod: Pod) -> set[str]:
    """Names of the containers that run until the pod ends."""
    return {each.name for each in (*pod.containers, *pod.sidecars)}


def allocated(
    pods: Iterable[Pod],
    names: Names,
    tables: Mapping[Resource, DeviceTable],
    holdings: Holdings,
    *,
    listed: Iterable[Held] = (),
) -> list[Held]:
    """Ids that stand for what containers hold that kubelet does not list; no id stands for two.

    Args:
        pods: that run with devices of which kubelet does not report all.
        listed: what kubelet reports; none of these ids is chosen.
    """
    reported = list(listed)
    chosen: dict[Resource, set[str]] = {each: set() for each in tables}
    for resource, one in (pair for each in reported for pair in each.ids()):
        chosen[resource].add(one)
    choice = _Choice(tables, holdings, chosen)
    own = {(each.namespace, each.name): each.containers for each in reported}
    rows = ((pod, choice.rows(pod, own.get((pod.namespace, pod.name), {}), names)) for pod in pods)
    return [Held(pod.namespace, pod.name, row) for pod, row in rows if row]


def _expected(pod: Pod, names: Names) -> list[ExpectedContainer]:
    """The containers of the pod; after them its init containers, with what the pod has in all.

    Containers use the devices of init containers again: what the pod has beyond those of its
    containers is what an init container needed more.
    """
    expected = expected_of(pod, names)
    allocation = allocation_of(pod, names) if expected is not None else None
    if expected is None or allocation is None:
        return []
    placed, names_running = allocation.placement, _running(pod)
    whole = {
        Resource.MEM: placed.mem,
        Resource.CORE: placed.core,
        Resource.GPU: dict.fromkeys(placed.group, 1),
    }
    running = [step for step in expected.steps if step.container in names_running]
    inits = [step for step in expected.steps if step.container not in names_running]
    return [
        *(msgspec.structs.replace(step, init=False) for step in running),
        *(
            ExpectedContainer(
                step.container, _whole(expected.pod_request, step.request), whole, init=True
            )
            for step in inits
        ),
    ]


def _whole(pod: PodRequest, init: ContainerRequest) -> ContainerRequest:
    """The request of the pod for each resource that the init container requests."""
    return ContainerRequest(
        pod.mem if init.mem else 0, pod.core if init.core else 0, pod.gpus if init.gpus else 0
    )


class _Choice(NamedTuple):
    """Ids for one container after the other.

    Attributes:
        chosen: ids that are taken by now.
    """

    tables: Mapping[Resource, DeviceTable]
    holdings: Holdings
    chosen: Mapping[Resource, set[str]]

    def rows(self, pod: Pod, listed: Rows, names: Names) -> Rows:
        """The ids of the containers of a pod that kubelet does not list."""
        rows: dict[str, Row] = {}
        for step in _expected(pod, names):
            if step.container not in listed:
                known = self.holdings.rows_of(Holder(pod.namespace, pod.name, step.container))
                row = self._row(step, known, (*listed.values(), *rows.values()))
                rows |= {step.container: row} if row else {}
        return rows

    def _row(self, step: ExpectedContainer, known: Row, others: Collection[Row]) -> Row:
        """The ids of one container; what the ``others`` of the pod have counts for an init."""
        row = {}
        for resource, table in self.tables.items():
            kept = [one for one in known.get(resource, _NO_IDS) if one not in self.chosen[resource]]
            has = {*kept, *(one for each in others if step.init for one in each.get(resource, ()))}
            taken = self.chosen[resource] | self.holdings.taken(resource)
            ids = (*kept, *_free_ids(step, table, has, taken))
            self.chosen[resource].update(ids)
            if ids:
                row[resource] = ids
        return row


def _free_ids(
    step: ExpectedContainer, table: DeviceTable, has: Collection[str], taken: Collection[str]
) -> tuple[str, ...]:
    """What is missing of the amount beside the ids that it ``has``, on the planned GPUs.

    Devices of init containers are in kubelet's record, and the plugin allocates the lowest ids, so
    the lowest free ones are probably these. Other devices are those that kubelet offers last.
    """
    ids: list[str] = []
    there = table.per_device(has)
    for gpu, amount in step.plan.get(table.resource, {}).items():
        order = table.ids.get(gpu, _NO_IDS)[:: 1 if step.init else -1]
        free = [one for one in order if one not in taken]
        ids += free[: max(amount - there[gpu], 0)]
    return tuple(ids[: max(table.resource.requested(step.request) - len(has), 0)])
