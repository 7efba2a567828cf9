"""Health of the GPUs, sign by sign, with a clock and a driver that the test turns."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping

import pytest
from fakedriver import FakeDriver, t4
from moduletime import Clock

from gpucore.node.health.breaker import HOLD_SECONDS, Breaker
from gpucore.node.health.records import HealthRecords, HealthStatus
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin.gpus.devices import DriverError, Xid
from gpudeviceplugin.gpus.driver import PatientDriver
from gpudeviceplugin.gpus.health import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, HealthMonitor

GPU = t4(0)
EVERY = 5.0
SECONDS = 60.0


class Watched:
    """The health of one GPU, and all that was done because of it, in order."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.driver = FakeDriver(GPU)
        self.effects: list[str] = []
        self.listening: asyncio.Task[None] | None = None
        self.patient = PatientDriver(self.driver)
        book = HealthRecords(clean_probes=3, ignored_xids={31})
        self.health = HealthMonitor(book, Breaker(limit=2), self.patient, interval_seconds=EVERY)
        self.health.watch_only([(GpuIndex(0), GPU.uuid)], {})
        self.health.on_verdicts = self._note
        resubscribe = self.driver.resubscribe

        def noted() -> None:
            self.effects.append("resubscribe")
            resubscribe()

        self.driver.resubscribe = noted  # type: ignore[method-assign]

    def _note(self, verdicts: list[HealthStatus]) -> None:
        self.effects += ["healthy" if verdict.healthy else "unhealthy" for verdict in verdicts]

    async def probes(self, count: int) -> None:
        """Probe so many times, every time after the pause."""
        done = asyncio.Event()
        left = count + 1
        self.clock.on_sleep = lambda: None

        def slept() -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        self.clock.on_sleep = slept
        probing = asyncio.create_task(self.health.probe())
        async with asyncio.timeout(SECONDS):
            await done.wait()
        probing.cancel()
        await asyncio.wait({probing})

    async def reported(self, condition: Callable[[], bool]) -> None:
        """Listen, from now on, until something is true."""
        if self.listening is None:
            await self.patient.open()
            self.listening = asyncio.create_task(self.health.listen())
        async with asyncio.timeout(SECONDS):
            while not condition():  # noqa: ASYNC110 - the driver answers from a thread
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        """Listen no more."""
        if self.listening is not None:
            self.listening.cancel()
            await asyncio.wait({self.listening})


@pytest.fixture
async def watched(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    """A healthy GPU under a clock that stands still."""
    clock = Clock()
    clock.rule(monkeypatch, "gpudeviceplugin.gpus.health")
    made = Watched(clock)
    yield made
    await made.end()


def pod(name: str, namespace: str) -> Pod:
    return Pod(PodUid(name), namespace, name, NodeName("n1"))


async def test_a_lost_gpu_is_unhealthy_and_back_after_three_clean_probes(
    watched: Watched,
) -> None:
    """Two are too few; on its return its events are subscribed to before anybody is notified."""
    watched.driver.lost.add(GPU.uuid)
    await watched.probes(1)
    assert watched.effects == ["unhealthy"]
    watched.driver.lost.clear()
    await watched.probes(2)
    assert not watched.health.healthy(GPU.uuid)
    await watched.probes(1)
    assert watched.effects == ["unhealthy", "resubscribe", "healthy"]


async def test_a_probe_that_began_before_an_error_is_no_proof_that_the_gpu_works(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another GPU that hangs keeps the answers of a round for seconds."""
    probes = watched.patient.probes

    async def late(uuids: Collection[str]) -> Mapping[str, bool | DriverError]:
        answers = await probes(uuids)
        watched.clock.now += 3.0
        watched.health._take(Xid(95, GPU.uuid))
        return answers

    with monkeypatch.context() as patch:
        patch.setattr(watched.patient, "probes", late)
        await watched.probes(1)
    await watched.probes(2)
    assert not watched.health.healthy(GPU.uuid)
    await watched.probes(1)
    assert watched.effects == ["unhealthy", "resubscribe", "healthy"]


async def test_probes_come_every_so_often(watched: Watched) -> None:
    """The pause is the setting."""
    await watched.probes(3)
    assert watched.clock.slept[:3] == [EVERY] * 3


async def test_a_second_xid_on_a_recovered_gpu_withdraws_it_again(watched: Watched) -> None:
    """NVML drops a lost GPU from the event set: without a new subscription it would be silent."""
    watched.driver.lost.add(GPU.uuid)
    await watched.probes(1)
    await watched.reported(lambda: GPU.uuid in watched.driver._deaf)
    watched.driver.lost.clear()
    await watched.probes(3)
    assert watched.health.healthy(GPU.uuid)
    watched.driver.xids.put(Xid(79, GPU.uuid))
    await watched.reported(lambda: not watched.health.healthy(GPU.uuid))
    assert watched.effects == ["unhealthy", "resubscribe", "healthy", "unhealthy"]


async def test_an_application_xid_is_no_sign(watched: Watched) -> None:
    """Code 31 is the program's fault; the fatal one after it is read."""
    watched.driver.xids.put(Xid(31, GPU.uuid))
    watched.driver.xids.put(Xid(79, GPU.uuid))
    await watched.reported(lambda: watched.driver.xids.empty() and bool(watched.effects))
    assert watched.effects == ["unhealthy"]


async def test_a_gpu_that_the_runtime_cannot_reach_is_held_against_clean_probes(
    watched: Watched,
) -> None:
    """It answers every probe, so only time brings it back."""
    for number, namespace in enumerate(("a", "b")):
        watched.health.start_failed([GpuIndex(0)], pod(f"p{number}", namespace))
    assert watched.effects == ["unhealthy"]
    await watched.probes(5)
    assert not watched.health.healthy(GPU.uuid)
    watched.clock.now += HOLD_SECONDS
    await watched.probes(1)
    assert watched.health.healthy(GPU.uuid)


async def test_a_pod_that_runs_clears_the_failures_before(watched: Watched) -> None:
    """The GPU works."""
    watched.health.start_failed([GpuIndex(0)], pod("p0", "a"))
    watched.health.started([GpuIndex(0)])
    watched.health.start_failed([GpuIndex(0)], pod("p1", "b"))
    assert watched.effects == []


async def test_a_driver_without_events_is_queried_again_less_and_less_often(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first new try is at once, since events are not kept; the pauses double to a limit."""

    async def refused() -> None:
        raise DriverError("not supported")

    monkeypatch.setattr(watched.patient, "next_xid", refused)
    await watched.reported(lambda: len(watched.clock.slept) > 9)
    assert watched.clock.slept[:4] == [
        0.0,
        FIRST_PAUSE_SECONDS,
        2 * FIRST_PAUSE_SECONDS,
        4 * FIRST_PAUSE_SECONDS,
    ]
    assert max(watched.clock.slept) == LONGEST_PAUSE_SECONDS
