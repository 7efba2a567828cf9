"""Asks the driver off the event loop, with a deadline for every question.

Questions about one card are put one after the other. One that hangs (a card fallen off its bus
can do that) keeps its thread; the next about the same card is refused until it returns, so that
one hanging card cannot use up the threads of the others.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from gpudeviceplugin.cards import CardLostError, Driver, Machine, Usage, Xid

T = TypeVar("T")
THREADS: Final = 6
ENUMERATE_SECONDS: Final = 30.0
PROBE_SECONDS: Final = 3.0
EVENT_WAIT_MS: Final = 2_000


class DriverTimeoutError(CardLostError):
    """The driver did not answer in time."""


class PatientDriver:
    """The driver for callers on the event loop."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="driver")
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._hanging: set[str] = set()

    async def open(self) -> None:
        """Start the connection, or start it anew. Raises DriverUnavailableError."""
        await self._ask("driver", ENUMERATE_SECONDS, self._begin)

    def _begin(self) -> None:
        self._driver.close()  # what is left of a connection with a driver that went
        self._driver.open()

    async def machine(self) -> Machine:
        """Enumerate the cards. Raises DriverError."""
        return await self._ask("driver", ENUMERATE_SECONDS, self._driver.machine)

    async def probe(self, uuid: str) -> None:
        """Touch one card. Raises CardLostError."""
        await self._ask(uuid, PROBE_SECONDS, self._driver.probe, uuid)

    async def usage(self, uuid: str) -> Usage:
        """Who uses one card. Raises DriverError."""
        return await self._ask(uuid, PROBE_SECONDS, self._driver.usage, uuid)

    async def next_xid(self) -> Xid | None:
        """Wait a moment for an error event. Raises DriverError."""
        seconds = EVENT_WAIT_MS / 1000 + PROBE_SECONDS
        return await self._ask("events", seconds, self._driver.next_xid, EVENT_WAIT_MS)

    def resubscribe(self) -> None:
        """Take events of cards that came back, too."""
        self._driver.resubscribe()

    def close(self) -> None:
        """End the connection without waiting for questions that hang."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if not self._hanging:
            self._driver.close()

    async def _ask(
        self, about: str, seconds: float, question: Callable[..., T], *arguments: object
    ) -> T:
        async with self._turns[about]:
            if about in self._hanging:
                raise DriverTimeoutError(f"{about} still owes an answer")
            loop = asyncio.get_running_loop()
            future = loop.run_in_executor(self._pool, question, *arguments)
            try:
                async with asyncio.timeout(seconds):
                    return await asyncio.shield(future)
            except TimeoutError as error:
                self._hanging.add(about)
                future.add_done_callback(lambda done: self._answered(about, done))
                raise DriverTimeoutError(f"{about} gave no answer in {seconds} s") from error

    def _answered(self, about: str, done: "asyncio.Future[T]") -> None:
        self._hanging.discard(about)
        if not done.cancelled():
            done.exception()  # read, so that a late failure is not reported as lost
