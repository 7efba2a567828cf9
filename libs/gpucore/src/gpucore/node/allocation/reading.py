"""The calls that kubelet is about to make for a pod, as its object states them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from gpucore.model import ContainerRequest, GpuAmounts, Placement
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.expected import Expected, ExpectedContainer
from gpucore.units import MIB, GpuIndex
from gpucore.wire.errors import WireError
from gpucore.wire.names import MIRROR_POD, Names
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.placements import split_evenly
from gpucore.wire.pod.requests import container_request, kai_limit
from gpucore.wire.pod.spec import Pod
from gpucore.wire.whole_requests import pod_request_of

Kept = Mapping[Resource, Counter[GpuIndex]]
"""Amount of each resource on each GPU, of some containers together."""


def expected_of(pod: Pod, names: Names) -> Expected | None:
    """The expected calls for ``pod``; ``None`` without a GPU request or a readable amount.

    Kubelet admits no mirror pod, but the static pod of a file on its node, if there is one.
    """
    try:
        pod_request = pod_request_of(pod, names)
        steps = _steps(pod, names)
    except WireError:
        return None
    if pod_request is None:
        return None
    allocation = allocation_of(pod, names)
    return Expected(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        creation=pod.creation,
        gpu_count=pod_request.gpu_count,
        pod_request=pod_request,
        steps=steps,
        waiting=pod.phase == "Pending" and MIRROR_POD not in pod.annotations,
        bursts=bool(pod_request.burst or kai_limit(pod, MIB, names)),
        alone=allocation.exclusive if allocation else pod_request.whole_device,
    )


def _steps(pod: Pod, names: Names) -> tuple[ExpectedContainer, ...]:
    placement = _planned(pod, names)
    running = _running_steps(pod, names, placement)
    steps = [running[each.name] for each in pod.containers]
    before = list(_before(pod, running))
    for each, kept in zip(reversed(pod.init_containers), reversed(before), strict=True):
        step = running.get(each.name)
        if step is None:
            request = container_request(each, names)
            step = _init_step(each.name, request, placement, kept, steps)
        steps.insert(0, step)
    return tuple(step for step in steps if step.request)


def _before(pod: Pod, running: Mapping[str, ExpectedContainer]) -> Iterator[Kept]:
    """What the sidecars before each init container have of each GPU; a pod may have 1,000."""
    kept = {resource: Counter[GpuIndex]() for resource in Resource}
    for each in pod.init_containers:
        yield {resource: Counter(gpus) for resource, gpus in kept.items()}
        if each.is_sidecar:
            for resource, gpus in running[each.name].plan.items():
                kept[resource].update(gpus)


def _running_steps(pod: Pod, names: Names, placement: Placement) -> Mapping[str, ExpectedContainer]:
    """The steps of containers and sidecars by name; names are unique within a pod."""
    running = (*pod.containers, *pod.sidecars)
    requests = [container_request(each, names) for each in running]
    mem = {**_evenly([request.mem for request in requests], placement), **placement.containers}
    core = _evenly([request.core for request in requests], placement)
    steps = {}
    first = 0
    for position, (container, request) in enumerate(zip(running, requests, strict=True)):
        whole = dict.fromkeys(placement.group[first : first + request.gpus], 1)
        plan = _plan(request, mem.get(position, {}), core.get(position, {}), whole)
        steps[container.name] = ExpectedContainer(
            container.name, request, plan, init=container.is_sidecar
        )
        first += request.gpus
    return steps


def _planned(pod: Pod, names: Names) -> Placement:
    allocation = allocation_of(pod, names)
    return allocation.placement if allocation else Placement(pod.node)


def _init_step(
    name: str,
    request: ContainerRequest,
    placement: Placement,
    kept: Kept,
    after: Sequence[ExpectedContainer],
) -> ExpectedContainer:
    """Beside the sidecars before it, and on the GPUs of the containers after it."""
    mem = _beneath(request.mem, Resource.MEM, placement, kept, after)
    core = _beneath(request.core, Resource.CORE, placement, kept, after)
    group = [gpu for gpu in placement.group if gpu not in kept[Resource.GPU]]
    whole = dict.fromkeys(group[: request.gpus], 1)
    return ExpectedContainer(name, request, _plan(request, mem, core, whole), init=True)


def _beneath(
    units: int,
    resource: Resource,
    placement: Placement,
    kept: Kept,
    after: Sequence[ExpectedContainer],
) -> GpuAmounts:
    """Evenly, and of each GPU no more than the next container has: it gets the same devices."""
    if not units:
        return {}
    plans = (step.plan.get(resource, {}) for step in after if resource.requested(step.request))
    plan: GpuAmounts = next(plans, {})
    beside = kept[resource]
    gpus = sorted(
        placement.mem or placement.core, key=lambda gpu: (-plan.get(gpu, 0), beside[gpu], gpu)
    )
    return split_evenly([units], gpus).get(0, {}) if gpus else {}


def _evenly(amounts: Sequence[int], placement: Placement) -> Mapping[int, GpuAmounts]:
    gpus = sorted(placement.mem or placement.core)
    return split_evenly(amounts, gpus) if gpus else {}


def _plan(
    request: ContainerRequest, mem: GpuAmounts, core: GpuAmounts, whole: GpuAmounts
) -> Mapping[Resource, GpuAmounts]:
    """Only the parts that place the full amount."""
    parts = {Resource.MEM: mem, Resource.CORE: core, Resource.GPU: whole}
    return {
        resource: gpus
        for resource, gpus in parts.items()
        if gpus and sum(gpus.values()) == resource.requested(request)
    }
