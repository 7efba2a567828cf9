"""GPUs that a test can break: the driver's port without a driver."""

import queue
import threading
from collections.abc import Collection

from msgspec.structs import replace

from gpucore.node.isolation.driver_limits import NO_LIMIT, MemoryLimit
from gpudeviceplugin.gpus.devices import (
    Driver,
    DriverError,
    DriverGpu,
    DriverUnavailableError,
    GpuLostError,
    NodeHardware,
    RecoveryNeededError,
    Usage,
    Xid,
    node_hardware,
)
from gpudeviceplugin.gpus.links import GpuLinks


def hardware_of(driver: Driver) -> NodeHardware:
    """What a driver reports that does not hang."""
    answers: dict[int, DriverGpu | DriverError] = {}
    for index in range(driver.gpu_count()):
        try:
            answers[index] = driver.gpu(index)
        except DriverUnavailableError:
            raise
        except DriverError as error:
            answers[index] = error
    there = [index for index, answer in answers.items() if isinstance(answer, DriverGpu)]
    links = {index: driver.links(index, there[:place]) for place, index in enumerate(there)}
    return node_hardware(driver.version(), answers, links)


def t4(index: int, *, memory_mib: int = 16130) -> DriverGpu:
    """A GPU of 15 units."""
    uuid = f"GPU-00000000-0000-0000-0000-00000000000{index}"
    return DriverGpu(index, uuid, "Tesla T4", memory_mib, minor=index, numa=index % 2)


class FakeDriver:
    """A driver whose GPUs a test changes.

    Attributes:
        lost: uuids of GPUs that do not answer.
        needed: recovery that GPUs need, by uuid; of the others the driver reports that they need
            none if ``reports_recovery``.
        absent: there is no driver.
        limits: in force, by uuid and cgroup.
        refuses_limits: no limit can be set.
        answers_limits: every GPU is known to have memory limits.
    """

    def __init__(self, *gpus: DriverGpu) -> None:
        self.gpus = gpus
        self.lost: set[str] = set()
        self.needed: dict[str, str] = {}
        self.reports_recovery = True
        self.absent = False
        self.block = threading.Event()
        self.block.set()
        self.usages: dict[str, Usage] = {}
        self.xids: queue.Queue[Xid] = queue.Queue()
        self.probes = 0
        self.limits: dict[tuple[str, str], MemoryLimit] = {}
        self.cgroup_use: dict[tuple[str, str], int] = {}
        self.refuses_limits = False
        self.answers_limits = False
        self.driver_version = "535.1"
        self._deaf: set[str] = set()

    def open(self) -> None:
        """Raises while there is no driver; so does every question."""
        if self.absent:
            raise DriverUnavailableError("no driver")

    def close(self) -> None:
        self.block.set()

    def abandon_events(self) -> None:
        """There is nothing to free."""

    def gpu_count(self) -> int:
        self.open()
        return len(self.gpus)

    def gpu(self, index: int) -> DriverGpu:
        self.open()
        found = self.gpus[index]
        if found.uuid in self.lost:
            raise GpuLostError(f"{found.uuid} is lost")
        return replace(
            found,
            memory_limits=self.answers_limits,
            needed_recovery=self.needed.get(found.uuid, ""),
        )

    def version(self) -> str:
        return self.driver_version

    def links(self, _index: int, others: Collection[int]) -> GpuLinks:
        return GpuLinks(paths=dict.fromkeys(others, "SYS"))

    def probe(self, uuid: str) -> bool:
        self.probes += 1
        self.block.wait(30)
        self.open()
        if uuid in self.lost:
            raise GpuLostError(f"{uuid} is lost")
        if uuid in self.needed:
            raise RecoveryNeededError(self.needed[uuid])
        return self.reports_recovery

    def usage(self, uuid: str) -> Usage:
        self.probe(uuid)
        if uuid not in self.usages:
            raise DriverError("not reported")
        return self.usages[uuid]

    def memory_limit(self, uuid: str, cgroup: str) -> MemoryLimit:
        """What is in force, by GPU and cgroup."""
        self.probe(uuid)
        return self.limits.get((uuid, cgroup), NO_LIMIT)

    def memory_used(self, uuid: str, cgroup: str) -> int:
        """What a test specifies, by GPU and cgroup."""
        self.probe(uuid)
        return self.cgroup_use.get((uuid, cgroup), 0)

    def set_memory_limit(self, uuid: str, cgroup: str, limit: MemoryLimit) -> None:
        """Set it, as long as the driver lets us."""
        if self.refuses_limits:
            raise DriverError("nvmlDeviceSetMemoryLimits_v1: Insufficient Permissions")
        self.limits[uuid, cgroup] = limit

    def resubscribe(self) -> None:
        """GPUs that came back are in the event set again."""
        self._deaf = set(self.lost)

    def next_xid(self, timeout_ms: int) -> Xid | None:
        """As with NVML, a GPU that was lost reports nothing until the next subscription."""
        self._deaf |= self.lost
        try:
            event = self.xids.get(timeout=min(timeout_ms, 50) / 1000)
        except queue.Empty:
            return None
        return None if event.uuid in self._deaf else event
