"""The driver's own library, NVML: only this file and its neighbours ``nvml_*`` import ``pynvml``.

A symbol or a feature that a driver lacks gives an unknown value, never a crash; a lost GPU fails
only its own queries.
"""

import ctypes
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final

import pynvml

from gpucore.node.isolation.driver_limits import MemoryLimit
from gpudeviceplugin.gpus.devices import (
    NO_INSTANCE,
    DriverError,
    DriverGpu,
    Process,
    RecoveryNeededError,
    Usage,
    Xid,
)
from gpudeviceplugin.gpus.links import GpuLinks
from gpudeviceplugin.gpus.nvml_calls import (
    COMPUTE,
    GRAPHICS,
    MPS_COMPUTE,
    call,
    call_driver,
    call_or,
    handle_of,
    memory_info,
    memory_limit,
    process_samples,
    running_processes,
)
from gpudeviceplugin.gpus.nvml_hardware import driver_version, gpu_count, gpu_hardware
from gpudeviceplugin.gpus.nvml_links import gpu_links
from gpudeviceplugin.gpus.nvml_recovery import needed_recovery

NO_GPU_INSTANCE: Final = 0xFFFFFFFF
"""In an event that concerns no GPU instance in particular."""


class Nvml:
    """A connection with the library that the dynamic linker finds (``LD_LIBRARY_PATH`` chooses).

    Args:
        cgroup: returns a cgroup for which the plugin queries whether the driver limits memory;
            while it is empty no GPU is queried.
    """

    def __init__(self, cgroup: Callable[[], str] = lambda: "") -> None:
        self._cgroup = cgroup
        self._events: Any = None
        self._uuids: dict[int, str] = {}
        self._stale = False
        self._late: deque[Xid] = deque()
        self._sampled: dict[str, int] = {}

    def open(self) -> None:
        """Start a connection and subscribe to error events where the driver supports them.

        Raises:
            DriverUnavailableError: no library or no driver.
        """
        call_driver(pynvml.nvmlInit)

    def close(self) -> None:
        """End the connection; harmless without one."""
        self._unsubscribe()
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def abandon_events(self) -> None:
        """Never free the event set: a wait for an event hangs in it."""
        self._events = None

    def resubscribe(self) -> None:
        """A lost GPU was left out of the event set: let the next wait make a new one."""
        self._stale = True

    def _unsubscribe(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(events)

    def gpu_count(self) -> int:
        """Number of GPUs, those that do not answer included."""
        return gpu_count()

    def gpu(self, index: int) -> DriverGpu:
        """What the driver reports about one GPU."""
        return gpu_hardware(index, self._cgroup())

    def version(self) -> str:
        """Version of the driver; empty unknown."""
        return driver_version()

    def links(self, index: int, others: Collection[int]) -> GpuLinks:
        """The NVLinks of one GPU, and its PCIe paths to others."""
        return gpu_links(index, others)

    def probe(self, uuid: str) -> bool:
        """Touch one GPU: a lost one answers nothing, and one that needs a reset reports that."""
        handle = handle_of(uuid)
        call_or(None, pynvml.nvmlDeviceGetMemoryInfo, handle)
        needed = needed_recovery(handle)
        if needed:
            raise RecoveryNeededError(needed)
        return needed is not None

    def usage(self, uuid: str) -> Usage:
        """Memory of one GPU and the processes that hold it.

        NVML lists those that compute, those that draw (with Vulkan, for example), and clients of
        MPS apart.
        """
        handle = handle_of(uuid)
        memory = memory_info(handle)
        running = running_processes(COMPUTE, handle) or []
        drawing = running_processes(GRAPHICS, handle) or []
        clients = running_processes(MPS_COMPUTE, handle)
        used: dict[int, int] = {}
        for each in (*running, *drawing, *(clients or ())):  # one in several is one process
            used[each.pid] = max(used.get(each.pid, 0), each.usedGpuMemory or 0)
        known = None if clients is None else {each.pid for each in clients}
        processes = tuple(
            Process(pid, size, mps=None if known is None else pid in known)
            for pid, size in used.items()
        )
        return Usage(memory.total, memory.used, processes, self._sm_percents(uuid, handle))

    def _sm_percents(self, uuid: str, handle: Any) -> dict[int, int] | None:
        """SM utilization of the processes with work since the last query.

        NVML returns values above 100 at times, mostly for processes that ended.
        """
        samples = process_samples(handle, self._sampled.get(uuid, 0))
        if samples is None:
            return None
        newest = max((int(each.timeStamp) for each in samples), default=0)
        self._sampled[uuid] = max(self._sampled.get(uuid, 0), newest)
        engines = ("smUtil", "memUtil", "encUtil", "decUtil")
        return {
            each.pid: min(each.smUtil, 100)
            for each in samples
            if any(getattr(each, engine) for engine in engines)
        }

    def memory_limit(self, uuid: str, cgroup: str) -> MemoryLimit:
        """The limit in force of a cgroup on one GPU."""
        return memory_limit(handle_of(uuid), cgroup)[0]

    def memory_used(self, uuid: str, cgroup: str) -> int:
        """Bytes of one GPU that a cgroup with a limit uses, contexts included."""
        return memory_limit(handle_of(uuid), cgroup)[1]

    def set_memory_limit(self, uuid: str, cgroup: str, limit: MemoryLimit) -> None:
        """Limit the memory of a cgroup on one GPU; needs root."""
        request = pynvml.c_nvmlSetMemoryLimits_v1_t(cgroup.encode(), limit.soft, limit.hard)
        call(pynvml.nvmlDeviceSetMemoryLimits_v1, handle_of(uuid), request)

    def next_xid(self, timeout_ms: int) -> Xid | None:
        """The next critical error of any GPU, or ``None`` when the time is over."""
        if self._stale or self._events is None:
            self._renew()
        if self._late:
            return self._late.popleft()
        try:
            return self._taken(self._events, timeout_ms)
        except pynvml.NVMLError_Timeout:
            return None
        except pynvml.NVMLError as error:  # a lost GPU spoils the set: the next wait makes anew
            self._stale = True
            raise DriverError(f"nvmlEventSetWait_v2: {error}") from error

    def _renew(self) -> None:
        """Subscribe anew, and only then empty the old set: no event falls between the two."""
        self._stale = False
        try:
            events = self._subscribed()
        except DriverError:
            self._stale = True
            raise
        old, self._events = self._events, events
        if old is not None:
            with suppress(pynvml.NVMLError):  # a time-out: there is nothing in it
                for _ in range(1000):  # far more than it can hold
                    self._late.append(self._taken(old, 0))
            with suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(old)

    def _taken(self, events: Any, timeout_ms: int) -> Xid:
        event = pynvml.nvmlEventSetWait_v2(events, timeout_ms)
        number = int(event.gpuInstanceId)
        instance = NO_INSTANCE if number == NO_GPU_INSTANCE else number
        return Xid(int(event.eventData), self._uuids.get(_address(event.device), ""), instance)

    def _subscribed(self) -> Any:
        """A new event set for all GPUs that report errors."""
        events = call(pynvml.nvmlEventSetCreate)
        try:
            self._register(events)
        except DriverError:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(events)
            raise
        return events

    def _register(self, events: Any) -> None:
        """Take errors of all GPUs into the set, but for one without a readable UUID: it is lost.

        An error without a UUID is one of every GPU.
        """
        wanted = pynvml.nvmlEventTypeXidCriticalError
        for index in range(call(pynvml.nvmlDeviceGetCount)):
            with suppress(DriverError):
                handle = call(pynvml.nvmlDeviceGetHandleByIndex, index)
                uuid = str(call(pynvml.nvmlDeviceGetUUID, handle))
                call(pynvml.nvmlDeviceRegisterEvents, handle, wanted, events)
                self._uuids[_address(handle)] = uuid
        if not self._uuids:
            raise DriverError("no GPU supports error events")


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
