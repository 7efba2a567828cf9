"""Background jobs: when reservations expire, when they must not, and the garbage collector."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import structlog
from decoded import a_node, a_pod, assume, state_of
from objects import pod

from gpucore.gang.reservations import reservation_of
from gpucore.model import Allocation
from gpucore.units import PodUid
from gpuextender import housekeeping
from gpuextender.health import Readiness
from gpuextender.state import State
from gpukube.testing.clock import FakeClock

TTL = 40.0


class FakeInformer:
    """An informer whose age a test sets."""

    name = "pods"
    confirmed = True

    def __init__(self) -> None:
        self.age = 0.0

    async def wait_for_confirmation(self) -> None:
        raise AssertionError("no job waits for a confirmation")


@pytest.fixture(autouse=True)
def one_clock(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    """Reservations age in the time of the loop."""
    monkeypatch.setattr(housekeeping, "unix_ns", clock.now_ns)


@pytest.fixture
def state() -> State:
    """A state with one node."""
    return state_of(a_node("n", 15))


@asynccontextmanager
async def running(job: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """A job that runs beside the test and ends with it."""
    task = asyncio.create_task(job)
    await asyncio.sleep(0)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def reserve(state: State, clock: FakeClock, name: str) -> Callable[[], bool]:
    """Reserve for a pod now; the function reports whether that stands."""
    assume(state, a_pod(pod(name, 2, uid=name)), "n", now_ns=clock.now_ns())
    return lambda: state.ledger.allocation(PodUid(name)) is not None


async def test_a_reservation_expires_when_its_time_to_live_is_over(
    state: State, clock: FakeClock
) -> None:
    """Not earlier, at most a quarter and two seconds later, and the log names the pods."""
    stands = reserve(state, clock, "early")
    health = health_of(FakeInformer())
    with structlog.testing.capture_logs() as logs:
        async with running(housekeeping.expire_reservations(state, health, ttl=TTL)):
            await asyncio.sleep(5)
            later = reserve(state, clock, "late")
            await asyncio.sleep(TTL - 5.5)
            assert stands()
            assert not logs
            await asyncio.sleep(5)
            assert not stands()
            assert logs == [expired("early")]
            assert later()
            await asyncio.sleep(TTL / 4 + 1)
            assert not later()
            assert logs == [expired("early"), expired("late")]


async def test_no_reservation_expires_while_the_watch_is_stale(
    state: State, clock: FakeClock
) -> None:
    """The Binding may be confirmed by an event that has not come: it expires once one may know."""
    stands = reserve(state, clock, "p")
    informer = FakeInformer()
    informer.age = 61.0
    job = housekeeping.expire_reservations(state, health_of(informer), ttl=TTL)
    async with running(job) as task:
        await asyncio.sleep(25 * TTL)
        assert stands()
        informer.age = 0.0
        await asyncio.sleep(TTL / 4 + 1)
        assert not stands()
        assert not task.done()


async def lost(_: Allocation) -> bool:
    """The API server lost every Binding."""
    return True


async def test_a_list_ends_reservations_from_before_it(state: State, clock: FakeClock) -> None:
    """What the list did not confirm was lost; what was reserved later is being bound."""
    lists: asyncio.Queue[int] = asyncio.Queue()
    before = reserve(state, clock, "before")
    with structlog.testing.capture_logs() as logs:
        async with running(housekeeping.forget_after_lists(state, lists, lost, seconds=5.0)):
            await asyncio.sleep(100)
            assert before()
            lists.put_nowait(clock.now_ns())
            await asyncio.sleep(1)
            after = reserve(state, clock, "after")
            await asyncio.sleep(3.5)
            assert before()
            assert not logs
            await asyncio.sleep(2)
            assert (before(), after()) == (False, True)
            event = {"event": "bindings lost by the API server", "log_level": "warning"}
            assert logs == [event | {"uids": ["before"]}]
            await asyncio.sleep(100)
            assert after()
            lists.put_nowait(clock.now_ns())
            await asyncio.sleep(6.5)
            assert not after()


async def test_a_list_leaves_what_a_gang_reserves(state: State, clock: FakeClock) -> None:
    """A reserved place has no Binding that a list could confirm."""
    lists: asyncio.Queue[int] = asyncio.Queue()
    stands = reserve(state, clock, "p")
    allocation = state.ledger.allocation(PodUid("p"))
    assert allocation is not None
    place = reservation_of(allocation)
    state.reserve(place)
    async with running(housekeeping.forget_after_lists(state, lists, lost, seconds=5.0)):
        lists.put_nowait(clock.now_ns())
        await asyncio.sleep(6.5)
        assert not stands()
        assert state.ledger.allocation(place.uid) is not None


async def test_a_list_that_comes_while_one_is_worked_off_counts_too(
    state: State, clock: FakeClock
) -> None:
    """The second list leads to a second look."""
    lists: asyncio.Queue[int] = asyncio.Queue()
    async with running(housekeeping.forget_after_lists(state, lists, lost, seconds=5.0)):
        lists.put_nowait(clock.now_ns())
        await asyncio.sleep(2)
        stands = reserve(state, clock, "p")
        lists.put_nowait(clock.now_ns())
        await asyncio.sleep(4.5)
        assert stands()
        await asyncio.sleep(6)
        assert not stands()


async def test_a_list_leaves_what_was_bound_after_it(state: State, clock: FakeClock) -> None:
    """The API server bound the pod after it had made the list, and the watch is late."""
    lists: asyncio.Queue[int] = asyncio.Queue()
    read = list[str]()

    async def late(allocation: Allocation) -> bool:
        read.append(allocation.uid)
        return allocation.uid == "lost"

    stands, gone = reserve(state, clock, "bound"), reserve(state, clock, "lost")
    async with running(housekeeping.forget_after_lists(state, lists, late, seconds=5.0)):
        lists.put_nowait(clock.now_ns())
        await asyncio.sleep(5.5)
        assert (stands(), gone()) == (True, False)
        assert read == ["bound", "lost"]


async def test_a_pod_that_is_bound_anew_while_it_is_read_keeps_its_gpus(
    state: State, clock: FakeClock
) -> None:
    """The reply is about the bind before."""
    lists: asyncio.Queue[int] = asyncio.Queue()

    async def slow(allocation: Allocation) -> bool:
        state.forget(allocation.uid)
        clock.seconds += 1
        again.append(reserve(state, clock, "p"))
        return True

    again = list[Callable[[], bool]]()
    reserve(state, clock, "p")
    async with running(housekeeping.forget_after_lists(state, lists, slow, seconds=5.0)):
        lists.put_nowait(clock.now_ns())
        await asyncio.sleep(5.5)
        assert [stands() for stands in again] == [True]


async def test_a_late_job_leaves_what_was_reserved_after_the_list(
    state: State, clock: FakeClock
) -> None:
    """A process that stood still for a minute forgets no bind that began after the list."""
    lists: asyncio.Queue[int] = asyncio.Queue()
    async with running(housekeeping.forget_after_lists(state, lists, lost, seconds=5.0)):
        before = reserve(state, clock, "before")
        lists.put_nowait(clock.now_ns())
        await asyncio.sleep(1)
        after = reserve(state, clock, "after")
        clock.seconds += 60
        await asyncio.sleep(2)
        assert (before(), after()) == (False, True)


async def test_a_process_that_stood_still_reads_its_watch_before_reservations_expire(
    state: State, clock: FakeClock
) -> None:
    """The Binding was written; its event waits behind those of other pods."""
    stands = reserve(state, clock, "p")
    health = health_of(FakeInformer())
    async with running(housekeeping.expire_reservations(state, health, ttl=TTL)):
        await asyncio.sleep(1)
        clock.seconds += 2 * TTL
        await asyncio.sleep(0.5)
        assert stands()
        await asyncio.sleep(TTL)
        assert not stands()


async def test_nothing_is_logged_where_nothing_expires(state: State, clock: FakeClock) -> None:
    """A quiet cluster writes no line."""
    lists: asyncio.Queue[int] = asyncio.Queue()
    lists.put_nowait(clock.now_ns())
    health = health_of(FakeInformer())
    with structlog.testing.capture_logs() as logs:
        async with (
            running(housekeeping.forget_after_lists(state, lists, lost, seconds=5.0)),
            running(housekeeping.expire_reservations(state, health, ttl=TTL)),
        ):
            await asyncio.sleep(10 * TTL)
    assert not logs


class Collector:
    """Looks at the garbage collector at each step of a start."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, bool, bool]] = []

    def see(self, step: str) -> None:
        self.steps.append((step, gc.isenabled(), gc.get_freeze_count() > 0))

    async def load(self) -> None:
        await asyncio.sleep(1)
        self.see("loaded")

    async def fail(self) -> None:
        raise RuntimeError("no cluster")


