"""What NVML reports about the links of a GPU: its NVLinks, and PCIe paths to other GPUs."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import pynvml

from gpudeviceplugin.gpus.links import GpuLinks
from gpudeviceplugin.gpus.nvml_calls import call, call_or_unknown
from gpudeviceplugin.gpus.nvml_hardware import bus_id, bus_text

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


def gpu_links(index: int, others: Iterable[int]) -> GpuLinks:
    """The NVLinks of a GPU, and its PCIe paths to ``others``.

    A query that fails is no link; a GPU without a handle is lost.
    """
    handle = call(pynvml.nvmlDeviceGetHandleByIndex, index)
    ends = _nvlink_ends(handle)
    switched = ends.pop(TO_SWITCH, 0)
    paths = {other: _pcie_path(handle, other) for other in others}
    return GpuLinks(bus=bus_id(handle), direct=ends, switched=switched, paths=paths)


def _pcie_path(handle: Any, other: int) -> str:
    """The PCIe path to another GPU; empty unknown."""
    far = call_or_unknown(None, pynvml.nvmlDeviceGetHandleByIndex, other)
    if far is None:
        return ""
    query = pynvml.nvmlDeviceGetTopologyCommonAncestor
    return PCI_KINDS.get(call_or_unknown(-1, query, handle, far), "")


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
    return bus_text(remote)


def _is_switch(remote: Any, handle: Any) -> bool:
    """Whether a device is NVIDIA's, but no GPU of the same model: drivers before 470 lack its type.

    NVLinks join GPUs of one model only. On POWER9 they end at CPUs too, which are not NVIDIA's.
    """
    device = getattr(remote, "pciDeviceId", 0)
    own = call_or_unknown(None, pynvml.nvmlDeviceGetPciInfo, handle)
    return device & 0xFFFF == NVIDIA_VENDOR and device != getattr(own, "pciDeviceId", device)
