"""Keeps the inventory true: enumerates the cards, again and again, and folds their health in.

Without a driver the process stays up, says why, and tries again; what was known before stays
known, with cards that no longer answer marked unhealthy, so one lost card takes nothing from the
others.
"""

import asyncio

import msgspec
import structlog

from gpucore.model import Gpu, Inventory
from gpucore.units import MemoryUnit
from gpudeviceplugin import telemetry
from gpudeviceplugin.cards import DriverError, DriverUnavailableError, Machine
from gpudeviceplugin.driver import PatientDriver
from gpudeviceplugin.health import Health
from gpudeviceplugin.inventory import inventory_of, unit_refusal
from gpudeviceplugin.isolation import Isolation
from gpudeviceplugin.state import NodeState

log = structlog.get_logger()


class Keeper:
    """The cards of this node."""

    def __init__(
        self,
        state: NodeState,
        driver: PatientDriver,
        health: Health,
        isolation: Isolation,
        *,
        unit: MemoryUnit,
        reserve_mib: int,
        numa_hints: bool,
        every: float,
        retry: float,
    ) -> None:
        self._state = state
        self._driver = driver
        self._health = health
        self._isolation = isolation
        self._unit = unit
        self._reserve_mib = reserve_mib
        self._numa_hints = numa_hints
        self._every = every
        self._retry = retry
        self._known = Inventory(gpus=(), unit=unit)
        self._kick = asyncio.Event()
        self._mentioned = ""
        self.trouble = "the driver has not answered yet"

    def refresh(self) -> None:
        """Enumerate soon."""
        self._kick.set()

    async def run(self) -> None:
        """Enumerate for ever."""
        await self._open()
        while True:
            self._kick.clear()
            try:
                self._take(await self._driver.machine())
            except DriverUnavailableError as error:
                log.warning("the driver went away", why=str(error))
                await asyncio.sleep(self._retry)
                await self._open()
                continue
            except DriverError as error:
                log.warning("cannot enumerate the cards", why=str(error))
            try:
                async with asyncio.timeout(self._every if not self.trouble else self._retry):
                    await self._kick.wait()
            except TimeoutError:
                continue

    async def _open(self) -> None:
        while True:
            try:
                await self._driver.open()
            except DriverError as error:
                if self.trouble != str(error):
                    log.warning("no usable NVIDIA driver; trying again", why=str(error))
                self.trouble = str(error)
                await asyncio.sleep(self._retry)
            else:
                return

    def _take(self, machine: Machine) -> None:
        found = inventory_of(machine, self._unit, reserve_mib=self._reserve_mib)
        self._mention_unknown_reserve(machine)
        answered = {gpu.uuid for gpu in found.gpus}
        silent = set(machine.silent)
        lost = [g for g in self._known.gpus if g.uuid not in answered and g.index in silent]
        gpus = tuple(sorted((*found.gpus, *lost), key=lambda gpu: gpu.index))
        self._known = msgspec.structs.replace(
            found, gpus=gpus, links={**self._known.links, **found.links} if lost else found.links
        )
        self._health.watch_only((gpu.index, gpu.uuid) for gpu in gpus)
        for gpu in lost:
            self._health.silent(gpu.uuid)
        capabilities = {card.uuid: card.capability for card in machine.cards}
        self._isolation.equip(self._known, capabilities)
        self.trouble = self._complaint()
        self.publish()

    def _mention_unknown_reserve(self, machine: Machine) -> None:
        """Log, once a driver, that its GPUs offer memory that the driver may keep."""
        unknown = [card.uuid for card in machine.cards if card.reserved_mib < 0]
        if unknown and self._mentioned != machine.driver:
            self._mentioned = machine.driver
            log.warning(
                "the driver does not report the memory that it reserves; units are counted from "
                "the total: set reserve-mib to keep some",
                driver=machine.driver,
                gpus=unknown,
            )

    def _complaint(self) -> str:
        if not self._known.gpus:
            return "the driver knows no card"
        return unit_refusal(self._known, self._unit, numa=self._numa_hints)

    def publish(self) -> None:
        """Tell everybody the cards with their present health and isolation."""
        if not self._isolation.known:
            return
        gpus = tuple(map(self._judged, self._known.gpus))
        if unit_refusal(self._known, self._unit, numa=self._numa_hints):
            log.error("no device is offered", why=self.trouble)
            gpus = ()
        for gpu in gpus:
            labels = (str(gpu.index), gpu.uuid)
            telemetry.CARD_HEALTHY.labels(*labels).set(gpu.healthy)
            telemetry.CARD_UNITS.labels(*labels).set(gpu.units)
        self._state.equip(msgspec.structs.replace(self._known, gpus=gpus))

    def _judged(self, gpu: Gpu) -> Gpu:
        return msgspec.structs.replace(
            gpu,
            rung=self._isolation.rung(gpu.uuid),
            healthy=self._health.healthy(gpu.uuid) and self._isolation.usable(gpu.uuid),
        )
