"""Calls of NVML: the library's errors become ours; what a driver lacks is an unknown value.

Handles are looked up for every query, since a lost and recovered GPU gets a new one.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import pynvml

from gpucore.node.isolation.driver_limits import MemoryLimit
from gpudeviceplugin.gpus.devices import DriverError, DriverUnavailableError, GpuLostError

T = TypeVar("T")

_UNAVAILABLE: Final = {
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
}
_NOT_REPORTED: Final = {
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_DEPRECATED,
}

_NO_SAMPLES: Final = {
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_SUCCESS,  # pynvml raises it where the first call finds no sample
}

COMPUTE: Final = "Compute"
GRAPHICS: Final = "Graphics"
MPS_COMPUTE: Final = "MPSCompute"
"""Kinds of processes, as NVML names them."""


def call(function: Callable[..., T], *arguments: Any) -> T:
    """Call NVML; its errors are raised as DriverError."""
    try:
        return function(*arguments)
    except UnicodeDecodeError as error:  # the binding reads texts as UTF-8
        raise DriverError(f"{function.__name__}: {error}") from error
    except pynvml.NVMLError as error:
        words = f"{function.__name__}: {error}"
        if error.value in _UNAVAILABLE:
            raise DriverUnavailableError(words) from error
        if error.value in _NOT_REPORTED:
            raise DriverError(words) from error
        raise GpuLostError(words) from error


def call_driver(function: Callable[..., T], *arguments: Any) -> T:
    """Call NVML about no GPU in particular; any error is raised as DriverUnavailableError."""
    try:
        return call(function, *arguments)
    except DriverUnavailableError:
        raise
    except DriverError as error:
        raise DriverUnavailableError(str(error)) from error


def call_or(default: T, function: Callable[..., T], *arguments: Any) -> T:
    """As :func:`call`, with a default for values that this driver does not report."""
    try:
        return call(function, *arguments)
    except (GpuLostError, DriverUnavailableError):
        raise
    except DriverError:
        return default


def call_or_unknown(default: T, function: Callable[..., T], *arguments: Any) -> T:
    """As :func:`call_or`, with the default for every error of a GPU, also that it is lost.

    For values that no allocation needs: the probes find out whether the GPU is lost.
    """
    try:
        return call(function, *arguments)
    except DriverUnavailableError:
        raise
    except DriverError:
        return default


def memory_info(handle: Any) -> Any:
    """Bytes of a GPU, ``total`` and ``used``.

    Version 2 has ``reserved`` apart from ``used``; drivers before 510 lack it, and there is no such
    attribute then.
    """
    second = call_or(None, pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    return call(pynvml.nvmlDeviceGetMemoryInfo, handle) if second is None else second


def running_processes(kind: str, handle: Any) -> list[Any] | None:
    """Processes of one kind on a GPU; ``None`` where the driver does not list them.

    The binding means version 3, with the layout of version 2. Drivers before 510 and some of branch
    535 lack that version, and 535.43 to 535.86 fill it with a longer layout.
    """
    for version in (2, 3):
        function = getattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses_v{version}")
        found: list[Any] | None = call_or(None, function, handle)
        if found is not None:
            return found
    return None


def process_samples(handle: Any, since: int) -> list[Any] | None:
    """Utilization of the processes that used a GPU; ``None`` where it cannot be read.

    No error is raised: the memory in use must not depend on this figure. Among the errors is that
    of a list which grows between the two calls of the binding. A lost GPU fails the next query.

    Args:
        since: time stamp of the last sample that was seen, in microseconds; 0: all that there are.
    """
    try:
        found: list[Any] = pynvml.nvmlDeviceGetProcessUtilization(handle, since)
    except pynvml.NVMLError as error:
        return [] if error.value in _NO_SAMPLES else None
    return found


def handle_of(uuid: str) -> Any:
    """The handle of a GPU, as it is now."""
    try:
        return call(pynvml.nvmlDeviceGetHandleByUUID, uuid)
    except DriverUnavailableError:
        raise
    except DriverError as error:  # a uuid that is unknown is a GPU that is gone
        raise GpuLostError(str(error)) from error


def memory_limit(handle: Any, cgroup: str) -> tuple[MemoryLimit, int]:
    """The limit of a cgroup, and the bytes that it uses."""
    answer = pynvml.c_nvmlGetMemoryLimits_v1_t(cgroup.encode())
    call(pynvml.nvmlDeviceGetMemoryLimits_v1, handle, answer)
    return MemoryLimit(int(answer.softLimit), int(answer.hardLimit)), int(answer.currentUsed)
