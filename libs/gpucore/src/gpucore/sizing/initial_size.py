"""The size of a pod at its creation, from what was measured of its workload.

:func:`~gpucore.sizing.recommendation.recommend` is the one decision about the size; this module
decides whether a pod gets it. A pod is resized only where its history is certainly that of its one
share of one GPU, and where neither the owner's bounds nor a quota nor a GPU refuse the new size.
"""

from collections.abc import Collection, Iterable

import msgspec

from gpucore.sizing.evidence import SizingRules
from gpucore.sizing.recommendation import recommend
from gpucore.sizing.share_size import ContainerSize
from gpucore.sizing.sizing_options import SizingMode, SizingOptions
from gpucore.sizing.usage_history import UsageHistory, WorkloadKey
from gpucore.units import MemoryUnit
from gpucore.wire.names import KAI_CONTAINER, Names
from gpucore.wire.pod.controllers import Controller, workload_of
from gpucore.wire.pod.gangs import gang_of
from gpucore.wire.pod.requests import gpu_request_of
from gpucore.wire.pod.spec import Pod


class SizablePod(msgspec.Struct, frozen=True):
    """A new pod whose size can change.

    Attributes:
        position: of its container among those of the pod.
        current: the size that it requests.
    """

    key: WorkloadKey
    position: int
    current: ContainerSize


class SizingConditions(msgspec.Struct, frozen=True):
    """What the cluster allows.

    Attributes:
        unit: in which all nodes count; ``None`` where it is unknown or not the same.
        gpu_sizes: units of the GPUs of the cluster.
        may_raise: no quota counts GPU memory, which other pods of the namespace may need.
        may_shrink: all nodes reported, so that no peak is missing.
        rules: of the recommendation; their GPU sizes are not read.
    """

    unit: MemoryUnit | None
    gpu_sizes: Collection[int]
    may_raise: bool = True
    may_shrink: bool = True
    rules: SizingRules = SizingRules()


def sizable_pod(pod: Pod, controller: Controller | None, names: Names) -> SizablePod | None:
    """The pod where it has one share of one GPU; ``None`` for any other.

    A pod without a controller has a name of its own, and so no history from before.

    Args:
        pod: with its namespace and time of creation.

    Raises:
        WireError: an amount is no Kubernetes quantity.
    """
    request = gpu_request_of(pod, names)
    if controller is None or request is None or request.fault or request.gpus:
        return None
    if not request.mem or request.gpu_count != 1 or request.whole_device or _placed(pod):
        return None
    holders = [index for index, each in enumerate(pod.containers) if names.gpu_mem in each.limits]
    inits = any(names.gpu_mem in each.limits for each in pod.init_containers)
    if len(holders) != 1 or inits:
        return None
    kind, name = workload_of(pod, controller)
    key = WorkloadKey(pod.namespace, kind, name, pod.containers[holders[0]].name)
    return SizablePod(key, holders[0], ContainerSize(request.mem, request.burst))


def _placed(pod: Pod) -> bool:
    """Something else decides where it runs or what it has: a node, a gang, claims, KAI."""
    together = gang_of(pod) is not None or bool(pod.pod_group)
    claims = bool(pod.claims or pod.claim_templates)
    elsewhere = any(key.startswith(KAI_CONTAINER) for key in pod.annotations)
    return bool(pod.node) or together or claims or elsewhere


def initial_size(
    pod: SizablePod,
    options: SizingOptions,
    histories: Iterable[UsageHistory],
    conditions: SizingConditions,
) -> ContainerSize | None:
    """The size that the pod gets; ``None`` leaves it as it is.

    Args:
        histories: of its workload, as of one or several reads of all nodes.
    """
    current, gpu = pod.current, _smallest_gpu(pod, conditions)
    if options.mode is not SizingMode.INITIAL or options.fault or gpu <= current.request:
        return None
    wanted = _recommended(current, histories, conditions, gpu)
    if wanted is None:
        return None
    size = _within(wanted, current, options, gpu)
    if size is None:
        return None
    size = _allowed(size, current, conditions)
    lost_burst = bool(current.burst) and not size.burst
    return None if lost_burst or size == current else size


def _smallest_gpu(pod: SizablePod, conditions: SizingConditions) -> int:
    """Units of the smallest GPU that has room for the pod as it is; 0 for none.

    A size that this one can have fits every GPU that the pod fits now.
    """
    return min((each for each in conditions.gpu_sizes if each >= pod.current.request), default=0)


def _recommended(
    current: ContainerSize,
    histories: Iterable[UsageHistory],
    conditions: SizingConditions,
    gpu: int,
) -> ContainerSize | None:
    """The largest recommendation; ``None`` where one has none, or is for another request."""
    if conditions.unit is None:
        return None
    rules = msgspec.structs.replace(conditions.rules, gpu_sizes=(gpu,))
    found = [recommend(each, conditions.unit, rules) for each in histories]
    sizes = [
        each.size
        for each in found
        if each.size is not None
        and each.current.request == current.request
        and bool(each.current.burst) == bool(current.burst)
    ]
    if not sizes or len(sizes) < len(found):
        return None
    request = max(each.request for each in sizes)
    return ContainerSize.of(request, max(each.limit for each in sizes))


def _within(
    wanted: ContainerSize, current: ContainerSize, options: SizingOptions, gpu: int
) -> ContainerSize | None:
    """The size within the bounds; ``None`` where it would be too small for what was measured."""
    highest = options.most or max(current.request, options.least)
    if wanted.request > highest < current.request:
        return None
    request = min(max(wanted.request, options.least), highest, gpu)
    if not current.burst:
        return ContainerSize(request)
    most = max(current.limit, min(options.most, gpu))
    return ContainerSize.of(request, min(wanted.limit, most))


def _allowed(
    size: ContainerSize, current: ContainerSize, conditions: SizingConditions
) -> ContainerSize:
    """The size without the changes that the cluster does not allow."""
    request, limit = size.request, size.limit
    if not conditions.may_shrink:
        request, limit = max(request, current.request), max(limit, current.limit)
    if not conditions.may_raise:
        request = min(request, current.request)
    return ContainerSize.of(request, max(limit, request) if current.burst else request)
