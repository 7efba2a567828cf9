"""Suggestions for a pending pod: the smallest steps after which it fits.

Suggestions only; nothing is moved or deleted. A sentence that promises a fit was tried on a copy of
the cluster; where nothing is certain, the remedy of the reason's code is used instead.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Final

import msgspec

from gpucore.accounting.node_info import NodeInfo, unit_of
from gpucore.explain.sentences import (
    CONSTRAINT_CODES,
    amount_hint,
    gpus_named,
    resource_words,
    unit_words,
    with_unit,
)
from gpucore.model import CORE_PER_GPU, Code, ContainerRequest, FitError, PodRequest
from gpucore.scheduling.candidates import Candidates, PodRequirements
from gpucore.scheduling.device_fit import (
    exclusive_devices,
    isolates,
    per_device,
    usable_devices,
)
from gpucore.scheduling.fit import fit, free_gpus
from gpucore.scheduling.grouping import BY_LINKS, Grouping
from gpucore.simulate.endings import Step, for_gpus, for_share, smallest
from gpucore.steps import Steps
from gpucore.units import NodeName, listed

NAMED: Final = 3
"""Pods or nodes that sentences name; the others are counted or left out."""

_UNOFFERED: Final = frozenset({Code.NOT_SHARED, Code.NODE_UNKNOWN})
_COUNT_LABEL: Final = "aliyun.com/gpu-count (the prefix is that of the resources)"
_ONE_GPU: Final = PodRequest((ContainerRequest(gpus=1),), gpus=1)
Refusals = Mapping[NodeName, FitError | None]


def suggest(
    pod: PodRequirements,
    cluster: Candidates,
    refusals: Refusals,
    *,
    grouping: Grouping = BY_LINKS,
) -> Steps[list[str]]:
    """Sentences, the smallest step first.

    Args:
        pod: the pod that waits.
        cluster: the nodes, with the pods nominated to them.
        refusals: why each node does not admit the pod, ``None`` where it does.
        grouping: how the cluster chooses several GPUs.
    """
    if pod.pod_request.fault:
        return [f"correct the pod: {pod.pod_request.fault}"]
    fits = sorted(name for name, refusal in refusals.items() if refusal is None)
    if fits:
        return [_fits(pod, cluster.filled(cluster.node_infos[fits[0]]), grouping)]
    blocked = yield from _blocked(pod, cluster, refusals)
    room = yield from _room(pod, cluster, refusals, grouping)
    return [*blocked, *room] or list(_remedies(refusals))


def _fits(pod: PodRequirements, node_info: NodeInfo, grouping: Grouping) -> str:
    pod_request = pod.pod_request
    if pod.constraints.unsupported:
        return (
            f"{node_info.name} has enough {_what(pod_request)}; not evaluated here: "
            f"{', '.join(pod.constraints.unsupported)} "
            "(the scheduler's message names what blocks the pod)"
        )
    where = (
        f", on {_best(node_info, pod_request.gpus, pod_request, grouping)}"
        if pod_request.gpus
        else ""
    )
    return f"{node_info.name} can take it now{where}"


def _what(pod_request: PodRequest) -> str:
    return "GPUs" if pod_request.gpus else "GPU memory"


def _blocked(pod: PodRequirements, cluster: Candidates, refusals: Refusals) -> Steps[list[str]]:
    """Nodes with enough free GPUs that the scheduler's own rules exclude; one for each reason."""
    reasons: dict[str, tuple[int, NodeName]] = {}
    for name, refusal in refusals.items():
        yield
        if refusal is None or refusal.code not in CONSTRAINT_CODES:
            continue
        if fit(cluster.filled(cluster.node_infos[name]), pod.pod_request) is None:
            blockers = list(cluster.blockers(name, pod))
            place = (len(blockers), name)
            words = _excluded(pod.pod_request, blockers)
            reasons[words] = min(reasons.get(words, place), place)
    nearest = sorted(reasons.items(), key=lambda pair: pair[1])[:NAMED]
    return [f"{name} {words}" for words, (_, name) in nearest]


def _excluded(pod_request: PodRequest, blockers: Sequence[FitError]) -> str:
    if {refusal.code for refusal in blockers} == {Code.NODE_UNSCHEDULABLE}:
        return "has enough capacity, but is cordoned or not ready"
    words = " and ".join(map(_blocker, blockers))
    return f"has enough {_what(pod_request)}; the pod is blocked by {words}"


def _blocker(refusal: FitError) -> str:
    if refusal.code is Code.INSUFFICIENT_RESOURCES:
        return f"insufficient {refusal.detail} ({resource_words(refusal)})"
    its = "its " if refusal.code is Code.NODE_AFFINITY else ""
    return f"{its}{refusal.detail}"


