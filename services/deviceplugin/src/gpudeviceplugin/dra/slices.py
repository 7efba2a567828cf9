"""The ResourceSlices of this node: those that exist, and the one that should.

kubelet deletes the slices of a node when it starts, so they are watched and published again.
"""

from collections.abc import Iterable

import msgspec

from gpucore.accounting.node_info import NodeInfo
from gpucore.accounting.node_infos import capacity_of
from gpucore.model import Allocation, Inventory
from gpucore.model.constraints import NO_SCHEDULE
from gpucore.scheduling.device_order import device_order
from gpucore.units import GpuIndex
from gpucore.wire.claim.devices import SliceDevice, device_of
from gpucore.wire.claim.resource_slices import (
    MAX_TAINTED,
    PATH,
    ResourceSlice,
    decode_slice,
    link_groups,
)
from gpucore.wire.names import CLAIM_DRIVER, Names
from gpucore.wire.node.spec import Node
from gpudeviceplugin.signals import Signal
from gpukube.watch.collection import Collection, collection_of


def slice_name(node: str) -> str:
    """Name of the slice: fixed, so that two plugins on one node never create two slices."""
    return f"{node}-{CLAIM_DRIVER}"


def slices_of(node: str) -> Collection[ResourceSlice]:
    """The slices of the driver on one node."""
    selector = f"spec.driver={CLAIM_DRIVER},spec.nodeName={node}"
    return collection_of("resourceslices", PATH, decode_slice, params={"fieldSelector": selector})


class SliceWatch:
    """The event handler of the informer of this node's slices.

    Attributes:
        slices: by name.
        known: the first list is complete.
        generation: the largest generation of the pool that was ever seen.
        removals: how often the watch or a list has reported that slices went.
    """

    def __init__(self, changed: Signal) -> None:
        self.slices: dict[str, ResourceSlice] = {}
        self.known = False
        self.generation = 0
        self.removals = 0
        self._changed = changed

    def on_replace(self, items: Iterable[ResourceSlice]) -> None:
        """Take these slices and no others."""
        self.slices.clear()
        self.removals += 1
        self.known = True
        for item in items:
            self.put(item)
        self._changed.fire()

    def on_update(self, item: ResourceSlice, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        """Take a slice that is new or has changed."""
        self.put(item)
        self._changed.fire()

    def on_delete(self, item: ResourceSlice) -> None:
        """A slice was deleted."""
        self.removals += 1
        self.drop(item.name)
        self._changed.fire()

    def put(self, item: ResourceSlice) -> None:
        """Note a slice as the API server has it."""
        self.slices[item.name] = item
        self.generation = max(self.generation, item.generation)

    def put_answer(self, item: ResourceSlice, removals: int) -> None:
        """Note a slice from the answer to a request that began when there were ``removals``.

        Where slices went since then, this one may be among them although its answer comes later.
        It is left out: if it does exist, creating it conflicts, and it is read again.
        """
        self.generation = max(self.generation, item.generation)
        if self.removals == removals:
            self.put(item)

    def drop(self, name: str) -> None:
        """Note that a slice does not exist."""
        self.slices.pop(name, None)


def wanted_slice(
    node: Node,
    inventory: Inventory,
    allocations: Iterable[Allocation],
    *,
    policy: str,
    names: Names,
    unhealthy: str = NO_SCHEDULE,
) -> ResourceSlice | None:
    """The slice that this node should have, of generation 1; ``None`` without any usable GPU.

    Args:
        allocations: what claims hold.
        policy: name of the policy where the node's label names none.
        unhealthy: effect of the taint of a GPU that is not healthy.
    """
    capacity = capacity_of(node, names, frozenset())
    shape = msgspec.structs.replace(capacity, inventory=inventory, offers_shares=True, oversell=1)
    node_info = NodeInfo(node.name, shape)
    for allocation in allocations:
        node_info.put(allocation)
    devices = _accepted(_devices(node_info, device_order(node_info, policy), unhealthy))
    if not devices:
        return None
    return ResourceSlice(
        name=slice_name(node.name),
        driver=CLAIM_DRIVER,
        node=node.name,
        pool=node.name,
        devices=devices,
        node_uid=node.uid,
    )


def without_new_claims(present: ResourceSlice) -> ResourceSlice:
    """The slice with a taint ``NoSchedule`` on each device that has none: running pods stay."""
    devices = tuple(
        each if each.taint else msgspec.structs.replace(each, taint=NO_SCHEDULE)
        for each in present.devices
    )
    return msgspec.structs.replace(present, devices=_accepted(devices))


def _accepted(devices: tuple[SliceDevice, ...]) -> tuple[SliceDevice, ...]:
    """The devices; none with a taint where there are too many for the API server to accept one.

    A device that is not in the slice takes no new claims either.
    """
    if len(devices) <= MAX_TAINTED:
        return devices
    return tuple(each for each in devices if not each.taint)


def _devices(
    node_info: NodeInfo, order: Iterable[GpuIndex], unhealthy: str
) -> tuple[SliceDevice, ...]:
    inventory = node_info.inventory
    if inventory is None or inventory.unit is None:
        return ()
    groups, infos = link_groups(inventory), node_info.devices
    gpus = {gpu.index: gpu for gpu in inventory.gpus if gpu.units}
    return tuple(
        device_of(
            gpus[index],
            inventory.unit,
            link_group=groups.get(index, ""),
            max_shares=infos[index].max_pods,
            unhealthy=unhealthy,
        )
        for index in order
        if index in gpus
    )
