"""Health of the GPUs: XID events, probes, and containers that the runtime cannot give a GPU.

A verdict is carried everywhere at once: kubelet and the inventory (through the keeper), the pods
on the card and the node as events. What a verdict is made of is decided in
:mod:`gpucore.node.health`.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from gpucore.node.breaker import HOLD_SECONDS, Breaker
from gpucore.node.health import HealthBook, Verdict
from gpucore.units import GpuIndex
from gpucore.wire.pods import Pod
from gpudeviceplugin import telemetry
from gpudeviceplugin.cards import DriverError
from gpudeviceplugin.driver import PatientDriver
from gpudeviceplugin.state import nobody

log = structlog.get_logger()

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0


class Health:
    """The health of this node's cards."""

    def __init__(
        self, book: HealthBook, breaker: Breaker, driver: PatientDriver, *, every: float
    ) -> None:
        self._book = book
        self._breaker = breaker
        self._driver = driver
        self._every = every
        self._uuids: dict[GpuIndex, str] = {}
        self.on_verdicts: Callable[[list[Verdict]], None] = nobody

    def healthy(self, uuid: str) -> bool:
        """May be offered."""
        return self._book.healthy(uuid)

    def watch_only(self, cards: Iterable[tuple[GpuIndex, str]]) -> None:
        """These are the cards."""
        self._uuids = dict(cards)
        self._book.watch_only(self._uuids.values())

    def silent(self, uuid: str) -> None:
        """The card did not answer when all were enumerated."""
        self._tell(self._book.bad(uuid, "it does not answer", time.monotonic()))

    def start_failed(self, cards: Iterable[GpuIndex], pod: Pod) -> None:
        """The container runtime could not give ``pod`` its GPUs."""
        now = time.monotonic()
        for card in self._breaker.failed(cards, pod.uid, pod.namespace, now):
            why = "the container runtime cannot start pods of several namespaces on it"
            self._tell(self._book.bad(self._uuids.get(card, ""), why, now, hold=HOLD_SECONDS))

    def started(self, cards: Iterable[GpuIndex]) -> None:
        """A pod runs on ``cards``."""
        self._breaker.started(cards)

    async def probe(self) -> None:
        """Touch every card every so often, until cancelled."""
        while True:
            await asyncio.sleep(self._every)
            await asyncio.gather(*map(self._probe, self._book))

    async def _probe(self, uuid: str) -> None:
        try:
            await self._driver.probe(uuid)
        except DriverError as error:
            self._tell(self._book.bad(uuid, f"it does not answer ({error})", time.monotonic()))
        else:
            self._tell(self._book.clean(uuid, time.monotonic()))

    async def listen(self) -> None:
        """Take error events as they come, until cancelled."""
        pause = 0.0  # the first new try is at once: events are not kept for those who come late
        while True:
            try:
                event = await self._driver.next_xid()
            except DriverError as error:
                log.info("no error events", why=str(error), again_in=pause)
                await asyncio.sleep(pause)
                pause = min(max(pause * 2, FIRST_PAUSE), LONGEST_PAUSE)
                continue
            pause = 0.0
            if event is not None:
                telemetry.XIDS.labels(event.uuid, str(event.code)).inc()
                log.warning("XID", uuid=event.uuid, code=event.code)
                self._tell(self._book.xid(event.uuid, event.code, time.monotonic()))

    def _tell(self, verdicts: list[Verdict]) -> None:
        if any(verdict.healthy for verdict in verdicts):
            self._driver.resubscribe()
        if verdicts:
            self.on_verdicts(verdicts)
