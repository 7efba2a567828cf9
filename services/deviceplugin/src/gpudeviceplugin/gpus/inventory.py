"""The GPUs of the driver as the published inventory.

A GPU in MIG mode is offered as its instances, never itself: they get indexes after those of
all GPUs, the same ones as long as an instance stays in its slot.
"""

import msgspec

from gpucore.model import Gpu, Inventory
from gpucore.node.allocation.device_ids import MESSAGE_LIMIT, list_bytes, smallest_unit
from gpucore.units import GpuIndex, GpuUuid, MemoryUnit
from gpudeviceplugin.gpus.devices import DriverGpu, MigInstance, NodeHardware


def inventory_of(machine: NodeHardware, unit: MemoryUnit, *, reserve_mib: int = 0) -> Inventory:
    """The inventory of a machine, all GPUs healthy and none with isolation.

    Args:
        machine: as the driver reports it.
        unit: size of one device of memory.
        reserve_mib: MiB of every GPU and MIG instance to keep besides what the driver keeps.
    """
    count = len(machine.cards) + len(machine.silent)
    gpus = [_gpu(card) for card in machine.cards if not card.mig]
    gpus += [
        _mig_gpu(card, instance, count) for card in machine.cards for instance in card.instances
    ]
    counted = (_counted(gpu, unit, reserve_mib) for gpu in gpus)
    ordered = tuple(sorted(counted, key=lambda gpu: gpu.index))
    return Inventory(gpus=ordered, unit=unit, links=machine.links, driver=machine.driver)


def _counted(gpu: Gpu, unit: MemoryUnit, reserve_mib: int) -> Gpu:
    """The GPU with its reserve complete, and its units."""
    kept = msgspec.structs.replace(gpu, reserved_mib=max(gpu.reserved_mib, 0) + reserve_mib)
    return msgspec.structs.replace(kept, units=unit.units_in(kept.allocatable_mib))


def _gpu(card: DriverGpu) -> Gpu:
    return Gpu(
        index=GpuIndex(card.index),
        uuid=GpuUuid(card.uuid),
        units=0,
        minor=card.minor,
        model=card.model,
        memory_mib=card.memory_mib,
        reserved_mib=card.reserved_mib,
        numa=card.numa,
        pcie_root=card.pcie_root,
    )


def _mig_gpu(card: DriverGpu, instance: MigInstance, count: int) -> Gpu:
    return Gpu(
        index=GpuIndex(count + card.index * card.slots + instance.slot),
        uuid=GpuUuid(instance.uuid),
        units=0,
        minor=card.minor,
        model=instance.model,
        memory_mib=instance.memory_mib,
        reserved_mib=instance.reserved_mib,
        numa=card.numa,
        mig=True,
        pcie_root=card.pcie_root,
    )


def unit_refusal(inventory: Inventory, unit: MemoryUnit, *, numa: bool) -> str:
    """Why kubelet could not read the device list in this unit; empty when it can."""
    size = list_bytes(inventory.gpus, unit, numa=numa)
    if size <= MESSAGE_LIMIT:
        return ""
    smallest = smallest_unit(inventory.gpus, numa=numa)
    return (
        f"in units of {unit} the device list has {size} bytes, but kubelet reads at most "
        f"{MESSAGE_LIMIT}; the smallest unit that fits these GPUs is {smallest}"
    )
