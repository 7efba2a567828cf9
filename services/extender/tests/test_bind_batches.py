"""When the binds of a backlog are written together, and that others are not delayed."""

import asyncio
from collections.abc import Iterable

import pytest

from gpuextender.scheduling.bind_batches import BACKLOG, SECONDS, BindBatches
from gpukube.testing.clock import FakeClock

MANY = BACKLOG + 1


async def written(clock: FakeClock, pending: int, arrivals: Iterable[float]) -> list[float]:
    """When binds that arrive at these times are written, in ms from the first second on."""
    batches, begin = BindBatches(lambda: pending), clock.seconds

    async def one(arrives: float) -> float:
        await asyncio.sleep(arrives / 1000)
        await batches.turn()
        return round((clock.seconds - begin) * 1000, 3)

    return await asyncio.gather(*map(one, arrivals))


async def test_the_binds_of_a_backlog_are_written_together(clock: FakeClock) -> None:
    """The first at once; each batch a tenth of a second after the one before."""
    assert SECONDS == 0.1
    found = await written(clock, MANY, (0, 10, 40, 99, 110, 150, 201, 290))
    assert found == [0, 100, 100, 100, 200, 200, 300, 300]


async def test_a_bind_of_a_backlog_that_comes_alone_is_written_at_once(clock: FakeClock) -> None:
    """Pods that no node can take may be pending for ever: they delay nobody."""
    assert await written(clock, MANY, (0, 101, 500, 601)) == [0, 101, 500, 601]


@pytest.mark.parametrize("pending", [0, BACKLOG])
async def test_without_a_backlog_every_bind_is_written_at_once(
    clock: FakeClock, pending: int
) -> None:
    """However quickly they follow each other."""
    assert await written(clock, pending, (0, 1, 2, 3)) == [0, 1, 2, 3]


async def test_a_backlog_that_ends_delays_no_further_bind(clock: FakeClock) -> None:
    """The batch that waits is written when it is due; the next bind at once."""
    pending = [MANY]
    batches, begin = BindBatches(lambda: pending[0]), clock.seconds
    await batches.turn()
    waiting = asyncio.create_task(batches.turn())
    await asyncio.sleep(0.01)
    pending[0] = BACKLOG
    await batches.turn()
    assert clock.seconds - begin == pytest.approx(0.01)
    assert not waiting.done()
    await waiting
    assert clock.seconds - begin == pytest.approx(SECONDS)
