"""Calls the driver outside the event loop, with a deadline for every call.

Calls about one GPU or its MIG instances run one after the other. One that hangs (a GPU fallen off
its bus can do that) keeps its thread; the next about the same GPU is refused until it returns, so
that one hanging GPU cannot use up the threads of the others.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import wait
from contextlib import AsyncExitStack
from typing import Final, Generic, TypeVar

from gpucore.node.isolation.driver_limits import MemoryLimit
from gpudeviceplugin.gpus.devices import (
    Driver,
    DriverError,
    DriverGpu,
    DriverUnavailableError,
    GpuLostError,
    NodeHardware,
    Usage,
    Xid,
    node_hardware,
)
from gpudeviceplugin.gpus.links import GpuLinks
from gpudeviceplugin.threads import ThreadPool

T = TypeVar("T")
THREADS: Final = 770
"""For calls that hang about each of 256 GPUs, its enumeration and its links, and for two others.

A thread is started only when all others are busy.
"""
ENUMERATE_SECONDS: Final = 30.0
PROBE_SECONDS: Final = 3.0
CLOSE_SECONDS: Final = 2.0
EVENT_WAIT_MS: Final = 2_000
DRIVER: Final = "driver"
EVENTS: Final = "events"
GPU: Final = "GPU"
LINKS: Final = "links of GPU"
"""Names of the calls of an enumeration, with an index."""
STALL_SECONDS: Final = 0.5


class DriverTimeoutError(GpuLostError):
    """The driver did not answer in time."""


class PatientDriver:
    """The driver for callers on the event loop."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._pool = ThreadPool(THREADS, name="driver")
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._hanging: set[str] = set()
        self._gpus: dict[str, str] = {}
        self._opened = asyncio.Event()

    async def open(self) -> None:
        """Start the connection, or start it anew. Raises DriverUnavailableError.

        No wait for an error event is under way meanwhile: it would use an event set that is freed.
        Nor is a call about a GPU, which fails between the end of a connection and the next one.
        """
        async with AsyncExitStack() as turns:
            for about in (EVENTS, *sorted(self._turns.keys() - {EVENTS, DRIVER})):
                await turns.enter_async_context(self._turns[about])
            if EVENTS in self._hanging:
                self._driver.abandon_events()
            await self._ask(DRIVER, ENUMERATE_SECONDS, self._begin)
        self._opened.set()

    def _begin(self) -> None:
        self._driver.close()  # what is left of a connection with a driver that went
        self._driver.open()

    async def machine(self) -> NodeHardware:
        """Enumerate the GPUs; those that do not answer are listed as silent. Raises DriverError."""
        count, version = await self._ask(DRIVER, ENUMERATE_SECONDS, self._connection)
        gpus = await self._ask_gpus(GPU, range(count), self._driver.gpu)
        there = [index for index, answer in gpus.items() if isinstance(answer, DriverGpu)]
        links = await self._ask_gpus(LINKS, there, lambda index: self._links(index, there))
        found = node_hardware(version, gpus, links)
        answered = {gpu.uuid for gpu in found.gpus}
        silent = {uuid: gpu for uuid, gpu in self._gpus.items() if gpu not in answered}
        self._gpus = silent | {each.uuid: gpu.uuid for gpu in found.gpus for each in gpu.instances}
        return found

    def _connection(self) -> tuple[int, str]:
        return self._driver.gpu_count(), self._driver.version()

    def _links(self, index: int, gpus: Collection[int]) -> GpuLinks:
        """The links of one GPU, those to GPUs before it included unless their own queries hang."""
        others = [each for each in gpus if each < index and f"{LINKS} {each}" not in self._hanging]
        return self._driver.links(index, others)

    async def _ask_gpus(
        self, what: str, indexes: Collection[int], function: Callable[[int], T]
    ) -> dict[int, T | DriverError]:
        """The answer or error of each GPU, by index. Raises DriverUnavailableError."""
        names = {f"{what} {index}": index for index in indexes}
        answers = await self._ask_each(
            list(names), ENUMERATE_SECONDS, lambda name: function(names[name])
        )
        for answer in answers.values():
            if isinstance(answer, DriverUnavailableError):
                raise answer
        return {names[name]: answer for name, answer in answers.items()}

    def _gpu_of(self, uuid: str) -> str:
        """The GPU of a MIG instance, which hangs with it; otherwise the name itself."""
        return self._gpus.get(uuid, uuid)

    async def probes(self, uuids: Collection[str]) -> Mapping[str, bool | DriverError]:
        """Touch each GPU, in one thread: its answer, or the error of each that fails.

        See :meth:`gpudeviceplugin.gpus.devices.Driver.probe`.
        """
        return await self._ask_each(uuids, PROBE_SECONDS, self._driver.probe)

    async def usages(self, uuids: Collection[str]) -> Mapping[str, Usage | DriverError]:
        """The processes that use each GPU, read in one thread; the error of each that fails."""
        return await self._ask_each(uuids, PROBE_SECONDS, self._driver.usage)

    async def memory_limit(self, uuid: str, cgroup: str) -> MemoryLimit:
        """The limit in force of a cgroup on one GPU. Raises DriverError."""
        return await self._ask(uuid, PROBE_SECONDS, self._driver.memory_limit, uuid, cgroup)

    async def memory_used(self, uuid: str, cgroup: str) -> int:
        """Bytes of one GPU that a cgroup with a limit uses. Raises DriverError."""
        return await self._ask(uuid, PROBE_SECONDS, self._driver.memory_used, uuid, cgroup)

    async def set_memory_limit(self, uuid: str, cgroup: str, limit: MemoryLimit) -> None:
        """Limit the memory of a cgroup on one GPU. Raises DriverError."""
        function = self._driver.set_memory_limit
        await self._ask(uuid, PROBE_SECONDS, function, uuid, cgroup, limit)

    async def next_xid(self) -> Xid | None:
        """Wait a moment for an error event, and for the connection before. Raises DriverError."""
        await self._opened.wait()
        seconds = EVENT_WAIT_MS / 1000 + PROBE_SECONDS
        return await self._ask(EVENTS, seconds, self._driver.next_xid, EVENT_WAIT_MS)

    def resubscribe(self) -> None:
        """Take events of GPUs that came back, too."""
        self._driver.resubscribe()

    def close(self) -> None:
        """End the connection without waiting for calls that hang, the last one included."""
        if not self._hanging:
            wait([self._pool.submit(self._driver.close)], CLOSE_SECONDS)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _ask_each(
        self, uuids: Collection[str], seconds: float, function: Callable[[str], T]
    ) -> dict[str, T | DriverError]:
        """Answers by GPU; those behind a GPU that hangs are asked one by one.

        A thread for all: a node where nothing happens is woken once a round and not for each GPU.
        """
        series = _Series(function)
        async with AsyncExitStack() as turns:
            for gpu in sorted(set(map(self._gpu_of, uuids))):
                await turns.enter_async_context(self._turns[gpu])
            free = [uuid for uuid in uuids if self._gpu_of(uuid) not in self._hanging]
            loop = asyncio.get_running_loop()
            future = loop.run_in_executor(self._pool, series.run, free)
            await self._answers(series, future, seconds)
        left = [uuid for uuid in uuids if uuid not in series.answers]
        answers = [self._answer(uuid, seconds, function) for uuid in left]
        return series.answers | dict(zip(left, await asyncio.gather(*answers), strict=True))

    async def _answers(
        self, series: "_Series[T]", future: "asyncio.Future[None]", seconds: float
    ) -> None:
        """Wait for as long as another GPU answers within the time for one."""
        before = -1
        try:
            while not future.done() and before < len(series.answers):
                before = len(series.answers)
                await _wait(future, seconds)
        finally:
            series.ended = True
            uuid = series.current
            if not future.done() and uuid and uuid not in series.answers:
                gpu = self._gpu_of(uuid)
                self._hanging.add(gpu)
                future.add_done_callback(lambda done: self._answered(gpu, done))
                words = f"{uuid} did not return within {seconds} s"
                series.answers[uuid] = DriverTimeoutError(words)

    async def _answer(
        self, uuid: str, seconds: float, function: Callable[[str], T]
    ) -> T | DriverError:
        try:
            return await self._ask(uuid, seconds, function, uuid)
        except DriverError as error:
            return error

    async def _ask(
        self, about: str, seconds: float, function: Callable[..., T], *arguments: object
    ) -> T:
        about = self._gpu_of(about)
        async with self._turns[about]:
            if about in self._hanging:
                raise DriverTimeoutError(f"{about} has not returned yet")
            loop = asyncio.get_running_loop()
            future = loop.run_in_executor(self._pool, function, *arguments)
            try:
                await _wait(future, seconds)
            finally:
                if not future.done():
                    self._hanging.add(about)
                    future.add_done_callback(lambda done: self._answered(about, done))
            if not future.done():
                raise DriverTimeoutError(f"{about} did not return within {seconds} s")
            return future.result()

    def _answered(self, about: str, done: "asyncio.Future[T]") -> None:
        self._hanging.discard(about)
        if not done.cancelled():
            done.exception()  # read, so that a late failure is not reported as lost


class _Series(Generic[T]):
    """Calls about several GPUs, one after the other in one thread.

    Attributes:
        answers: those that there are, by GPU.
        current: the GPU whose call is under way; empty for none.
        ended: no further GPU is to be asked.
    """

    def __init__(self, function: Callable[[str], T]) -> None:
        self._function = function
        self.answers: dict[str, T | DriverError] = {}
        self.current = ""
        self.ended = False

    def run(self, uuids: Iterable[str]) -> None:
        """Ask about each GPU."""
        for uuid in uuids:
            if self.ended:
                return
            self.current = uuid
            try:
                answer: T | DriverError = self._function(uuid)
            except DriverError as error:
                answer = error
            if not self.ended:
                self.answers[uuid] = answer
        self.current = ""


async def _wait(future: "asyncio.Future[T]", seconds: float) -> None:
    """Wait for an answer; a second time where this process itself stood still meanwhile.

    A machine that gives this process no time for seconds stops the driver's thread as well: that
    reports nothing about the GPU.
    """
    loop = asyncio.get_running_loop()
    for _ in range(2):
        deadline = loop.time() + seconds
        await asyncio.wait({future}, timeout=seconds)
        if future.done() or loop.time() < deadline + STALL_SECONDS:
            return
