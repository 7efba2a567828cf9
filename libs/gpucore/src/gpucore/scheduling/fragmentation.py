"""Growth of a node's fragmentation: free parts of GPUs that the usual pods cannot use.

After fragmentation gradient descent (USENIX ATC 2023): the placement that increases fragmentation
least keeps the most usable capacity. The usual pods are those that the node's
:class:`~gpucore.workload.pod_mix.HostRoom` names, else a guess.
"""

from typing import Final, Protocol

from gpucore.accounting.device_info import DeviceInfo
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import CORE_PER_GPU, Placement, PodRequest
from gpucore.units import MILLI
from gpucore.workload.pod_mix import GUESS

STEP: Final = 0.04
"""Growths, in GPUs, that differ by less are equal. Coarse steps leave the choice among equal nodes
to their order, so pods fill the same nodes and leave others empty."""


class Work(Protocol):
    """Pods that usually come, as one node sees them."""

    def fragmentation(self, free: tuple[int, ...], /) -> float:
        """GPUs of the free parts that these pods cannot use; parts in thousandths, sorted."""
        ...


def usual_work(node_info: NodeInfo, pod_request: PodRequest) -> tuple[Work, Work]:
    """The usual pods as the node sees them now, and once the CPU and memory of a pod are gone."""
    host = node_info.host
    if host is None:
        return GUESS, GUESS
    return host.view(), host.after(pod_request.cpu_milli, pod_request.memory_mib).view()


def fragments(node_info: NodeInfo) -> float:
    """GPUs of the node's free parts that the usual pods cannot use now."""
    work: Work = GUESS if node_info.host is None else node_info.host.view()
    return work.fragmentation(tuple(sorted(node_info.free_parts().values())))


def growth(
    node_info: NodeInfo, placement: Placement, before: Work, after: Work | None = None
) -> float:
    """GPUs of fragmentation that ``placement`` would add to the node; negative takes away.

    Args:
        node_info: the state of the node without the placement.
        before: the work that usually comes, as far as the node could run it now.
        after: the same once the placement is there; ``None`` where that changes nothing.
    """
    now = node_info.free_parts()
    then = dict(now)
    for index in frozenset((*placement.mem, *placement.core, *placement.group)):
        if index in then:
            then[index] = _left_milli(node_info.devices[index], then[index], placement)
    left = (after or before).fragmentation(tuple(sorted(then.values())))
    return left - before.fragmentation(tuple(sorted(now.values())))


def steps(grown: float) -> int:
    """A growth in whole steps, by which placements are compared."""
    return round(grown / STEP)


def _left_milli(device: DeviceInfo, free: int, placement: Placement) -> int:
    if device.index in placement.group:
        return 0
    if not device.total:
        return free
    mem, core = placement.mem.get(device.index, 0), placement.core.get(device.index, 0)
    memory_left = max(device.free - mem, 0) * MILLI // device.total
    return min(memory_left, max(device.core_free - core, 0) * MILLI // CORE_PER_GPU)
