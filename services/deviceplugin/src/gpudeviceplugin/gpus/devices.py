"""GPU data from the driver, and the interface by which the plugin reads it.

Plain values without a word of NVML in them. Every method of the port may block: callers keep it
off the event loop (:mod:`gpudeviceplugin.gpus.driver`).

    DriverError                  one query failed: not supported, or not permitted
    ├── DriverUnavailableError   no library, no driver or no right to use it: no query works
    ├── GpuLostError             one GPU does not respond; the others do
    └── RecoveryNeededError      one GPU responds, but cannot be used before a recovery
"""

from collections.abc import Collection, Mapping
from typing import Final, Protocol

import msgspec

from gpucore.node.isolation.driver_limits import MemoryLimit
from gpudeviceplugin.gpus.links import GpuLinks, links_of_pairs

NO_INSTANCE: Final = -1
"""For a GPU instance of MIG: none, or unknown."""
LEAST_CONTEXT_BYTES: Final = 32 << 20
"""Memory in use below this is no process: a driver holds a few MiB, a CUDA context hundreds."""


class DriverError(Exception):
    """A query to the driver failed."""


class DriverUnavailableError(DriverError):
    """The driver is unavailable; the message names what is missing."""


class GpuLostError(DriverError):
    """The GPU does not answer any more."""


class RecoveryNeededError(DriverError):
    """The driver requires a recovery of the GPU, such as a reset, which the message names."""


class MigInstance(msgspec.Struct, frozen=True):
    """A MIG instance of a GPU: its slot there, identity and memory as :class:`DriverGpu` has it.

    Attributes:
        gpu_instance: the driver's number of the GPU instance that it is a part of.
    """

    slot: int
    uuid: str
    model: str
    memory_mib: int
    reserved_mib: int = -1
    gpu_instance: int = NO_INSTANCE


class DriverGpu(msgspec.Struct, frozen=True):
    """One physical GPU.

    Attributes:
        index: position in the driver's enumeration.
        minor: number of ``/dev/nvidia<minor>``; -1 unknown.
        numa: NUMA node of the host; -1 unknown.
        mig: the GPU is in MIG mode: only its instances can be used.
        slots: instances the GPU could have at most.
        capability: compute capability; ``(0, 0)`` unknown.
        memory_mib: total memory in MiB; 0 in MIG mode, where only the instances report theirs.
        reserved_mib: memory in MiB that the driver keeps for itself; -1 unknown.
        memory_limits: the driver supports memory limits per cgroup on this GPU; false where the
            plugin did not query it.
        pcie_root: PCIe root complex, such as ``pci0000:3a``; empty unknown.
        needed_recovery: recovery that the driver requires before the GPU can be used, such as
            "a reset of the GPU"; empty none, or unknown.
    """

    index: int
    uuid: str
    model: str
    memory_mib: int
    minor: int = -1
    numa: int = -1
    mig: bool = False
    slots: int = 0
    instances: tuple[MigInstance, ...] = ()
    capability: tuple[int, int] = (0, 0)
    reserved_mib: int = -1
    memory_limits: bool = False
    pcie_root: str = ""
    needed_recovery: str = ""


class NodeHardware(msgspec.Struct, frozen=True):
    """The GPUs of a node and their links.

    Attributes:
        gpus: GPUs that responded, by index.
        silent: why GPUs did not respond, by index, in the driver's words.
        links: ``"0-1" -> ("PIX", "NV2")``.
        unlinked: why the links of GPUs that responded are unknown, by index.
    """

    driver: str
    gpus: tuple[DriverGpu, ...]
    silent: Mapping[int, str] = {}
    links: Mapping[str, tuple[str, ...]] = {}
    unlinked: Mapping[int, str] = {}


