"""Distribution of a gang's pods: the nodes, the number of pods on each, and their GPUs.

Nodes where the gang is already come first, then the fewest, best linked others. The minimal number
of nodes is exact: the nodes that fit most pods are counted until all pods fit. Each next node is
the best one that still allows that number.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import heappop, heappush

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
        elif pod_request.whole_device or (pod_request.gpu_count > 1 and node_info.pending_gpus):
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
    if pod_request.core and (pending := node_info.reserved_core()):
        free = sum(device.core_free for device in node_info.devices.values() if device.healthy)
        yield max(free - pending, 0) // pod_request.core


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
    chosen: list[tuple[NodeOffer, int]] = []
    for offer in ordered:
        if offer.name in home and count:
            load = min(offer.room, count)
            chosen.append((offer, load))
            count -= load
    others = [offer for offer in ordered if offer.name not in home]
    return [*chosen, *_fewest(others, count)]


_Ranked = tuple[tuple[float, int, NodeName], NodeOffer]
"""A node with its rank: the best one first, the tightest of equals."""


def _fewest(ordered: Sequence[NodeOffer], count: int) -> Iterator[tuple[NodeOffer, int]]:
    """The fewest nodes of those with most room first, each time the best that keeps them so few.

    While no node takes all pods that are left, each node is filled. So its rank stays, and each
    node is rated once: a gang may take a thousand of thousands of nodes.
    """
    left = {offer.name: offer for offer in ordered}
    waiting, ranked = deque(ordered), list[_Ranked]()
    while count:
        least = _least_room(left.values(), count)
        if least == count:
            roomy = [offer for offer in left.values() if offer.room >= count]
            yield min(_ranked(offer, count) for offer in roomy)[1], count
            return
        while waiting and waiting[0].room >= least:
            offer = waiting.popleft()
            heappush(ranked, _ranked(offer, offer.room))
        best = _pop(ranked, least)
        yield best, best.room
        del left[best.name]
        count -= best.room


def _least_room(ordered: Iterable[NodeOffer], count: int) -> int:
    """For how many pods the last node has room, where the roomiest ones take all others."""
    for offer in ordered:
        if offer.room >= count:
            break
        count -= offer.room
    return count


def _pop(ranked: list[_Ranked], least: int) -> NodeOffer:
    """Take the best node that has room for ``least`` pods."""
    aside = list[_Ranked]()
    while ranked[0][1].room < least:
        aside.append(heappop(ranked))
    _, best = heappop(ranked)
    for one in aside:
        heappush(ranked, one)
    return best


def _ranked(offer: NodeOffer, count: int) -> _Ranked:
    return (-offer.goodness(count), offer.node_info.free_gpus, offer.name), offer
