"""Distribution of a gang's pods: the nodes, the number of pods on each, and their GPUs.

Nodes where the gang is already come first, then the fewest, best linked others. The minimal number
of nodes is exact: the nodes that fit most pods are counted until all pods fit. Each next node is
the best one that still allows that number.
"""

from collections.abc import Collection, Sequence

from gpucore.accounting.device_info import DeviceInfo
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Allocation, AllocationState, FitError, Placement, PodRequest
from gpucore.scheduling.device_fit import device_fit_error
from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.policy import place, score
from gpucore.units import GpuIndex, NodeName, PodUid


class NodeOffer:
    """A node and how many equal pods of a gang it fits.

    Args:
        node_info: its state, which is not changed.
        most: maximum number of pods.

    Attributes:
        room: how many pods it can take.
    """

    def __init__(
        self, node_info: NodeInfo, pod_request: PodRequest, rules: Rules, *, most: int
    ) -> None:
        self.node_info = node_info
        self._pod_request = pod_request
        self._rules = rules
        self._known: dict[int, float] = {}
        if pod_request.gpus:
            self.room = min(node_info.free_gpus // pod_request.gpus, most)
        elif _countable(node_info, pod_request):
            self.room = min(
                sum(_shares(gpu, pod_request) for gpu in node_info.devices.values()), most
            )
        else:
            self.room = len(self.load(most))

    @property
    def name(self) -> NodeName:
        """Name of the node."""
        return self.node_info.name

    def goodness(self, count: int) -> float:
        """How good the node is for ``count`` pods, more is better: by the links of all GPUs."""
        if count not in self._known:
            self._known[count] = self._goodness(count)
        return self._known[count]

    def load(self, count: int) -> list[Placement]:
        """Places for ``count`` pods, or as many as fit: one group of GPUs, cut into theirs."""
        filled, rules = self.node_info.copy(), self._rules
        union = self._union(count) if self._pod_request.gpus else ()

        def cut(_: NodeInfo, free: Sequence[GpuIndex], many: int) -> tuple[GpuIndex, ...]:
            mine = [gpu for gpu in free if gpu in union]
            return rules.grouping.whole(filled, mine, many, self._pod_request)

        found: list[Placement] = []
        for number in range(count):
            placement = place(
                filled,
                self._pod_request,
                rules.policy,
                grouping=rules.grouping,
                choose_group=cut if union else None,
            )
            if isinstance(placement, FitError):
                break
            filled.put(_allocation(placement, self._pod_request, number))
            found.append(placement)
        return found

    def _goodness(self, count: int) -> float:
        grouping, pod_request = self._rules.grouping, self._pod_request
        if pod_request.gpus:
            return grouping.rate(self.node_info, pod_request, self._union(count), 0.0)
        return score(self.node_info, pod_request, self._rules.policy, grouping=grouping)

    def _union(self, count: int) -> tuple[GpuIndex, ...]:
        """Exclusive GPUs for ``count`` pods."""
        free = [
            index
            for index, device in self.node_info.devices.items()
            if device.open and device.empty
        ]
        pod_request = self._pod_request
        return self._rules.grouping.whole(
            self.node_info, free, count * pod_request.gpus, pod_request
        )


def _countable(node_info: NodeInfo, pod_request: PodRequest) -> bool:
    """Equal shares of which each GPU can be filled by itself, so that they need not be tried."""
    alone = pod_request.gpu_count > 1 or pod_request.whole_device
    return not (alone or node_info.reserved_units() or node_info.pending_core)


def _shares(device: DeviceInfo, pod_request: PodRequest) -> int:
    """How many of the shares fit one GPU."""
    if device_fit_error(device, pod_request) is not None:
        return 0
    rooms = [device.free // pod_request.mem] if pod_request.mem else []
    rooms += [device.core_free // pod_request.core] if pod_request.core else []
    rooms += [device.max_pods - len(device.holders)] if device.max_pods else []
    return min(rooms)


def _allocation(placement: Placement, pod_request: PodRequest, number: int) -> Allocation:
    uid, alone = PodUid(f"gang/{number}"), pod_request.whole_device
    return Allocation(uid, "", "", AllocationState.RESERVED, placement, exclusive=alone)


def spread_over(
    offers: Sequence[NodeOffer], count: int, home: Collection[NodeName]
) -> list[tuple[NodeOffer, int]]:
    """Nodes and how many pods each takes; empty where not all pods fit."""
    if sum(offer.room for offer in offers) < count:
        return []
    ordered = sorted(offers, key=lambda offer: (-offer.room, offer.name))
    homes = [offer for offer in ordered if offer.name in home]
    others = [offer for offer in ordered if offer.name not in home]
    chosen: list[tuple[NodeOffer, int]] = []
    while count:
        best = homes.pop(0) if homes else _best(others, count)
        load = min(best.room, count)
        chosen.append((best, load))
        others = [offer for offer in others if offer is not best]
        count -= load
    return chosen


def _best(ordered: Sequence[NodeOffer], count: int) -> NodeOffer:
    """The best node that keeps the number of nodes least; the tightest of equals."""
    rest = count  # for the last node, where the roomiest ones take all others
    for offer in ordered:
        if offer.room >= rest:
            break
        rest -= offer.room

    def rank(offer: NodeOffer) -> tuple[float, int, NodeName]:
        return -offer.goodness(min(offer.room, count)), offer.node_info.free_gpus, offer.name

    return min((offer for offer in ordered if offer.room >= rest), key=rank)
