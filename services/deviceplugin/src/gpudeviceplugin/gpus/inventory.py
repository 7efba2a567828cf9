"""The GPUs of the driver as the published inventory.

A GPU in MIG mode is offered as its instances, never itself, and only as those with memory of their
own: compute instances of one GPU instance share its memory, and nothing divides it between them.
Instances get indexes after those of all GPUs, the same ones as long as an instance stays in its
slot. On a node with several kinds of GPUs they may change when the MIG mode of a GPU before it
changes, or when such a GPU answers for the first time.
"""

from collections import Counter

import msgspec

from gpucore.model import Gpu, Inventory
from gpucore.node.allocation.device_ids import MESSAGE_LIMIT, list_bytes, smallest_unit
from gpucore.units import GpuIndex, GpuUuid, MemoryUnit
from gpudeviceplugin.gpus.devices import NO_INSTANCE, DriverGpu, MigInstance, NodeHardware


def inventory_of(machine: NodeHardware, unit: MemoryUnit, *, reserve_mib: int = 0) -> Inventory:
    """The inventory of a machine, all GPUs healthy and none with isolation.

    Args:
        machine: as the driver reports it.
        unit: size of one device of memory.
        reserve_mib: MiB of every GPU and MIG instance to keep besides what the driver keeps.
    """
    gpus = [_gpu(device) for device in machine.gpus if not device.mig]
    gpus += [
        _mig_gpu(device, instance, _first_index(machine, device))
        for device in machine.gpus
        for instance in offered_instances(device)
    ]
    counted = (_counted(gpu, unit, reserve_mib) for gpu in gpus)
    ordered = tuple(sorted(counted, key=lambda gpu: gpu.index))
    return Inventory(gpus=ordered, unit=unit, links=_links(machine), driver=machine.driver)


def _links(machine: NodeHardware) -> dict[str, tuple[str, ...]]:
    """The links between GPUs that are offered; CUDA connects no MIG instances."""
    cut = {device.index for device in machine.gpus if device.mig}
    return {pair: names for pair, names in machine.links.items() if cut.isdisjoint(_ends(pair))}


def with_known(answer: NodeHardware, before: NodeHardware) -> NodeHardware:
    """The machine with what was last known of GPUs, and of links, that are not reported now.

    A GPU in MIG mode keeps its instances, and the instances of the others their indexes. A driver
    that answered for memory limits once supports them, though a later query may fail.
    """
    answered = {device.uuid for device in answer.gpus}
    kept = {
        device.index: device
        for device in before.gpus
        if device.index in answer.silent and device.uuid not in answered
    }
    same_driver = answer.driver == before.driver
    limited = {device.uuid for device in before.gpus if device.memory_limits and same_driver}
    answers = (_with_limits(device) if device.uuid in limited else device for device in answer.gpus)
    gpus = sorted((*answers, *kept.values()), key=lambda device: device.index)
    silent = {index: why for index, why in answer.silent.items() if index not in kept}
    unknown, there = kept.keys() | answer.unlinked.keys(), {device.index for device in gpus}
    links = {
        pair: names
        for pair, names in before.links.items()
        if there.issuperset(_ends(pair)) and not unknown.isdisjoint(_ends(pair))
    }
    return msgspec.structs.replace(
        answer, gpus=tuple(gpus), silent=silent, links={**links, **answer.links}
    )


def _with_limits(device: DriverGpu) -> DriverGpu:
    return msgspec.structs.replace(device, memory_limits=True)


def _ends(pair: str) -> list[int]:
    return [int(index) for index in pair.split("-")]


def offered_uuids(device: DriverGpu) -> list[str]:
    """UUIDs of what a physical GPU is offered as: itself, or its instances in MIG mode."""
    return [each.uuid for each in offered_instances(device)] if device.mig else [device.uuid]


def offered_instances(gpu: DriverGpu) -> list[MigInstance]:
    """MIG instances with memory of their own: the only compute instance of their GPU instance."""
    parts = Counter(each.gpu_instance for each in gpu.instances)
    return [
        each
        for each in gpu.instances
        if each.gpu_instance == NO_INSTANCE or parts[each.gpu_instance] == 1
    ]


def _first_index(machine: NodeHardware, gpu: DriverGpu) -> int:
    """The index of the first slot of a GPU in MIG mode: after those of the GPUs before it.

    GPUs without MIG, or which do not answer, have as many slots as any other: MIG may be turned on.
    """
    slots = {device.index: device.slots for device in machine.gpus if device.mig}
    most = max(slots.values())
    before = sum(slots.get(index, most) for index in range(gpu.index))
    return len(machine.gpus) + len(machine.silent) + before


def _counted(gpu: Gpu, unit: MemoryUnit, reserve_mib: int) -> Gpu:
    """The GPU with its reserve complete, and its units."""
    kept = msgspec.structs.replace(gpu, reserved_mib=max(gpu.reserved_mib, 0) + reserve_mib)
    return msgspec.structs.replace(kept, units=unit.units_in(kept.allocatable_mib))


def _gpu(gpu: DriverGpu) -> Gpu:
    return Gpu(
        index=GpuIndex(gpu.index),
        uuid=GpuUuid(gpu.uuid),
        units=0,
        minor=gpu.minor,
        model=gpu.model,
        memory_mib=gpu.memory_mib,
        reserved_mib=gpu.reserved_mib,
        numa=gpu.numa,
        pcie_root=gpu.pcie_root,
    )


def _mig_gpu(gpu: DriverGpu, instance: MigInstance, first: int) -> Gpu:
    return Gpu(
        index=GpuIndex(first + instance.slot),
        uuid=GpuUuid(instance.uuid),
        units=0,
        minor=gpu.minor,
        model=instance.model,
        memory_mib=instance.memory_mib,
        reserved_mib=instance.reserved_mib,
        numa=gpu.numa,
        mig=True,
        pcie_root=gpu.pcie_root,
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
