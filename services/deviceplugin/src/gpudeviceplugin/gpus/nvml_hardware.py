"""What NVML reports about the hardware of a node: its GPUs and MIG instances."""

from collections.abc import Sequence
from typing import Any, Final

import pynvml

from gpudeviceplugin.gpus.devices import (
    NO_INSTANCE,
    DriverGpu,
    MigInstance,
)
from gpudeviceplugin.gpus.nvml_calls import (
    call,
    call_driver,
    call_or,
    call_or_unknown,
    memory_info,
    memory_limit,
)
from gpudeviceplugin.gpus.nvml_recovery import NOTHING, needed_recovery
from gpudeviceplugin.gpus.pcie import pcie_root

MIB: Final = 1024 * 1024
MIG_ON: Final = 1
NUMA_WORDS: Final = 16
NUMA_BITS: Final = 64


def gpu_count() -> int:
    """Number of GPUs, those that do not answer included."""
    return int(call_driver(pynvml.nvmlDeviceGetCount))


def driver_version() -> str:
    """Version of the driver; empty unknown."""
    return str(call_or_unknown("", pynvml.nvmlSystemGetDriverVersion))


def _answers_limits(handle: Any, cgroup: str) -> bool:
    """Whether the driver answers for memory limits.

    Whatever it answers, the GPU can be used without them; the other queries find a lost GPU.
    """
    return bool(cgroup) and call_or_unknown(None, memory_limit, handle, cgroup) is not None


def gpu_hardware(index: int, cgroup: str) -> DriverGpu:
    """One GPU.

    Args:
        cgroup: for which the driver is queried for memory limits; empty: it is not.
    """
    handle = call(pynvml.nvmlDeviceGetHandleByIndex, index)
    mode: list[int] = call_or([0, 0], pynvml.nvmlDeviceGetMigMode, handle)
    mig = mode[0] == MIG_ON
    total, reserved = (0, 0) if mig else _memory(handle)  # that of all instances needs privileges
    slots = int(call_or(0, pynvml.nvmlDeviceGetMaxMigDeviceCount, handle)) if mig else 0
    return DriverGpu(
        index=index,
        uuid=str(call(pynvml.nvmlDeviceGetUUID, handle)),
        model=str(call_or("", pynvml.nvmlDeviceGetName, handle)),
        memory_mib=total,
        reserved_mib=reserved,
        minor=int(call_or(-1, pynvml.nvmlDeviceGetMinorNumber, handle)),
        numa=_numa(handle),
        mig=mig,
        slots=slots,
        instances=_instances(handle, slots),
        capability=_capability(handle),
        memory_limits=_answers_limits(handle, cgroup),
        pcie_root=pcie_root(bus_id(handle)),
        needed_recovery=needed_recovery(handle) or NOTHING,
    )


def _memory(handle: Any) -> tuple[int, int]:
    """Total and reserved MiB; the latter is -1 where the driver does not report it."""
    found = memory_info(handle)
    reserved = getattr(found, "reserved", None)
    return found.total // MIB, -1 if reserved is None else -(-reserved // MIB)


def _capability(handle: Any) -> tuple[int, int]:
    major, minor = call_or((0, 0), pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    return int(major), int(minor)


def _numa(handle: Any) -> int:
    """Lowest host memory node near the GPU."""
    affinity = pynvml.nvmlDeviceGetMemoryAffinity
    words: Sequence[int] = call_or_unknown((), affinity, handle, NUMA_WORDS, 0)
    bits = sum(int(word) << (NUMA_BITS * place) for place, word in enumerate(words))
    return (bits & -bits).bit_length() - 1


def _instances(handle: Any, slots: int) -> tuple[MigInstance, ...]:
    found = []
    for slot in range(slots):
        instance = call_or(None, pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, slot)
        if instance is not None:
            found.append(_instance(slot, instance))
    return tuple(found)


def _instance(slot: int, handle: Any) -> MigInstance:
    total, reserved = _memory(handle)
    return MigInstance(
        slot=slot,
        uuid=str(call(pynvml.nvmlDeviceGetUUID, handle)),
        model=str(call_or("", pynvml.nvmlDeviceGetName, handle)),
        memory_mib=total,
        reserved_mib=reserved,
        gpu_instance=int(call_or(NO_INSTANCE, pynvml.nvmlDeviceGetGpuInstanceId, handle)),
    )


def bus_id(handle: Any) -> str:
    """The PCI bus id of a GPU; empty unknown."""
    return bus_text(call_or_unknown(None, pynvml.nvmlDeviceGetPciInfo, handle))


def bus_text(pci: Any) -> str:
    """The bus id of a PCI device; empty unknown."""
    text = getattr(pci, "busId", b"")
    return (text.decode() if isinstance(text, bytes) else str(text)).upper()
