"""Placement policies as data over one loop: which of the GPUs that fit is chosen.

A policy is a key: the GPUs with the smallest key are chosen, ties go to the lowest index. Scores
of nodes are 0..10 as an extender returns them, higher is better, 0 for a node that cannot.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from gpucore.accounting.device_info import DeviceInfo, rating, utilization
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import CORE_PER_GPU, FitError, GpuAmounts, Placement, PodRequest
from gpucore.scheduling.device_fit import exclusive_devices, fitting_devices, per_device
from gpucore.scheduling.fit import fit
from gpucore.scheduling.fragmentation import STEP, Work, growth, steps, usual_work
from gpucore.scheduling.grouping import BY_LINKS, Grouping
from gpucore.units import GpuIndex
from gpucore.wire.pod.placements import split_evenly

MAX_SCORE: Final = 10
Key = Callable[[NodeInfo, DeviceInfo, PodRequest], tuple[float, ...]]
Rate = Callable[[NodeInfo, PodRequest, Placement], tuple[float, ...]]
UsualWork = Callable[[NodeInfo, PodRequest], tuple[Work, Work]]
ChooseGroup = Callable[[NodeInfo, Sequence[GpuIndex], int], tuple[GpuIndex, ...]]


class Policy(msgspec.Struct, frozen=True):
    """How to choose.

    Attributes:
        key: of a GPU for a share; the smallest is chosen.
        rate: of a placement on its node; first 0 (worst) to 1 (best), then what breaks ties.
        costly: a key takes so long that it is computed once for GPUs in the same state.
    """

    name: str
    key: Key
    rate: Rate
    costly: bool = False


def place(
    node_info: NodeInfo,
    pod_request: PodRequest,
    policy: str | Policy = "",
    *,
    grouping: Grouping = BY_LINKS,
    choose_group: ChooseGroup | None = None,
) -> Placement | FitError:
    """The placement of a pod on this node.

    Args:
        node_info: the state of the node, which is not changed.
        pod_request: what the pod requests.
        policy: a name is the default that the pod's own policy and the node's label overrule; a
            :class:`Policy` is used as it is.
        grouping: picks exclusive GPUs, and the GPUs of a share over several, by their links.
        choose_group: picks n of the GPUs that can be taken (free ones for exclusive GPUs) instead.
    """
    refusal = fit(node_info, pod_request)
    if refusal is not None:
        return refusal
    if pod_request.gpus:
        return _whole(node_info, pod_request, grouping, choose_group)
    chosen = resolve(node_info, pod_request, policy)
    return _share(node_info, pod_request, chosen, grouping, choose_group)


def score(
    node_info: NodeInfo,
    pod_request: PodRequest,
    policy: str | Policy = "",
    *,
    grouping: Grouping = BY_LINKS,
) -> int:
    """How good this node is for the pod, 0..10; 0 also where it does not fit."""
    placement = place(node_info, pod_request, policy, grouping=grouping)
    if isinstance(placement, FitError):
        return 0
    best, *_ = rate(node_info, pod_request, placement, policy, grouping=grouping)
    return points(best)


def points(rated: float) -> int:
    """A rating from 0 to 1 as a scheduler reads it."""
    return round(MAX_SCORE * rated)


def rate(
    node_info: NodeInfo,
    pod_request: PodRequest,
    placement: Placement,
    policy: str | Policy,
    *,
    grouping: Grouping = BY_LINKS,
) -> tuple[float, ...]:
    """How good a placement is: 0 to 1 (several GPUs by their links), then what breaks ties."""
    chosen = resolve(node_info, pod_request, policy)
    packing, *ties = chosen.rate(node_info, pod_request, placement)
    packing = min(max(packing, 0.0), 1.0)
    gpus = placement.group or tuple(placement.mem or placement.core)
    return grouping.rate(node_info, pod_request, gpus, packing), packing, *ties


def resolve(node_info: NodeInfo, pod_request: PodRequest, policy: str | Policy) -> Policy:
    """The policy that holds: a :class:`Policy` as it is; else the pod's, node's or default name."""
    if isinstance(policy, Policy):
        return policy
    return POLICIES[pod_request.policy or node_info.shape.policy or policy or "binpack"]


def _whole(
    node_info: NodeInfo, pod_request: PodRequest, grouping: Grouping, choose: ChooseGroup | None
) -> Placement:
    free = exclusive_devices(node_info.devices.values(), pod_request)
    if choose is None:
        group = grouping.exclusive(node_info, free, pod_request)
    else:
        group = choose(node_info, free, pod_request.gpus)
    return Placement(node_info.name, group=group)


def _share(
    node_info: NodeInfo,
    pod_request: PodRequest,
    policy: Policy,
    grouping: Grouping,
    choose: ChooseGroup | None,
) -> Placement:
    fitting = fitting_devices(node_info.devices.values(), pod_request)
    gpus = _beside_pending(node_info, fitting, pod_request.gpu_count)
    if choose is None:
        if policy.costly:
            gpus.sort(key=_remembered(policy, node_info, pod_request))
        else:
            gpus.sort(key=lambda gpu: policy.key(node_info, gpu, pod_request))
        chosen = grouping.shared(node_info, [gpu.index for gpu in gpus], pod_request)
    else:
        chosen = choose(node_info, [gpu.index for gpu in gpus], pod_request.gpu_count)
    mem, core = per_device(pod_request)
    containers = split_evenly([request.mem for request in pod_request.containers], chosen)
    return Placement(node_info.name, _on_each(chosen, mem), _on_each(chosen, core), containers)


def _beside_pending(node_info: NodeInfo, fitting: list[DeviceInfo], count: int) -> list[DeviceInfo]:
    """Without the empty GPUs where pods with exclusive GPUs, not known yet, must be on these."""
    if not node_info.pending_gpus:
        return fitting
    empty = sum(device.open and device.empty for device in node_info.devices.values())
    in_use = [device for device in fitting if not device.empty]
    return in_use if empty <= node_info.pending_gpus and len(in_use) >= count else fitting


def _remembered(
    policy: Policy, node_info: NodeInfo, pod_request: PodRequest
) -> Callable[[DeviceInfo], tuple[float, ...]]:
    """The policy's key of a GPU, computed once for GPUs in the same state."""
    known: dict[tuple[int, int, int], tuple[float, ...]] = {}

    def key(device: DeviceInfo) -> tuple[float, ...]:
        state = device.total, device.free, device.core_free
        found = known.get(state)
        if found is None:
            found = known[state] = policy.key(node_info, device, pod_request)
        return found

    return key


