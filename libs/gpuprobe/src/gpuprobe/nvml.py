"""Free memory of a whole GPU by NVML: CUDA may report what a limit leaves to the process."""

import ctypes
from ctypes import byref, c_ulonglong, c_void_p
from typing import Final

from gpuprobe.names import NVML

_MIB: Final = 1024 * 1024


class _Memory(ctypes.Structure):
    """``nvmlMemory_t``."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


def free_mib(uuid: str, library: str = NVML) -> int | None:
    """Free MiB of a GPU; ``None`` where the container has no NVML that reports it."""
    handle, memory = c_void_p(), _Memory()
    try:
        nvml = ctypes.CDLL(library)
        failed = (
            nvml.nvmlInit_v2()
            or nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), byref(handle))
            or nvml.nvmlDeviceGetMemoryInfo(handle, byref(memory))
        )
    except (OSError, AttributeError):
        return None
    return None if failed else int(memory.free) // _MIB
