"""The driver's own library, NVML: the only file that imports ``pynvml``.

A symbol or a feature that a driver lacks means "not told", never a crash; a card that is lost fails
its own questions only. Handles are looked up for every question, since a lost and recovered card
gets a new one.
"""

import ctypes
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from typing import Any, Final, TypeVar

import pynvml

from gpudeviceplugin.cards import (
    Card,
    CardLostError,
    DriverError,
    DriverUnavailableError,
    Instance,
    Machine,
    Process,
    Usage,
    Xid,
)

T = TypeVar("T")
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
NUMA_WORDS: Final = 16
NUMA_BITS: Final = 64

_UNAVAILABLE: Final = {
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
}
_NOT_TOLD: Final = {
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_DEPRECATED,
}


def _ask(question: Callable[..., T], *arguments: Any) -> T:
    """Put one question; the library's errors become ours."""
    try:
        return question(*arguments)
    except pynvml.NVMLError as error:
        words = f"{question.__name__}: {error}"
        if error.value in _UNAVAILABLE:
            raise DriverUnavailableError(words) from error
        if error.value in _NOT_TOLD:
            raise DriverError(words) from error
        raise CardLostError(words) from error


def _ask_or(default: T, question: Callable[..., T], *arguments: Any) -> T:
    """As :func:`_ask`, with an answer for what this driver does not tell."""
    try:
        return _ask(question, *arguments)
    except (CardLostError, DriverUnavailableError):
        raise
    except DriverError:
        return default


