"""Ledgers with a bug each, as the originals or hasty hands would write them.

A check that does not fail on these checks nothing.
"""

from collections.abc import Iterable

import msgspec

from gpucore.accounting.device_info import DeviceInfo
from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import Allocation, AllocationState
from gpucore.units import NodeName, PodUid
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod


class LeakyForget(Ledger):
    """A failed bind does not give its reservation back."""

    def forget(self, uid: PodUid) -> bool:
        return uid in self._assumed


class HastyDrop(Ledger):
    """An unbound event of a pod that is being bound drops its reservation."""

    def pod_changed(self, pod: Pod) -> None:
        if not pod.node:
            self._release(pod.uid)
        super().pod_changed(pod)


class StuckClaim(Ledger):
    """A changed annotation does not move the allocation to the other GPU."""

    def pod_changed(self, pod: Pod) -> None:
        standing = self.allocation(pod.uid)
        known = standing is not None and pod.uid not in self._assumed
        if known and pod.node and not pod.finished:
            return
        super().pod_changed(pod)


class DoubleCount(Ledger):
    """A changed annotation is counted on the new GPU and stays on the old one."""

    def pod_changed(self, pod: Pod) -> None:
        standing = self.allocation(pod.uid)
        super().pod_changed(pod)
        moved = self.allocation(pod.uid)
        if standing is None or moved is None or standing.placement.mem == moved.placement.mem:
            return
        node_info = self.node(standing.placement.node)
        assert node_info is not None
        for index, units in standing.placement.mem.items():
            if index in node_info.devices and index not in moved.placement.mem:
                node_info.devices[index].used += units


class EarlyRelease(Ledger):
    """A terminating pod is freed while its containers still run."""

    def pod_changed(self, pod: Pod) -> None:
        if pod.terminating:
            self._release(pod.uid)
            return
        super().pod_changed(pod)


class UnsignedGpu(DeviceInfo):
    """Free units are an unsigned number that wraps."""

    __slots__ = ()

    @property
    def free(self) -> int:
        return (self.total - self.used) % (1 << 64)


class Underflow(Ledger):
    """An over-full GPU looks almost infinitely free."""

    def _note(self, node_info: NodeInfo) -> None:
        for gpu in node_info.devices.values():
            gpu.__class__ = UnsignedGpu
        node_info._reckon()
        super()._note(node_info)


class FrozenShape(Ledger):
    """A node keeps the shape it was first seen with."""

    def node_changed(self, node: Node) -> None:
        if node.name not in self._objects:
            super().node_changed(node)


class AmnesicNode(Ledger):
    """The claims on a node are lost with the node."""

    def node_gone(self, name: NodeName) -> None:
        for uid, allocation in list(self._allocations.items()):
            if allocation.placement.node == name:
                self._release(uid)
        super().node_gone(name)


class EagerRelist(Ledger):
    """A relist drops the reservations of binds that are under way."""

    def relist_pods(self, pods: object) -> None:
        for uid in list(self._assumed):
            self._release(uid)
        super().relist_pods(pods)  # type: ignore[arg-type]


class NameKeyed(Ledger):
    """A pod that is re-created under the same name is taken for the old one."""

    def pod_gone(self, uid: PodUid) -> None:
        allocation = self.allocation(uid)
        super().pod_gone(uid)
        if allocation is None:
            return
        for other, twin in list(self._allocations.items()):
            if (twin.namespace, twin.name) == (allocation.namespace, allocation.name):
                self._release(other)


class GullibleGpu(DeviceInfo):
    """What a GPU holds beyond its size is nobody's business."""

    __slots__ = ()

    @property
    def excess(self) -> int:
        return 0


class Gullible(Ledger):
    """While two pods that swapped GPUs are being corrected, a taken GPU looks free."""

    def _note(self, node_info: NodeInfo) -> None:
        for gpu in node_info.devices.values():
            gpu.__class__ = GullibleGpu
        node_info._reckon()
        super()._note(node_info)


class Premature(Ledger):
    """A pod counts as confirmed as soon as it has a node, so that no excess of it is kept free."""

    def _hold(self, allocation: Allocation) -> None:
        confirmed = AllocationState.CONFIRMED
        super()._hold(msgspec.structs.replace(allocation, state=confirmed))


class StickyNomination(Ledger):
    """Keeps the reservation of a nominated pod that was deleted or nominated elsewhere."""

    def _withdrawn(self, pod: Pod) -> bool:
        del pod
        return False


class OrphanNomination(Ledger):
    """Keeps the reservation of a nominated pod that is missing from a list, as if it were bound."""

    def relist_pods(self, pods: Iterable[Pod]) -> None:
        kept = {uid: self._allocations[uid] for uid in self._nominations}
        super().relist_pods(pods)
        for uid, allocation in kept.items():
            if uid not in self._allocations:
                self._hold(allocation)
                self._nominations[uid] = ""