def node_hardware(
    driver: str,
    answers: Mapping[int, DriverGpu | DriverError],
    links: Mapping[int, GpuLinks | DriverError],
) -> NodeHardware:
    """The hardware of a node, by the answers of each GPU or its errors."""
    return NodeHardware(
        driver=driver,
        gpus=tuple(one for _, one in sorted(answers.items()) if isinstance(one, DriverGpu)),
        silent=_errors(answers),
        links=links_of_pairs(
            {index: one for index, one in links.items() if isinstance(one, GpuLinks)}
        ),
        unlinked=_errors(links),
    )


def _errors(answers: Mapping[int, object]) -> dict[int, str]:
    found = sorted(answers.items())
    return {index: str(one) for index, one in found if isinstance(one, DriverError)}


class Process(msgspec.Struct, frozen=True):
    """A process with memory on a GPU.

    Attributes:
        pid: of the host.
        used_bytes: 0 where the driver does not report it.
        mps: whether it is a client of an MPS daemon; ``None`` where the driver does not report it.
    """

    pid: int
    used_bytes: int
    mps: bool | None = None


class Usage(msgspec.Struct, frozen=True):
    """Total and used bytes of a GPU, and the processes that use them.

    Attributes:
        used_bytes: without what the driver keeps for itself, where it reports that apart.
        processes: those that the driver lists. Drivers list all processes of the node to any
            caller, or to each caller those of its own PID namespace.
        sm_percents: SM utilization in percent of the processes that used an engine of the GPU since
            the last query, by process ID; ``None`` where the driver does not report it.
    """

    total_bytes: int
    used_bytes: int
    processes: tuple[Process, ...]
    sm_percents: Mapping[int, int] | None = None

    @property
    def unlisted_bytes(self) -> int:
        """In use by processes that are not listed, or whose size is not reported."""
        listed = any(each.used_bytes for each in self.processes)
        return 0 if listed or self.used_bytes < LEAST_CONTEXT_BYTES else self.used_bytes


class Xid(msgspec.Struct, frozen=True):
    """An error event.

    Attributes:
        uuid: of the physical GPU; empty for an event of no particular GPU.
        gpu_instance: the GPU instance that it concerns, in MIG mode.
    """

    code: int
    uuid: str
    gpu_instance: int = NO_INSTANCE


class Driver(Protocol):
    """The queries of this plugin. Safe for several threads once :meth:`open` has returned."""

    def open(self) -> None:
        """Start a connection. Raises DriverUnavailableError."""

    def close(self) -> None:
        """End the connection; harmless without one."""

    def abandon_events(self) -> None:
        """Let :meth:`close` keep what :meth:`next_xid` uses, which has not returned."""

    def gpu_count(self) -> int:
        """Number of GPUs. Raises DriverUnavailableError."""

    def gpu(self, index: int) -> DriverGpu:
        """What it reports about one GPU. Raises DriverError."""

    def version(self) -> str:
        """Its version; empty unknown."""

    def links(self, index: int, others: Collection[int]) -> GpuLinks:
        """The NVLinks of one GPU, and its PCIe paths to ``others``. Raises DriverError."""

    def probe(self, uuid: str) -> bool:
        """Touch one GPU; true if the driver reports that it needs no recovery.

        Raises:
            GpuLostError: it does not respond.
            RecoveryNeededError: it needs one.
        """

    def usage(self, uuid: str) -> Usage:
        """The processes that use the memory of one GPU. Raises GpuLostError."""

    def memory_limit(self, uuid: str, cgroup: str) -> MemoryLimit:
        """The limit in force of a cgroup on one GPU. Raises DriverError."""

    def memory_used(self, uuid: str, cgroup: str) -> int:
        """Bytes of one GPU that a cgroup with a limit uses. Raises DriverError."""

    def set_memory_limit(self, uuid: str, cgroup: str, limit: MemoryLimit) -> None:
        """Limit the memory of a cgroup on one GPU. Raises DriverError."""

    def resubscribe(self) -> None:
        """Let the next wait take events of GPUs that came back. Never blocks."""

    def next_xid(self, timeout_ms: int) -> Xid | None:
        """Wait for an error event. Raises DriverError where events are not offered."""
