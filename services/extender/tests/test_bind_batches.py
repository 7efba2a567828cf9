"""When the binds of a backlog are written together, and that others are not delayed."""

import asyncio
from collections.abc import Iterable

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
