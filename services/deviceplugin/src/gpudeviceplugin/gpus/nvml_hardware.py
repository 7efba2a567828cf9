"""What NVML reports about the hardware of a node: its GPUs, MIG instances and links."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
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
PCI_KINDS: Final = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "PSB",
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}
TO_SWITCH: Final = "switch"
UNKNOWN_END: Final = -1
NVIDIA_VENDOR: Final = 0x10DE
NUMA_WORDS: Final = 16
NUMA_BITS: Final = 64


def gpu_count() -> int:
    """Number of GPUs, those that do not answer included."""
    return int(call_driver(pynvml.nvmlDeviceGetCount))


def driver_version() -> str:
    """Version of the driver; empty unknown."""
    return str(call_or_unknown("", pynvml.nvmlSystemGetDriverVersion))


def _answers_limits(handle: Any, cgroup: str) -> bool:
    """Whether the driver answers for memory limits; a lost GPU raises as it does elsewhere."""
    return bool(cgroup) and call_or(None, memory_limit, handle, cgroup) is not None


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
        pcie_root=pcie_root(_bus_id(handle)),
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


def links_between(indexes: Iterable[int]) -> dict[str, tuple[str, ...]]:
    """The link of each pair of these GPUs: PCIe, and the NVLinks that both of them report.

    A query that fails is no link: it must not hide the GPUs themselves.
    """
    known = {
        index: call_or_unknown(None, pynvml.nvmlDeviceGetHandleByIndex, index) for index in indexes
    }
    handles = {index: handle for index, handle in known.items() if handle is not None}
    ends = {index: _nvlink_ends(handle) for index, handle in handles.items()}
    bus = {index: _bus_id(handle) for index, handle in handles.items()}
    found: dict[str, tuple[str, ...]] = {}
    for first, second in combinations(sorted(handles), 2):
        level = call_or_unknown(
            -1, pynvml.nvmlDeviceGetTopologyCommonAncestor, handles[first], handles[second]
        )
        direct = min(ends[first][bus[second]], ends[second][bus[first]])
        switched = min(ends[first][TO_SWITCH], ends[second][TO_SWITCH])
        kinds = [PCI_KINDS[level]] if level in PCI_KINDS else []
        kinds += [f"NV{direct + switched}"] if direct + switched else []
        if kinds:
            found[f"{first}-{second}"] = tuple(kinds)
    return found


def _nvlink_ends(handle: Any) -> Counter[str]:
    """Active NVLinks of a GPU by the bus id of the GPU at the other end, or by ``switch``."""
    links = (
        link
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS)
        if call_or_unknown(0, pynvml.nvmlDeviceGetNvLinkState, handle, link)
    )
    ends = Counter(_far_end(handle, link) for link in links)
    del ends[""]
    return ends


def _far_end(handle: Any, link: int) -> str:
    """The bus id of the GPU at the other end of an NVLink, or ``switch``; empty unknown."""
    query = pynvml.nvmlDeviceGetNvLinkRemoteDeviceType
    kind = call_or_unknown(UNKNOWN_END, query, handle, link)
    if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
        return TO_SWITCH
    remote = call_or_unknown(None, pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
    if kind == UNKNOWN_END and _is_switch(remote, handle):
        return TO_SWITCH
    return _bus_text(remote)


def _is_switch(remote: Any, handle: Any) -> bool:
    """Whether a device is NVIDIA's, but no GPU of the same model: drivers before 470 lack its type.

    NVLinks join GPUs of one model only. On POWER9 they end at CPUs too, which are not NVIDIA's.
    """
    device = getattr(remote, "pciDeviceId", 0)
    own = call_or_unknown(None, pynvml.nvmlDeviceGetPciInfo, handle)
    return device & 0xFFFF == NVIDIA_VENDOR and device != getattr(own, "pciDeviceId", device)


def _bus_id(handle: Any) -> str:
    return _bus_text(call_or_unknown(None, pynvml.nvmlDeviceGetPciInfo, handle))


def _bus_text(pci: Any) -> str:
    text = getattr(pci, "busId", b"")
    return (text.decode() if isinstance(text, bytes) else str(text)).upper()