def _room(
    pod: PodRequirements, cluster: Candidates, refusals: Refusals, grouping: Grouping
) -> Steps[list[str]]:
    """What GPUs of the nodes that the pod may use could become, and what of them is free."""
    node_infos: dict[NodeName, NodeInfo] = {}
    rooms: dict[NodeName, int] = {}
    for name in refusals:
        inventory = cluster.node_infos[name].inventory
        stopped = inventory is not None and not inventory.serving  # its device plugin
        if not stopped and cluster.only_resources_block(name, pod):
            node_infos[name] = cluster.filled(cluster.node_infos[name])
            rooms[name] = node_infos[name].max_allocatable_memory
        yield
    found: list[str] = []
    if pod.pod_request.mem and not pod.pod_request.gpus:
        found += yield from _for_share(pod, cluster, node_infos, refusals, rooms)
    if pod.pod_request.gpus:
        everywhere = len(node_infos) == len(refusals)
        found += yield from _for_gpus(pod, cluster, node_infos, everywhere=everywhere)
        found += _fewer(pod, cluster, node_infos, grouping)
    return [*found, *_nothing_offered(pod, cluster)]


def _nothing_offered(pod: PodRequirements, cluster: Candidates) -> Iterator[str]:
    shapes = [node_info.shape for node_info in cluster.node_infos.values()]
    if not any(s.offers_gpus if pod.pod_request.gpus else s.offers_shares for s in shapes):
        kind = "exclusive GPUs" if pod.pod_request.gpus else "shares"
        yield f"no node offers {kind}: label one and check that the device plugin runs there"


def _for_share(
    pod: PodRequirements,
    cluster: Candidates,
    node_infos: Mapping[NodeName, NodeInfo],
    refusals: Refusals,
    rooms: Mapping[NodeName, int],
) -> Steps[list[str]]:
    pod_request = pod.pod_request
    found = yield from _too_large(pod_request, node_infos, refusals)
    steps = (for_share(cluster.node_infos[name], pod_request) for name in node_infos)
    step = yield from smallest(steps, pod, cluster)
    if step is not None:
        unit = unit_words(unit_of(node_infos[step.node]))
        freed = f" ({step.units} {unit})" if step.units else ""  # none of an exclusive GPU
        found.append(f"it fits GPU {step.gpu} of {step.node} once {_end_of(step, cluster)}{freed}")
    return [*found, *_smaller_share(pod, cluster, rooms)]


def _too_large(
    pod_request: PodRequest, node_infos: Mapping[NodeName, NodeInfo], refusals: Refusals
) -> Steps[list[str]]:
    """No GPU has that much memory: the unit is wrong, or several GPUs are needed."""
    mem = per_device(pod_request)[0]
    largest = max((node_info.shape.largest_gpu for node_info in node_infos.values()), default=0)
    if not 0 < largest < mem:
        return []
    hint, possible = "", False
    for name, node_info in node_infos.items():
        refusal = refusals[name]
        if not hint and refusal is not None and refusal.code is Code.TOO_LARGE:
            hint = amount_hint(with_unit(refusal, node_info))
        possible = possible or _divides(node_info, pod_request)
        yield
    spread = f", or spread the pod over GPUs with the label {_COUNT_LABEL}"
    return [f"no GPU is that large: check the unit (GiB or MiB){hint or spread * possible}"]


def _divides(node_info: NodeInfo, pod_request: PodRequest) -> bool:
    """Equal parts of the request would fit several empty GPUs of the node."""
    several = msgspec.structs.replace(pod_request, gpu_count=2)
    gpus = usable_devices(node_info.devices.values(), several)
    able = (gpu.total for gpu in gpus if gpu.gpu and isolates(gpu.gpu.isolation, several))
    mem, core = pod_request.mem, pod_request.core
    return any(
        mem <= total * count and core <= CORE_PER_GPU * count and not (mem % count or core % count)
        for count, total in enumerate(sorted(able, reverse=True), 1)
    )


def _smaller_share(
    pod: PodRequirements, cluster: Candidates, rooms: Mapping[NodeName, int]
) -> Iterator[str]:
    """The largest share that would be admitted at once, where less is free than requested."""
    for name, room in nsmallest(NAMED, rooms.items(), key=lambda each: (-each[1], each[0])):
        if not 0 < room < per_device(pod.pod_request)[0]:
            return
        less = msgspec.structs.replace(
            pod.pod_request, mem=room, containers=(ContainerRequest(mem=room),), gpu_count=1
        )
        if cluster.refusal(name, PodRequirements(less, pod.constraints)) is None:
            unit = unit_words(unit_of(cluster.node_infos[name]))
            several = f" without the label {_COUNT_LABEL}" if pod.pod_request.gpu_count > 1 else ""
            yield f"a share of {room} {unit}{several} fits now, on {name}"
            return


