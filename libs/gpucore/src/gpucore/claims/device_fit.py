"""Whether one device can take one request of a claim, by kube-scheduler's rules."""

from collections.abc import Mapping

import msgspec

from gpucore.accounting.device_info import DeviceInfo
from gpucore.accounting.node_info import NodeInfo, unit_of
from gpucore.claims.selectors import select
from gpucore.model import CORE_PER_GPU, Allocation, Code, DeviceFitError
from gpucore.model.constraints import Taint
from gpucore.units import MIB, GpuIndex, MemoryUnit, PodUid
from gpucore.wire.claim.claim_specs import DeviceChoice, DeviceClass
from gpucore.wire.claim.devices import SHARES, UNHEALTHY, SliceDevice


class Device(msgspec.Struct, frozen=True):
    """A device with what is left of it.

    Attributes:
        free_mib: memory in MiB; 0 on a GPU that is used exclusively.
        core_free: percent of compute.
        users: number of shares that are allocated.
    """

    index: GpuIndex
    device: SliceDevice
    free_mib: int
    core_free: int
    users: int

    @property
    def untouched(self) -> bool:
        """No claim holds any of it."""
        return not self.users

    def less(self, choice: DeviceChoice) -> "Device":
        """The device once the choice is allocated as well; admin access consumes nothing."""
        if choice.admin:
            return self
        return msgspec.structs.replace(
            self,
            free_mib=self.free_mib - memory_of(choice, self.device),
            core_free=self.core_free - core_of(choice, self.device),
            users=self.users + 1,
        )


class Wanted(msgspec.Struct, frozen=True):
    """A choice together with the selectors of its class."""

    choice: DeviceChoice
    selectors: tuple[str, ...]


def wanted(choice: DeviceChoice, classes: Mapping[str, DeviceClass]) -> Wanted:
    """The choice with the selectors of its class, where the class is known."""
    known = classes.get(choice.device_class)
    of_class = known.selectors if known else ()
    return Wanted(choice, (*of_class, *choice.selectors))


def devices_of(node_info: NodeInfo, devices: Mapping[GpuIndex, SliceDevice]) -> list[Device]:
    """The devices of a node in the order of its slice."""
    unit, gpus, held = unit_of(node_info), node_info.devices, node_info.allocations
    return [_device(gpus[i], each, unit, held) for i, each in devices.items() if i in gpus]


def _device(
    gpu: DeviceInfo, device: SliceDevice, unit: MemoryUnit, held: Mapping[PodUid, Allocation]
) -> Device:
    used = gpu.used * unit.mib
    free = 0 if gpu.taken else max(device.memory_mib - used, 0)
    users = sum(held[uid].shares.get(gpu.index, 1) for uid in gpu.holders)
    return Device(gpu.index, device, free, gpu.core_free, users)


def shares_of(node_info: NodeInfo, uid: PodUid, index: GpuIndex) -> int:
    """Number of shares that a pod or a claim has of a GPU of which it holds something."""
    return node_info.allocations[uid].shares.get(index, 1)


def memory_of(choice: DeviceChoice, device: SliceDevice) -> int:
    """MiB that the choice consumes: the next step, or all where none is requested."""
    if choice.memory_mib is None or not device.shared:
        return device.memory_mib
    step = device.step_mib or 1
    return max(-(-choice.memory_mib // step) * step, device.step_mib)


def core_of(choice: DeviceChoice, device: SliceDevice) -> int:
    """Percent of compute that the choice consumes."""
    return choice.core if device.shared else CORE_PER_GPU


def misfit(device: Device, want: Wanted, unit: MemoryUnit) -> DeviceFitError | None:
    """Why the device cannot take the choice; ``None`` where it can. Amounts are in ``unit``."""
    choice, found = want.choice, device.device
    if not select(found, want.selectors).matches:
        return DeviceFitError(device.index, Code.SELECTOR)
    if choice.others and missing_capacities(found, choice):
        return DeviceFitError(device.index, Code.SELECTOR)
    if found.taint and not _tolerated(found, choice):
        return DeviceFitError(device.index, Code.UNHEALTHY)
    if choice.admin:
        return None
    return _short(device, choice, unit)


def never_fits(device: SliceDevice, want: Wanted) -> bool:
    """The device does not fit the choice when nothing else holds it; a taint does not count."""
    alone = msgspec.structs.replace(device, taint="")
    empty = Device(GpuIndex(0), alone, device.memory_mib, CORE_PER_GPU, 0)
    return misfit(empty, want, MIB) is not None


def missing_capacities(device: SliceDevice, choice: DeviceChoice) -> list[str]:
    """Capacities that the choice requests and that the device does not have."""
    limited = device.shared and device.max_shares
    return [name for name in choice.others if not (limited and name == SHARES)]


def _tolerated(device: SliceDevice, choice: DeviceChoice) -> bool:
    taint = Taint(UNHEALTHY, "true", device.taint)
    return any(each.tolerates(taint) for each in choice.tolerations)


def _short(device: Device, choice: DeviceChoice, unit: MemoryUnit) -> DeviceFitError | None:
    found, index = device.device, device.index
    memory, core = memory_of(choice, found), core_of(choice, found)
    requested = unit.units_for(choice.memory_mib if choice.memory_mib is not None else memory)
    figures = (unit.units_in(device.free_mib), unit.units_in(found.memory_mib), requested)
    if memory > found.memory_mib or (choice.memory_mib or 0) > found.memory_mib:
        return DeviceFitError(index, Code.TOO_LARGE, *figures)
    if choice.core > CORE_PER_GPU:
        return DeviceFitError(index, Code.COMPUTE_TOO_LARGE, 0, CORE_PER_GPU, choice.core)
    if not found.shared and not device.untouched:
        return DeviceFitError(index, Code.TAKEN_WHOLE)
    if memory > device.free_mib:
        return DeviceFitError(index, Code.INSUFFICIENT_MEMORY, *figures)
    return _short_of_compute(device, core)


def _short_of_compute(device: Device, core: int) -> DeviceFitError | None:
    found, index = device.device, device.index
    if core > device.core_free:
        return DeviceFitError(index, Code.INSUFFICIENT_CORE, device.core_free, CORE_PER_GPU, core)
    if found.max_shares and device.users >= found.max_shares:
        return DeviceFitError(index, Code.MAX_PODS, 0, found.max_shares, 1)
    return None
