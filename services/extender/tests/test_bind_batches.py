"""When the binds of a backlog are written together, and that others are not delayed."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import pytest

from gpuextender.scheduling import binding
from gpuextender.scheduling.binding import BACKLOG, BATCH_SECONDS, BindBatches
from gpukube.testing.clock import FakeClock

MANY = BACKLOG + 1
WRITE_MS = 5


@pytest.fixture(autouse=True)
def one_clock(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    """Batches are counted in the time of the loop."""
    monkeypatch.setattr(binding, "monotonic", clock.now)


class Bench:
    """Binds of which each takes five milliseconds to write; times are in ms from the start."""

    def __init__(self, clock: FakeClock, pending: int = MANY) -> None:
        self.pending = pending
        self.filtered = 0.0
        self.batches = BindBatches(lambda: self.pending, lambda: self.filtered)
        self._clock, self._begin = clock, clock.seconds

    def filter_called(self) -> None:
        """The scheduler filters a pod."""
        self.filtered = self._clock.seconds

    def now(self) -> float:
        """The time."""
        return round((self._clock.seconds - self._begin) * 1000, 3)

    async def bind(self) -> float:
        """Bind a pod; returns when its write began."""
        async with self.batches.turn():
            began = self.now()
            await asyncio.sleep(WRITE_MS / 1000)
        return began

    async def ended(self, end: str) -> None:
        """A bind begins and ends: its write is done, fails, or is cancelled."""
        if end == "done":
            await self.bind()
            return
        error = asyncio.CancelledError if end == "cancelled" else OSError
        with suppress(error):
            async with self.batches.turn():
                raise error

    async def written(self, arrivals: Iterable[float]) -> list[float]:
        """When binds that arrive then are written; each is followed by a filter call after 1 ms."""

        async def one(arrives: float) -> float:
            await asyncio.sleep(arrives / 1000)
            bind = asyncio.create_task(self.bind())
            await asyncio.sleep(0.001)
            self.filter_called()
            return await bind

        return await asyncio.gather(*map(one, arrivals))


async def test_the_binds_of_a_backlog_are_written_together(clock: FakeClock) -> None:
    """The first at once; each batch a tenth of a second after the one before."""
    assert BATCH_SECONDS == 0.1
    found = await Bench(clock).written((0, 10, 40, 99, 110, 150, 201, 290))
    assert found == [0, 100, 100, 100, 200, 200, 300, 300]


async def test_a_bind_of_a_backlog_that_comes_alone_is_written_at_once(clock: FakeClock) -> None:
    """Pods that no node can take may be pending for ever: they delay nobody."""
    assert await Bench(clock).written((0, 101, 500, 601)) == [0, 101, 500, 601]


@pytest.mark.parametrize("pending", [0, BACKLOG])
async def test_without_a_backlog_every_bind_is_written_at_once(
    clock: FakeClock, pending: int
) -> None:
    """However quickly they follow each other."""
    assert await Bench(clock, pending).written((0, 2, 4, 6)) == [0, 2, 4, 6]


async def test_a_scheduler_that_waits_for_each_bind_is_not_delayed(clock: FakeClock) -> None:
    """It filters no pod while one is bound."""
    bench = Bench(clock)
    for number in range(4):
        bench.filter_called()
        assert await bench.bind() == number * WRITE_MS


@pytest.mark.parametrize("end", ["done", "failed", "cancelled"])
async def test_a_bind_that_ended_is_under_way_no_more(clock: FakeClock, end: str) -> None:
    """However it ended; the scheduler filters for a millisecond between two binds."""
    bench = Bench(clock)
    await bench.ended(end)
    begin = bench.now()
    for number in range(4):
        bench.filter_called()
        await asyncio.sleep(0.001)
        assert await bench.bind() == begin + number * (WRITE_MS + 1) + 1


async def test_a_bind_that_is_cancelled_while_it_waits_is_under_way_no_more(
    clock: FakeClock,
) -> None:
    """Its place in the batch does not delay those that come after the batch."""
    bench = Bench(clock)
    waiting = asyncio.create_task(bench.written((0, 10)))
    await asyncio.sleep(0.02)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(0.2)
    for _ in range(3):
        bench.filter_called()
        await asyncio.sleep(0.001)
        asked = bench.now()
        assert await bench.bind() == asked


async def test_of_binds_that_overlap_the_first_to_begin_says_when_they_began(
    clock: FakeClock,
) -> None:
    """A filter call before the first one is none during the others."""
    bench = Bench(clock)
    await asyncio.sleep(0.001)
    bench.filter_called()
    await asyncio.sleep(0.001)
    for number in range(3):
        both = asyncio.gather(bench.bind(), bench.bind())
        assert await both == [2 + number * WRITE_MS] * 2


async def test_a_filter_call_while_the_last_of_two_binds_is_under_way_counts(
    clock: FakeClock,
) -> None:
    """The end of the first bind does not end the second."""
    bench = Bench(clock)
    first = asyncio.create_task(bench.bind())
    await asyncio.sleep(0.003)
    second = asyncio.create_task(bench.bind())
    await asyncio.sleep(0.003)
    bench.filter_called()
    await asyncio.sleep(0.001)
    assert await bench.bind() == 103
    assert (await first, await second) == (0, 3)


async def test_binds_without_a_filter_call_between_them_are_not_delayed(clock: FakeClock) -> None:
    """Nothing says that their sender goes on while it waits; eight at a time are not either."""
    bench = Bench(clock)
    bench.filter_called()
    for number in range(4):
        assert await asyncio.gather(*(bench.bind() for _ in range(8))) == [number * WRITE_MS] * 8


async def test_a_scheduler_that_begins_to_wait_is_not_delayed_for_long(clock: FakeClock) -> None:
    """That it went on during a bind counts for as long as a batch."""
    bench = Bench(clock)
    assert await bench.written((0, 10)) == [0, 100]
    for written in (200, 205, 210):
        bench.filter_called()
        assert await bench.bind() == written


async def test_a_backlog_that_ends_delays_no_further_bind(clock: FakeClock) -> None:
    """The batch that waits is written when it is due; the next bind at once."""
    bench = Bench(clock)
    waiting = asyncio.create_task(bench.written((0, 10)))
    await asyncio.sleep(0.02)
    bench.pending = BACKLOG
    assert await bench.bind() == 20
    assert await waiting == [0, 100]


async def test_a_scheduler_goes_on_for_as_long_as_any_bind_is_under_way(clock: FakeClock) -> None:
    """A filter call after the first of them began counts until the last has ended."""
    bench = Bench(clock)

    async def slow() -> None:
        async with bench.batches.turn():
            await asyncio.sleep(0.3)

    first = asyncio.create_task(slow())
    await asyncio.sleep(0.001)
    bench.filter_called()
    await asyncio.sleep(0.001)
    assert await bench.bind() == 100
    await asyncio.sleep(0.045)
    assert await bench.bind() == 200
    await first
