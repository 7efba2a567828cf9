"""Distribution of a gang's pods: the nodes, the number of pods on each, and their GPUs.

Nodes where the gang is already come first, then the fewest, best linked others. The minimal number
of nodes is exact: the nodes that fit most pods are counted until all pods fit. Each next node is
the best one that still allows that number.
"""

from collections.abc import Collection, Iterator, Sequence

from gpucore.accounting.device_info import DeviceInfo
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Allocation, AllocationState, FitError, Placement, PodRequest
from gpucore.scheduling.device_fit import exclusive_devices, fitting_devices, per_device
from gpucore.scheduling.fit import free_gpus
from gpucore.scheduling.grouping import Rules
from gpucore.scheduling.policy import ChooseGroup, place, score
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
            self.room = min(free_gpus(node_info, pod_request) // pod_request.gpus, most)
        elif pod_request.whole_device:
            self.room = len(self._filled(most))
        else:
            self.room = _room_for_shares(node_info, pod_request, most)

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
        """Places for ``count`` pods, or as many as fit."""
        if self._pod_request.gpus:
            return self._filled(count, self._of_union(count))
        found = self._filled(count)
        if len(found) < min(count, self.room):
            return self._filled(count, self._with_most_room)
        return found

    def _filled(self, count: int, choose: ChooseGroup | None = None) -> list[Placement]:
        """Places one after the other; ``choose`` picks the GPUs of each instead of the policy."""
        filled, rules = self.node_info.copy(), self._rules
        found: list[Placement] = []
        for number in range(count):
            placement = place(
                filled,
                self._pod_request,
                rules.policy,
                grouping=rules.grouping,
                choose_group=choose,
            )
            if isinstance(placement, FitError):
                break
            filled.put(_allocation(placement, self._pod_request, number))
            found.append(placement)
        return found

    def _of_union(self, count: int) -> ChooseGroup:
        """One group of GPUs for all pods, cut into theirs."""
        union = self._union(count)

        def cut(filled: NodeInfo, free: Sequence[GpuIndex], _: int) -> tuple[GpuIndex, ...]:
            mine = [gpu for gpu in free if gpu in union]
            return self._rules.grouping.exclusive(filled, mine, self._pod_request)

        return cut

    def _with_most_room(
        self, filled: NodeInfo, gpus: Sequence[GpuIndex], count: int
    ) -> tuple[GpuIndex, ...]:
        """The GPUs that fit most further shares: no other choice leaves room for more pods."""
        devices = filled.devices
        ordered = sorted(gpus, key=lambda gpu: -_shares(devices[gpu], self._pod_request))
        return tuple(ordered[:count])

    def _goodness(self, count: int) -> float:
        grouping, pod_request = self._rules.grouping, self._pod_request
        if pod_request.gpus:
            return grouping.rate(self.node_info, pod_request, self._union(count), 0.0)
        return score(self.node_info, pod_request, self._rules.policy, grouping=grouping)

    def _union(self, count: int) -> tuple[GpuIndex, ...]:
        """Exclusive GPUs for ``count`` pods."""
        pod_request = self._pod_request
        free = exclusive_devices(self.node_info.devices.values(), pod_request)
        return self._rules.grouping.whole(
            self.node_info, free, count * pod_request.gpus, pod_request
        )


def _room_for_shares(node_info: NodeInfo, pod_request: PodRequest, most: int) -> int:
    """How many equal shares fit, without trying; each of them on ``gpu_count`` different GPUs."""
    fitting = fitting_devices(node_info.devices.values(), pod_request)
    rooms = [_shares(device, pod_request) for device in fitting]
    room = min(sum(rooms) // pod_request.gpu_count, most)
    while room > (fewer := sum(min(one, room) for one in rooms) // pod_request.gpu_count):
        room = fewer  # a GPU takes one part of each pod
    return min(room, *_rooms_beside_pending(node_info, pod_request, most))


def _rooms_beside_pending(node_info: NodeInfo, pod_request: PodRequest, most: int) -> Iterator[int]:
    """The same by memory and by compute that are held on no known GPU."""
    yield most
    if pod_request.mem and (reserved := node_info.reserved_units()):
        yield max(node_info.free_units() - reserved, 0) // pod_request.mem
    if pod_request.core and node_info.pending_core:
        free = sum(device.core_free for device in node_info.devices.values() if device.healthy)
        yield max(free - node_info.pending_core, 0) // pod_request.core


def _shares(device: DeviceInfo, pod_request: PodRequest) -> int:
    """How many parts of equal shares the memory, compute and limit of a GPU allow."""
    mem, core = per_device(pod_request)
    rooms = [device.free // mem] if mem else []
    rooms += [device.core_free // core] if core else []
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