class Nvml:
    """A connection with the library that the dynamic linker finds (``LD_LIBRARY_PATH`` chooses)."""

    def __init__(self) -> None:
        self._events: Any = None
        self._uuids: dict[int, str] = {}
        self._stale = False
        self._late: deque[Xid] = deque()

    def open(self) -> None:
        """Start a connection and ask for error events where they are offered.

        Raises:
            DriverUnavailableError: no library or no driver.
        """
        _ask(pynvml.nvmlInit)

    def close(self) -> None:
        """End the connection; harmless without one."""
        self._unsubscribe()
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def resubscribe(self) -> None:
        """A lost card was left out of the event set: let the next wait make a new one."""
        self._stale = True

    def _unsubscribe(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(events)

    def machine(self) -> Machine:
        """Enumerate the cards; those that do not answer are listed as silent."""
        handles: dict[int, Any] = {}
        cards: list[Card] = []
        for index in range(_ask(pynvml.nvmlDeviceGetCount)):
            with suppress(CardLostError):
                handle = _ask(pynvml.nvmlDeviceGetHandleByIndex, index)
                cards.append(_card(index, handle))
                handles[index] = handle
        return Machine(
            driver=str(_ask_or("", pynvml.nvmlSystemGetDriverVersion)),
            cards=tuple(cards),
            silent=tuple(i for i in range(_ask(pynvml.nvmlDeviceGetCount)) if i not in handles),
            links=_links(handles),
        )

    def probe(self, uuid: str) -> None:
        """Touch one card: a lost one answers nothing."""
        _ask_or(None, pynvml.nvmlDeviceGetMemoryInfo, _handle(uuid))

    def usage(self, uuid: str) -> Usage:
        """Memory of one card and the processes that hold it, clients of MPS among them."""
        handle = _handle(uuid)
        memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
        running: list[Any] = _ask_or([], pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
        clients: list[Any] | None = _ask_or(
            None, pynvml.nvmlDeviceGetMPSComputeRunningProcesses, handle
        )
        used: dict[int, int] = {}
        for each in (*running, *(clients or ())):  # one that is in both lists is one process
            used[each.pid] = max(used.get(each.pid, 0), each.usedGpuMemory or 0)
        known = None if clients is None else {each.pid for each in clients}
        processes = tuple(
            Process(pid, size, mps=None if known is None else pid in known)
            for pid, size in used.items()
        )
        return Usage(memory.total, memory.used, processes)

    def next_xid(self, timeout_ms: int) -> Xid | None:
        """The next critical error of any card, or ``None`` when the time is over."""
        if self._stale or self._events is None:
            self._renew()
        if self._late:
            return self._late.popleft()
        try:
            return self._taken(self._events, timeout_ms)
        except pynvml.NVMLError_Timeout:
            return None
        except pynvml.NVMLError as error:  # a lost card spoils the set: the next wait makes anew
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
        return Xid(int(event.eventData), self._uuids.get(_address(event.device), ""))

    def _subscribed(self) -> Any:
        """An event set for all cards that tell errors; a lost card could not be asked its name."""
        events = _ask(pynvml.nvmlEventSetCreate)
        wanted = pynvml.nvmlEventTypeXidCriticalError
        for index in range(_ask(pynvml.nvmlDeviceGetCount)):
            with suppress(DriverError):
                handle = _ask(pynvml.nvmlDeviceGetHandleByIndex, index)
                _ask(pynvml.nvmlDeviceRegisterEvents, handle, wanted, events)
                self._uuids[_address(handle)] = str(_ask(pynvml.nvmlDeviceGetUUID, handle))
        if not self._uuids:
            raise DriverError("no card tells its errors")
        return events


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _handle(uuid: str) -> Any:
    try:
        return _ask(pynvml.nvmlDeviceGetHandleByUUID, uuid)
    except DriverUnavailableError:
        raise
    except DriverError as error:  # a uuid that is unknown is a card that is gone
        raise CardLostError(str(error)) from error


def _card(index: int, handle: Any) -> Card:
    total, reserved = _memory(handle)
    mode: list[int] = _ask_or([0, 0], pynvml.nvmlDeviceGetMigMode, handle)
    mig = mode[0] == MIG_ON
    slots = int(_ask_or(0, pynvml.nvmlDeviceGetMaxMigDeviceCount, handle)) if mig else 0
    return Card(
        index=index,
        uuid=str(_ask(pynvml.nvmlDeviceGetUUID, handle)),
        model=str(_ask_or("", pynvml.nvmlDeviceGetName, handle)),
        memory_mib=total,
        reserved_mib=reserved,
        minor=int(_ask_or(-1, pynvml.nvmlDeviceGetMinorNumber, handle)),
        numa=_numa(handle),
        mig=mig,
        slots=slots,
        instances=_instances(handle, slots),
        capability=_capability(handle),
    )


def _memory(handle: Any) -> tuple[int, int]:
    """Total and reserved MiB; drivers before 510 lack version 2 and leave the latter unknown."""
    version = pynvml.nvmlMemory_v2
    second = _ask_or(None, pynvml.nvmlDeviceGetMemoryInfo, handle, version)
    if second is not None:
        return second.total // MIB, -(-second.reserved // MIB)
    return _ask(pynvml.nvmlDeviceGetMemoryInfo, handle).total // MIB, -1


def _capability(handle: Any) -> tuple[int, int]:
    major, minor = _ask_or((0, 0), pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    return int(major), int(minor)


def _numa(handle: Any) -> int:
    """Lowest host memory node near the card."""
    words: Sequence[int] = _ask_or((), pynvml.nvmlDeviceGetMemoryAffinity, handle, NUMA_WORDS, 0)
    bits = sum(int(word) << (NUMA_BITS * place) for place, word in enumerate(words))
    return (bits & -bits).bit_length() - 1


def _instances(handle: Any, slots: int) -> tuple[Instance, ...]:
    found = []
    for slot in range(slots):
        instance = _ask_or(None, pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, slot)
        if instance is not None:
            found.append(_instance(slot, instance))
    return tuple(found)


def _instance(slot: int, handle: Any) -> Instance:
    total, reserved = _memory(handle)
    return Instance(
        slot=slot,
        uuid=str(_ask(pynvml.nvmlDeviceGetUUID, handle)),
        model=str(_ask_or("", pynvml.nvmlDeviceGetName, handle)),
        memory_mib=total,
        reserved_mib=reserved,
    )


def _links(handles: Mapping[int, Any]) -> dict[str, tuple[str, ...]]:
    """How each pair of cards is connected: the PCIe way, and NVLinks where there are any."""
    ends = {index: _nvlink_ends(handle) for index, handle in handles.items()}
    bus = {index: _bus_id(handle) for index, handle in handles.items()}
    found: dict[str, tuple[str, ...]] = {}
    for first, second in combinations(sorted(handles), 2):
        level = _ask_or(
            -1, pynvml.nvmlDeviceGetTopologyCommonAncestor, handles[first], handles[second]
        )
        direct = ends[first][bus[second]]
        switched = min(ends[first][TO_SWITCH], ends[second][TO_SWITCH])
        kinds = [PCI_KINDS[level]] if level in PCI_KINDS else []
        kinds += [f"NV{direct + switched}"] if direct + switched else []
        if kinds:
            found[f"{first}-{second}"] = tuple(kinds)
    return found


def _nvlink_ends(handle: Any) -> Counter[str]:
    """Active NVLinks of a card by the bus id of the card at the other end, or by ``switch``."""
    ends: Counter[str] = Counter()
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        if not _ask_or(0, pynvml.nvmlDeviceGetNvLinkState, handle, link):
            continue
        kind = _ask_or(-1, pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            ends[TO_SWITCH] += 1
        else:
            remote = _ask_or(None, pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
            ends[_bus_text(remote)] += remote is not None
    return ends


def _bus_id(handle: Any) -> str:
    return _bus_text(_ask_or(None, pynvml.nvmlDeviceGetPciInfo, handle))


def _bus_text(pci: Any) -> str:
    text = getattr(pci, "busId", b"")
    return (text.decode() if isinstance(text, bytes) else str(text)).upper()
