"""Updates the inventory: enumerates the GPUs periodically and merges their health.

Without a driver the process stays up, logs the reason, and retries. The last inventory is kept;
GPUs that no longer respond are marked unhealthy, so one lost GPU does not affect the others.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from gpucore.model import Gpu, Inventory
from gpucore.units import MemoryUnit
from gpudeviceplugin import telemetry
from gpudeviceplugin.gpus.devices import (
    DriverError,
    DriverUnavailableError,
    NodeHardware,
)
from gpudeviceplugin.gpus.driver import PatientDriver
from gpudeviceplugin.gpus.health import HealthMonitor, needs_recovery, no_response
from gpudeviceplugin.gpus.inventory import (
    inventory_of,
    offered_instances,
    offered_uuids,
    unit_refusal,
    with_known,
)
from gpudeviceplugin.isolation.modes import Isolation
from gpudeviceplugin.state import NodeState, ignore

log = structlog.get_logger()


class InventoryManager:
    """The GPUs of this node."""

    def __init__(
        self,
        state: NodeState,
        driver: PatientDriver,
        health: HealthMonitor,
        isolation: Isolation,
        *,
        unit: MemoryUnit,
        reserve_mib: int,
        numa_hints: bool,
        interval_seconds: float,
        retry_seconds: float,
    ) -> None:
        self._state = state
        self._driver = driver
        self._health = health
        self._isolation = isolation
        self._unit = unit
        self._reserve_mib = reserve_mib
        self._numa_hints = numa_hints
        self._interval_seconds = interval_seconds
        self._retry_seconds = retry_seconds
        self._known = Inventory(gpus=(), unit=unit)
        self._machine = NodeHardware(driver="", gpus=())
        self._kick = asyncio.Event()
        self._mentioned = ""
        self._shared: list[str] = []
        self._unresponsive: Mapping[int, str] = {}
        self._unlinked: Mapping[int, str] = {}
        self.on_unresponsive: Callable[[int, str], None] = ignore
        self.trouble = "the driver has not responded yet"

    def refresh(self) -> None:
        """Enumerate soon."""
        self._kick.set()

    async def run(self) -> None:
        """Enumerate periodically, until cancelled."""
        await self._open()
        while True:
            self._kick.clear()
            try:
                self._take(await self._driver.machine())
            except DriverUnavailableError as error:
                log.warning("the driver is no longer available", why=str(error))
                self._note_unknown(error)
                await asyncio.sleep(self._retry_seconds)
                await self._open()
                continue
            except DriverError as error:
                log.warning("cannot enumerate the GPUs", why=str(error))
                self._note_unknown(error)
            try:
                async with asyncio.timeout(
                    self._interval_seconds if not self.trouble else self._retry_seconds
                ):
                    await self._kick.wait()
            except TimeoutError:
                continue

    async def _open(self) -> None:
        while True:
            try:
                await self._driver.open()
            except DriverError as error:
                self._note_failure(str(error))
                await asyncio.sleep(self._retry_seconds)
            else:
                return

    def _note_unknown(self, error: DriverError) -> None:
        """The reason of readiness while no enumeration has succeeded."""
        if not self._known.gpus:
            self.trouble = str(error)

    def _note_failure(self, error: str) -> None:
        if self.trouble != error:
            log.warning("no usable NVIDIA driver; retrying", why=error)
        self.trouble = error

    def _take(self, answer: NodeHardware) -> None:
        telemetry.DRIVER_GPUS.set(len(answer.gpus) + len(answer.silent))
        machine = with_known(answer, self._machine)
        self._mention_unknown_reserve(answer)
        self._mention_shared_memory(answer)
        self._mention_unresponsive(machine.silent)
        self._mention_unlinked(answer.unlinked)
        self._known = inventory_of(machine, self._unit, reserve_mib=self._reserve_mib)
        self._machine = machine
        instances = {device.uuid: device.instances for device in machine.gpus if device.mig}
        self._health.watch_only(((gpu.index, gpu.uuid) for gpu in self._known.gpus), instances)
        self._health.withdraw(_reasons(machine, answer.silent))
        capabilities = {device.uuid: device.capability for device in machine.gpus}
        limited = {device.uuid for device in machine.gpus if device.memory_limits}
        self._isolation.equip(self._known, capabilities, limited)
        self.trouble = self._complaint()
        self.publish()

    def _mention_unknown_reserve(self, machine: NodeHardware) -> None:
        """Log, once a driver, that its GPUs offer memory that the driver may keep."""
        unknown = [gpu.uuid for gpu in machine.gpus if gpu.reserved_mib < 0]
        if unknown and self._mentioned != machine.driver:
            self._mentioned = machine.driver
            log.warning(
                "the driver does not report the memory that it reserves; units are counted from "
                "the total: set reserve-mib to reserve memory",
                driver=machine.driver,
                gpus=unknown,
            )

    def _mention_shared_memory(self, machine: NodeHardware) -> None:
        """Log, once for each set of them, the MIG instances that are not offered."""
        shared = [
            each.uuid
            for device in machine.gpus
            for each in device.instances
            if each not in offered_instances(device)
        ]
        if shared and self._shared != shared:
            log.warning(
                "MIG instances are not offered: several compute instances share the memory of "
                "their GPU instance",
                instances=shared,
            )
        self._shared = shared

    def _mention_unresponsive(self, silent: Mapping[int, str]) -> None:
        """Report GPUs of which nothing is known, so that they are not in the inventory either."""
        telemetry.UNRESPONSIVE.set(len(silent))
        for index in sorted(silent.keys() - self._unresponsive.keys()):
            log.warning("a GPU does not respond", gpu=index, why=silent[index])
            self.on_unresponsive(index, silent[index])
        self._unresponsive = silent

    def _mention_unlinked(self, unlinked: Mapping[int, str]) -> None:
        """Log GPUs whose links are unknown; they are offered all the same."""
        for index in sorted(unlinked.keys() - self._unlinked.keys()):
            log.warning("the links of a GPU are unknown", gpu=index, why=unlinked[index])
        self._unlinked = unlinked

    def _complaint(self) -> str:
        if not self._known.gpus:
            return self._no_gpu()
        return unit_refusal(self._known, self._unit, numa=self._numa_hints)

    def _no_gpu(self) -> str:
        if self._machine.gpus:
            return "all GPUs are in MIG mode, and have no MIG instance with memory of its own"
        if self._unresponsive:
            return f"no GPU responds: {next(iter(self._unresponsive.values()))}"
        return "the driver lists no GPU"

    def publish(self) -> None:
        """Publish the GPUs with their current health and isolation mode."""
        if not self._isolation.known:
            return
        gpus = tuple(map(self._judged, self._known.gpus))
        if unit_refusal(self._known, self._unit, numa=self._numa_hints):
            log.error("no device is advertised", why=self.trouble)
            gpus = ()
        self._measure(gpus)
        self._state.equip(msgspec.structs.replace(self._known, gpus=gpus))

    def _measure(self, gpus: tuple[Gpu, ...]) -> None:
        """Set the metrics of these GPUs, and end those of GPUs that have left."""
        telemetry.forget_gpus(
            set(map(_labels, self._state.inventory.gpus)) - set(map(_labels, gpus))
        )
        for gpu in gpus:
            telemetry.GPU_HEALTHY.labels(*_labels(gpu)).set(gpu.healthy)
            telemetry.GPU_UNITS.labels(*_labels(gpu)).set(gpu.units)
            telemetry.GPU_MEMORY.labels(*_labels(gpu)).set(gpu.memory_mib << 20)

    def _judged(self, gpu: Gpu) -> Gpu:
        works, usable = self._health.healthy(gpu.uuid), self._isolation.usable(gpu.uuid)
        return msgspec.structs.replace(
            gpu,
            isolation=self._isolation.isolation(gpu.uuid),
            healthy=works and usable,
            paused=works and not usable,
        )


def _reasons(machine: NodeHardware, silent: Mapping[int, str]) -> dict[str, str]:
    """Why GPUs and MIG instances must not be offered, by UUID; ``silent`` is by index."""
    reasons: dict[str, str] = {}
    for device in machine.gpus:
        if device.index in silent:
            reasons |= dict.fromkeys(offered_uuids(device), no_response(silent[device.index]))
        elif device.needed_recovery:
            why = needs_recovery(device.needed_recovery)
            reasons |= dict.fromkeys(offered_uuids(device), why)
    return reasons


def _labels(gpu: Gpu) -> tuple[str, str]:
    return str(gpu.index), gpu.uuid