async def test_the_collector_rests_until_the_cluster_is_read_and_set_aside() -> None:
    """Nothing is collected or set aside before that; young objects are collected after it."""
    gc.unfreeze()
    seen, before = Collector(), gc.get_threshold()
    async with running(housekeeping.settle_memory(seen.load())) as task:
        await asyncio.sleep(2)
        seen.see("after")
        assert not task.done()
        assert gc.get_threshold() == (50_000, 50, 50)
    seen.see("end")
    assert seen.steps == [
        ("loaded", False, False),
        ("after", True, True),
        ("end", True, False),
    ]
    assert gc.get_threshold() == before


async def test_the_collector_works_again_where_the_start_fails() -> None:
    """The error ends the job and leaves the process as it was."""
    seen, before = Collector(), gc.get_threshold()
    with pytest.raises(RuntimeError, match="no cluster"):
        await housekeeping.settle_memory(seen.fail())
    assert (gc.isenabled(), gc.get_freeze_count(), gc.get_threshold()) == (True, 0, before)


def health_of(informer: FakeInformer) -> Readiness:
    """The health of a process that follows one collection."""
    health = Readiness([informer], stale_after=60.0)
    health.loaded = True
    return health


def expired(name: str) -> dict[str, Any]:
    """The line in the log."""
    return {"event": "reservations expired", "uids": [name], "log_level": "warning"}
