"""Whether this machine can carry the hardware suite, and if not, the one sentence why.

The suite leaves every setting of a GPU as it is. A GPU that is cut into MIG instances, that
admits one process only, or that somebody else is using is therefore not for it.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from gpuprobe.driver import LibraryError, load
from hardware import nvidiasmi
from hardware.nvidiasmi import SmiError, SmiGpu

MPS_CONTROL: Final = "nvidia-cuda-mps-control"
VOLTA: Final = (7, 0)
_SHARED_MODE: Final = "Default"
_HOST_PROCESSES: Final = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel


class NoGpuError(Exception):
    """What is needed is not here; the message is a sentence for the reader of a skip."""


def usable_gpu() -> SmiGpu:
    """The first GPU that the suite may use.

    Raises:
        NoGpuError: no driver, or no GPU that is free.
    """
    try:
        load()
        gpus = nvidiasmi.listed()
        busy = {gpu.uuid: nvidiasmi.processes(gpu.uuid) for gpu in gpus}
    except LibraryError as error:
        raise NoGpuError(f"no CUDA driver on this machine: {error.name}") from error
    except SmiError as error:
        raise NoGpuError(str(error)) from error
    return chosen(gpus, busy)


def chosen(gpus: Sequence[SmiGpu], busy: Mapping[str, Mapping[int, int]]) -> SmiGpu:
    """The first GPU without an obstacle; ``busy`` are its compute processes by uuid.

    Raises:
        NoGpuError: there is none; names the obstacle of each.
    """
    obstacles = {gpu.index: obstacle(gpu, busy.get(gpu.uuid, {})) for gpu in gpus}
    for gpu in gpus:
        if not obstacles[gpu.index]:
            return gpu
    words = "; ".join(f"GPU {index} {why}" for index, why in obstacles.items())
    raise NoGpuError(f"no GPU to measure on: {words or 'the driver lists none'}")


def obstacle(gpu: SmiGpu, processes: Mapping[int, int]) -> str:
    """Why the suite must leave a GPU alone; empty when it need not."""
    if gpu.mig:
        return "is cut into MIG instances, which the suite leaves as they are"
    if gpu.recovery:
        return f"needs a recovery before it can be used: {gpu.recovery}"
    if not gpu.memory_mib:
        return "has no memory of which nvidia-smi reports the size"
    if gpu.compute_mode != _SHARED_MODE:
        return f"has compute mode {gpu.compute_mode}, and sharing by time needs {_SHARED_MODE}"
    if processes:
        return f"is in use by process {', '.join(map(str, sorted(processes)))}"
    return ""


def demand_mps(capability: str) -> None:
    """Return if MPS can limit clients here.

    Args:
        capability: compute capability of the GPU, such as ``7.5``.

    Raises:
        NoGpuError: no control program, or a GPU of before Volta.
    """
    if shutil.which(MPS_CONTROL) is None:
        raise NoGpuError(f"{MPS_CONTROL} is not on PATH (it comes with the driver)")
    major, minor = map(int, capability.split("."))
    if (major, minor) < VOLTA:
        raise NoGpuError(f"MPS limits clients from Volta on; this GPU has {capability}")


def host_processes(namespace: Path = Path("/proc/self/ns/pid")) -> bool:
    """Whether the driver's process ids are those that are seen here: not in most containers."""
    return str(namespace.readlink()) == _HOST_PROCESSES


def demand_host_processes() -> None:
    """Return if :func:`host_processes`.

    Raises:
        NoGpuError: this is a container with process ids of its own.
    """
    if not host_processes():
        raise NoGpuError(
            "processes are numbered apart from the host's here, and the driver reports host numbers"
        )