def _on_each(gpus: Sequence[GpuIndex], amount: int) -> GpuAmounts:
    return dict.fromkeys(gpus, amount) if amount else {}


def _least_free(
    node_info: NodeInfo, device: DeviceInfo, pod_request: PodRequest
) -> tuple[float, ...]:
    """Best fit: the smallest remainder; by compute where the request has no memory."""
    del node_info
    return (device.free if pod_request.mem else device.core_free,)


def _most_free(
    node_info: NodeInfo, device: DeviceInfo, pod_request: PodRequest
) -> tuple[float, ...]:
    return tuple(-part for part in _least_free(node_info, device, pod_request))


def _fullness(
    node_info: NodeInfo, pod_request: PodRequest, placement: Placement
) -> tuple[float, ...]:
    """Part of the node's GPUs that is in use once the request is on it."""
    del pod_request
    return (_rated(node_info, placement, spread=False),)


def _emptiness(
    node_info: NodeInfo, pod_request: PodRequest, placement: Placement
) -> tuple[float, ...]:
    del pod_request
    return (_rated(node_info, placement, spread=True),)


def _rated(node_info: NodeInfo, placement: Placement, *, spread: bool) -> float:
    parts = [_used_part(c, placement) for c in node_info.devices.values() if c.gpu is not None]
    return rating(sum(parts), len(parts), spread=spread)


def _used_part(device: DeviceInfo, placement: Placement) -> float:
    if device.taken or device.index in placement.group:
        return 1.0
    mem = device.used + placement.mem.get(device.index, 0)
    core = device.core_used + placement.core.get(device.index, 0)
    return utilization(device.total, mem, core / CORE_PER_GPU)


def fragmentation_policy(usual: UsualWork = usual_work) -> Policy:
    """Least growth of fragmentation under the usual work; best fit among equal GPUs.

    Args:
        usual: the work that usually comes to a node, before a pod is there and after.
    """

    def key(
        node_info: NodeInfo, device: DeviceInfo, pod_request: PodRequest
    ) -> tuple[float, float]:
        mem, core = per_device(pod_request)
        placement = Placement(node_info.name, {device.index: mem}, {device.index: core})
        return _grown(node_info, pod_request, placement), device.free

    def rate(
        node_info: NodeInfo, pod_request: PodRequest, placement: Placement
    ) -> tuple[float, ...]:
        """One half where fragmentation stays as it is, more where it falls."""
        grown = STEP * _grown(node_info, pod_request, placement)
        return (0.5 - grown / (2.0 * (1.0 + abs(grown))),)

    def _grown(node_info: NodeInfo, pod_request: PodRequest, placement: Placement) -> int:
        return steps(growth(node_info, placement, *usual(node_info, pod_request)))

    return Policy("fragmentation", key, rate, costly=True)


POLICIES: Final[Mapping[str, Policy]] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            Policy("binpack", _least_free, _fullness),
            Policy("spread", _most_free, _emptiness),
            fragmentation_policy(),
        )
    }
)
