"""Health of the GPUs: XID events, probes, and containers that fail because of a GPU.

A changed health status is published to kubelet and the inventory (through the inventory manager),
and as events on the pods of the GPU and on the node. :mod:`gpucore.node.health.records` decides the
status.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import structlog

from gpucore.node.health.breaker import HOLD_SECONDS, Breaker
from gpucore.node.health.records import HealthRecords, HealthStatus
from gpucore.node.health.xid_lines import XidLines
from gpucore.units import GpuIndex
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin import telemetry
from gpudeviceplugin.gpus.devices import (
    NO_INSTANCE,
    DriverError,
    MigInstance,
    RecoveryNeededError,
    Xid,
)
from gpudeviceplugin.gpus.driver import PatientDriver
from gpudeviceplugin.settings import DevicePluginSettings
from gpudeviceplugin.state import ignore

log = structlog.get_logger()

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 30.0


class HealthMonitor:
    """The health of this node's GPUs."""

    def __init__(
        self,
        book: HealthRecords,
        breaker: Breaker,
        driver: PatientDriver,
        *,
        interval_seconds: float,
    ) -> None:
        self._book = book
        self._breaker = breaker
        self._driver = driver
        self._interval_seconds = interval_seconds
        self._uuids: dict[GpuIndex, str] = {}
        self._instances: dict[str, tuple[MigInstance, ...]] = {}
        self._lines = XidLines()
        self.on_verdicts: Callable[[list[HealthStatus]], None] = ignore

    def healthy(self, uuid: str) -> bool:
        """True if the GPU may be advertised as healthy."""
        return self._book.healthy(uuid)

    def watch_only(
        self,
        gpus: Iterable[tuple[GpuIndex, str]],
        instances: Mapping[str, tuple[MigInstance, ...]],
    ) -> None:
        """Set the GPUs to monitor, and which of them are instances of which GPU in MIG mode."""
        self._uuids, self._instances = dict(gpus), dict(instances)
        self._book.watch_only(self._uuids.values())

    def withdraw(self, reasons: Mapping[str, str]) -> None:
        """Withdraw these GPUs, all at once, for the reasons that an enumeration found."""
        now = time.monotonic()
        self._tell([v for uuid, why in reasons.items() for v in self._book.bad(uuid, why, now)])

    def start_failed(self, gpus: Iterable[GpuIndex], pod: Pod) -> None:
        """The container runtime could not give ``pod`` its GPUs."""
        now = time.monotonic()
        for gpu in self._breaker.failed(gpus, pod.uid, pod.namespace, now):
            why = "the container runtime cannot start pods of several namespaces on it"
            self._tell(self._book.bad(self._uuids.get(gpu, ""), why, now, hold=HOLD_SECONDS))

    def started(self, gpus: Iterable[GpuIndex]) -> None:
        """A pod runs on ``gpus``."""
        self._breaker.started(gpus)

    async def probe(self) -> None:
        """Probe every GPU periodically, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_seconds)
            began = time.monotonic()
            answers = await self._driver.probes(list(self._book))
            for uuid, answer in answers.items():
                self._probed(uuid, began, answer=answer)

    def _probed(self, uuid: str, began: float, *, answer: bool | DriverError) -> None:
        if isinstance(answer, RecoveryNeededError):
            self.withdraw({uuid: needs_recovery(str(answer))})
        elif isinstance(answer, DriverError):
            self.withdraw({uuid: no_response(str(answer))})
        else:
            self._tell(self._book.clean(uuid, began, recovered=answer))

    async def listen(self) -> None:
        """Take error events as they come, until cancelled."""
        pauses = _pauses()
        while True:
            try:
                event = await self._driver.next_xid()
            except DriverError as error:
                pause = next(pauses)
                log.info("no error events", why=str(error), again_in=pause)
                await asyncio.sleep(pause)
                continue
            pauses = _pauses()
            if event is not None:
                self._take(event)

    def _take(self, event: Xid) -> None:
        telemetry.XIDS.labels(event.uuid, str(event.code)).inc()
        now = time.monotonic()
        suppressed = self._lines.suppressed(event.uuid, event.code, now)
        if suppressed is not None:
            log.warning("XID", uuid=event.uuid, code=event.code, suppressed=suppressed)
        self._tell(
            [v for uuid in self._named(event) for v in self._book.xid(uuid, event.code, now)]
        )

    def _named(self, event: Xid) -> list[str]:
        """The GPU of an error event; in MIG mode its instances, or the one that the event names."""
        instances = self._instances.get(event.uuid)
        if instances is None:
            return [event.uuid]
        return [each.uuid for each in instances if _may_concern(event, each)]

    def _tell(self, verdicts: list[HealthStatus]) -> None:
        if any(verdict.healthy for verdict in verdicts):
            self._driver.resubscribe()
        if verdicts:
            self.on_verdicts(verdicts)


def no_response(error: str) -> str:
    """Why a GPU is unhealthy that does not respond; ``error`` has the driver's words."""
    return f"it does not respond ({error})"


def needs_recovery(needed: str) -> str:
    """Why a GPU is unhealthy that has to be recovered first, by a reset for example."""
    return f"the driver requires {needed}"


def _may_concern(event: Xid, instance: MigInstance) -> bool:
    numbers = (event.gpu_instance, instance.gpu_instance)
    return NO_INSTANCE in numbers or event.gpu_instance == instance.gpu_instance


def _pauses() -> Iterator[float]:
    """Seconds to wait after each failure: the first retry is immediate.

    NVML keeps no events for late subscribers.
    """
    yield 0.0
    pause = FIRST_PAUSE_SECONDS
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def health_of(settings: DevicePluginSettings, driver: PatientDriver) -> HealthMonitor:
    """The monitor that the settings describe."""
    book = HealthRecords(clean_probes=settings.clean_probes, ignored_xids=settings.ignored_xids)
    breaker = Breaker(limit=settings.breaker_failures)
    return HealthMonitor(book, breaker, driver, interval_seconds=settings.probe_seconds)