def _for_gpus(
    pod: PodRequirements,
    cluster: Candidates,
    node_infos: Mapping[NodeName, NodeInfo],
    *,
    everywhere: bool,
) -> Steps[list[str]]:
    wanted, found = pod.pod_request.gpus, list[str]()
    offering = [node_info for node_info in node_infos.values() if node_info.shape.offers_gpus]
    large: list[NodeInfo] = []
    for node_info in offering:
        large += [node_info] if _capacity(node_info, pod.pod_request) >= wanted else []
        yield
    steps = (for_gpus(cluster.node_infos[node_info.name], pod.pod_request) for node_info in large)
    step = yield from smallest(steps, pod, cluster)
    if step is not None:
        found.append(f"it fits {step.node} once {_end_of(step, cluster)}")
    if offering and not large and all(node_info.inventory for node_info in offering):
        found.append(_too_many(pod.pod_request, offering, everywhere=everywhere))
    elif large:
        roomy = max(large, key=lambda each: free_gpus(each, pod.pod_request))
        found += _short_of(pod.pod_request, roomy)
    return found


def _too_many(pod_request: PodRequest, offering: Sequence[NodeInfo], *, everywhere: bool) -> str:
    wanted = pod_request.gpus
    roomy = max(offering, key=lambda each: _capacity(each, pod_request))
    most = _capacity(roomy, pod_request)
    where = "no node" if everywhere else "no node that the pod can use"
    least = f"; {roomy.name} has the most, {most}: request at most {most}" if most else ""
    kind = " without MIG" if most < max(_capacity(each, _ONE_GPU) for each in offering) else ""
    return f"{where} has {wanted} healthy GPUs{kind}{least}"


def _short_of(pod_request: PodRequest, roomy: NodeInfo) -> Iterator[str]:
    wanted, missing = pod_request.gpus, pod_request.gpus - free_gpus(roomy, pod_request)
    if missing > 0:
        short = f"{roomy.name} is {missing} free GPU{'s' if missing > 1 else ''} short"
        yield f"{short}; 'gpushare defrag --gpus {wanted}' shows whether pods can be moved"


def _fewer(
    pod: PodRequirements,
    cluster: Candidates,
    node_infos: Mapping[NodeName, NodeInfo],
    grouping: Grouping,
) -> Iterator[str]:
    """The most GPUs that are free at once, where they are fewer than requested."""
    wanted = pod.pod_request
    roomy = max(node_infos.values(), key=lambda each: free_gpus(each, wanted), default=None)
    count = 0 if roomy is None else free_gpus(roomy, wanted)
    if roomy is None or not 0 < count < wanted.gpus:
        return
    less = msgspec.structs.replace(wanted, gpus=count, containers=(ContainerRequest(gpus=count),))
    if cluster.refusal(roomy.name, PodRequirements(less, pod.constraints)) is None:
        best = _best(roomy, count, less, grouping)
        yield f"{best} can be had now, on {roomy.name}"


def _capacity(node_info: NodeInfo, pod_request: PodRequest) -> int:
    """GPUs that the pod could all have one day."""
    return len(usable_devices(node_info.devices.values(), pod_request))


def _end_of(step: Step, cluster: Candidates) -> str:
    """``a ends``, or ``a, b, c and 2 more end``."""
    known = cluster.node_infos[step.node].allocations
    allocations = (known[uid] for uid in step.uids)
    names = sorted(f"{allocation.namespace}/{allocation.name}" for allocation in allocations)
    return f"{listed(names, NAMED)} {'ends' if len(names) == 1 else 'end'}"


def _remedies(refusals: Refusals) -> Iterator[str]:
    """The remedies of the reasons, those of most nodes first."""
    codes = Counter(refusal.code for refusal in refusals.values() if refusal is not None)
    for code, _ in codes.most_common():
        if code not in _UNOFFERED or len(codes) == 1:
            yield code.remedy


def _best(node_info: NodeInfo, count: int, pod_request: PodRequest, grouping: Grouping) -> str:
    """The best group that is free, and its score where links are known."""
    free = exclusive_devices(node_info.devices.values(), pod_request)
    group = grouping.whole(node_info, free, count, pod_request)
    score = node_info.shape.matrix.sum_of(group)
    return f"{gpus_named(group)} (score {score})" if score else gpus_named(group)
