"""Memory of a GPU allocated to each pod, as devices or by claims, and the driver's limit of it."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from gpucore.model import Gpu
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.isolation.driver_limits import MemoryLimit, limit_of, memory_limit
from gpucore.units import MemoryUnit, PodUid
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin.state import NodeState

MIB: Final = 1024 * 1024


def allocated_bytes(state: NodeState, gpu: Gpu) -> dict[PodUid, int]:
    """Bytes of the GPU that each pod was given; nothing for pods without a share of its memory."""
    matcher, unit = state.matcher, state.inventory.unit
    held = matcher.holdings.by_pod(matcher.tables[Resource.MEM], gpu.index)
    size = unit.mib * MIB if unit else 0
    found = Counter(state.claims.bytes_on(gpu, state.pods.values()))
    for uid, pod in state.pods.items():
        if (pod.namespace, pod.name) in held:
            found[uid] += held[pod.namespace, pod.name] * size
    return dict(found)


def allocated_units(state: NodeState, gpu: Gpu) -> Counter[tuple[str, str]]:
    """Units of the GPU by namespace and name of the pod; a part of a unit counts as one."""
    matcher, unit = state.matcher, state.inventory.unit
    held = Counter(matcher.holdings.by_pod(matcher.tables[Resource.MEM], gpu.index))
    size = unit.mib * MIB if unit else MIB
    for uid, claimed in state.claims.bytes_on(gpu, state.pods.values()).items():
        pod = state.pods[uid]
        held[pod.namespace, pod.name] += -(-claimed // size)
    return held


def allocated_gpus(
    state: NodeState, gpu: Gpu, held: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str], float]:
    """The part of the GPU by pod: of ``held`` units, and all of it for an exclusive GPU."""
    matcher = state.matcher
    exclusive = matcher.holdings.by_pod(matcher.tables[Resource.GPU], gpu.index)
    shares = {pod: units / gpu.units for pod, units in held.items()} if gpu.units else {}
    return {**shares, **dict.fromkeys(exclusive, 1.0)}


def exclusive_pods(state: NodeState, gpu: Gpu) -> set[PodUid]:
    """Pods that have the GPU alone, so that nothing limits them."""
    matcher = state.matcher
    held = matcher.holdings.by_pod(matcher.tables[Resource.GPU], gpu.index)
    claims = state.claims.bytes_on(gpu, state.pods.values())
    found = {uid for uid, size in claims.items() if is_whole(state, gpu, size)}
    return found | {u for u, pod in state.pods.items() if (pod.namespace, pod.name) in held}


def holders(state: NodeState, gpu: Gpu) -> set[PodUid]:
    """Pods that hold the GPU or a part of its memory."""
    return {*allocated_bytes(state, gpu), *exclusive_pods(state, gpu)}


def has_share(state: NodeState, pod: Pod, resources: Collection[Resource]) -> bool:
    """The pod was given a part of a GPU: of these resources, or by a claim."""
    holdings = state.matcher.holdings
    devices = (holdings.held_by(each, pod.namespace, pod.name) for each in resources)
    return any(devices) or state.claims.uses(pod)


def is_whole(state: NodeState, gpu: Gpu, size_bytes: int) -> bool:
    """True if ``size_bytes`` is all allocatable memory of the GPU: no limit is needed."""
    unit = state.inventory.unit
    return size_bytes >= gpu.units * (unit.mib * MIB if unit else 0)


def allocated_limits(state: NodeState, gpu: Gpu) -> dict[PodUid, MemoryLimit]:
    """The driver's limit of each pod with a share of the GPU's memory, by kubelet and by claims.

    Grants since kubelet's last report do not count: the pod that holds them is a guess.
    """
    table = state.matcher.tables[Resource.MEM]
    units = {
        (each.namespace, each.name): table.per_device(each.memory_ids)[gpu.index]
        for each in state.account_with_lost()
    }
    units |= {pod: gpus.get(gpu.index, 0) for pod, gpus in state.inherited.gpus.items()}
    claimed = state.claims.bytes_on(gpu, state.pods.values())
    found: dict[PodUid, MemoryLimit] = {}
    for uid, pod in state.pods.items():
        count, size = units.get((pod.namespace, pod.name), 0), claimed.get(uid, 0)
        if count:
            found[uid] = share_limit(state, pod, gpu, count)
        elif size and not is_whole(state, gpu, size):
            found[uid] = limit_of(size)
    return found


def share_limit(state: NodeState, pod: Pod, gpu: Gpu, units: int) -> MemoryLimit:
    """The driver's limit of a pod with this number of units of the GPU's memory."""
    unit = state.inventory.unit or MemoryUnit(1)
    return memory_limit(pod, gpu, units, unit, state.policy.names)


def allowed_bytes(state: NodeState, gpu: Gpu) -> dict[PodUid, int]:
    """Bytes of the GPU that each pod with a share may use: more than its share where it bursts."""
    allocated = allocated_bytes(state, gpu)
    if not gpu.isolation.uses_driver:
        return allocated
    limits = allocated_limits(state, gpu)
    return {uid: limits[uid].hard if uid in limits else size for uid, size in allocated.items()}
