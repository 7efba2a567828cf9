"""Claims in a replay: kube-scheduler's choice of the node, first fit in the slice's order on it.

kube-scheduler does not score GPUs of claims. By default it prefers the node with the most cpu and
memory left (LeastAllocated); with the strategy MostAllocated the one with the least.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from gpucore.accounting.device_info import DeviceInfo
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Placement, PodRequest
from gpucore.scheduling.device_order import device_order
from gpucore.scheduling.policy import Policy
from gpucore.simulate.hosts import Host
from gpucore.simulate.traces import TraceNode, TracePod
from gpucore.units import GpuIndex

PLAIN: Final = "plain"
"""Devices in the order of their index, as a driver without a policy publishes them."""


class ClaimOrder(msgspec.Struct, frozen=True):
    """How claims are allocated.

    Attributes:
        order: ``plain``, or the policy in whose order the node agent publishes the devices.
        packed: kube-scheduler prefers nodes with little cpu and memory left.
        nominated: the extender nominates the best node by the policy of ``order``.
    """

    order: str
    packed: bool = False
    nominated: bool = False


CLAIM_ORDERS: Final[Mapping[str, ClaimOrder]] = MappingProxyType(
    {
        **{
            f"claims-{order}{suffix}": ClaimOrder(order, packed=packed)
            for order in (PLAIN, "binpack", "fragmentation")
            for suffix, packed in (("", False), ("-packed", True))
        },
        **{
            f"claims-{order}-nominated": ClaimOrder(order, nominated=True)
            for order in ("binpack", "fragmentation")
        },
    }
)
"""By the name of the replay policy."""


class ClaimFit:
    """First fit on the hosts of a replay.

    Args:
        nodes: the hosts as they are when empty.
    """

    def __init__(self, nodes: Sequence[TraceNode], how: ClaimOrder) -> None:
        self._how = how
        self._totals = {node.name: (node.cpu_milli, node.memory_mib) for node in nodes}
        self._orders: dict[str, tuple[int, Mapping[GpuIndex, int]]] = {}

    def rule(self, host: Host, pod: TracePod, policy: Policy) -> Policy:
        """Devices by their place in the slice, and the host by its cpu and memory.

        Args:
            policy: rates a nominated host, with the devices that first fit takes there.
        """
        places, score = self._places(host), self._score(host, pod)

        def key(_info: NodeInfo, device: DeviceInfo, _request: PodRequest) -> tuple[float, ...]:
            return (float(places[device.index]),)

        def rate(_info: NodeInfo, _request: PodRequest, _at: Placement) -> tuple[float, ...]:
            return (score,)

        return Policy("claims", key, policy.rate if self._how.nominated else rate)

    @property
    def policy(self) -> str:
        """Name of the policy by which nodes are nominated."""
        return self._how.order

    def group(self, host: Host, free: Sequence[GpuIndex], count: int) -> tuple[GpuIndex, ...]:
        """Exclusive GPUs: the first that are free."""
        places = self._places(host)
        return tuple(sorted(free, key=places.__getitem__)[:count])

    def _places(self, host: Host) -> Mapping[GpuIndex, int]:
        name = host.node_info.name
        version, places = self._orders.get(name, (-1, {}))
        if version != host.version:
            places = {index: place for place, index in enumerate(self._order(host.node_info))}
            self._orders[name] = (host.version, places)
        return places

    def _order(self, node_info: NodeInfo) -> Sequence[GpuIndex]:
        if self._how.order == PLAIN:
            return tuple(node_info.devices)
        return device_order(node_info, self._how.order)

    def _score(self, host: Host, pod: TracePod) -> float:
        """The mean part of cpu and memory that is left, or in use, once the pod is there."""
        cpu, memory = self._totals[host.node_info.name]
        left = ((host.cpu_milli - pod.cpu_milli, cpu), (host.memory_mib - pod.memory_mib, memory))
        parts = [rest / total for rest, total in left if total]
        mean = sum(parts) / len(parts) if parts else 0.0
        return 1.0 - mean if self._how.packed else mean
