"""Signs of several GPUs: which one is judged, in which words, and what is counted."""

import asyncio
from collections.abc import Collection, Iterator
from typing import Any

import pytest
from fakedriver import t4
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from gpucore.node.health.breaker import HOLD_SECONDS, Breaker
from gpucore.node.health.records import HealthRecords, HealthStatus
from gpucore.units import GpuIndex, NodeName, PodUid
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin.gpus.devices import (
    NO_INSTANCE,
    DriverError,
    GpuLostError,
    MigInstance,
    RecoveryNeededError,
    Xid,
)
from gpudeviceplugin.gpus.health import FIRST_PAUSE_SECONDS, HealthMonitor
from gpukube.testing.clock import FakeClock

FIRST, SECOND = t4(0).uuid, t4(1).uuid
EVERY = 5.0


class Driver:
    """The driver for callers on the event loop, without threads.

    Attributes:
        lost: GPUs that do not answer.
        needed: recovery that the driver requires, by GPU.
        reports_recovery: it reports that the other GPUs need none.
        events: what each wait for an error event ends with.
    """

    def __init__(self, effects: list[str]) -> None:
        self.effects = effects
        self.lost: set[str] = set()
        self.needed: dict[str, str] = {}
        self.reports_recovery = True
        self.events: list[Xid | DriverError | None] = []

    async def probes(self, uuids: Collection[str]) -> dict[str, bool | DriverError]:
        """Touch each GPU."""
        self.effects.append(f"probe {' '.join(uuid[-1] for uuid in uuids)}")
        return {uuid: self._probed(uuid) for uuid in uuids}

    def _probed(self, uuid: str) -> bool | DriverError:
        if uuid in self.lost:
            return GpuLostError(f"{uuid} is lost")
        if uuid in self.needed:
            return RecoveryNeededError(self.needed[uuid])
        return self.reports_recovery

    async def next_xid(self) -> Xid | None:
        """The next event; silence after the last one."""
        if not self.events:
            await asyncio.sleep(1e6)
        event = self.events.pop(0)
        if isinstance(event, DriverError):
            raise event
        return event

    def resubscribe(self) -> None:
        """Take events of GPUs that came back."""
        self.effects.append("resubscribe")


class World:
    """Two GPUs and everything that is done because of them, in order."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.effects: list[str] = []
        self.verdicts: list[HealthStatus] = []
        self.driver = Driver(self.effects)
        self.book = HealthRecords(clean_probes=2, ignored_xids={31})
        breaker = Breaker(limit=2)
        self.health = HealthMonitor(self.book, breaker, self.driver, interval_seconds=EVERY)  # type: ignore[arg-type]
        self.health.watch_only(((GpuIndex(index), t4(index).uuid) for index in (0, 1)), {})
        self.health.on_verdicts = self._take

    def _take(self, verdicts: list[HealthStatus]) -> None:
        assert verdicts, "no verdict is no reason to call"
        self.verdicts += verdicts
        self.effects += [f"{each.uuid[-1]} {each.healthy}" for each in verdicts]

    async def for_seconds(self, seconds: float, part: Any) -> list[str]:
        """Run one part for these seconds; returns what it did."""
        self.effects.clear()
        running = asyncio.create_task(part())
        await asyncio.sleep(seconds)
        running.cancel()
        await asyncio.wait({running})
        return list(self.effects)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> World:
    """Two healthy GPUs under the clock of the test."""
    monkeypatch.setattr("gpudeviceplugin.gpus.health.time.monotonic", clock.now)
    return World(clock)


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    """What was logged."""
    with capture_logs() as logged:
        yield logged


def pod(name: str, namespace: str) -> Pod:
    return Pod(PodUid(f"{namespace}/{name}"), namespace, name, NodeName("n1"))


async def test_every_gpu_is_probed_after_every_pause(world: World) -> None:
    """The first time after one pause; the book has every GPU that is watched."""
    done = await world.for_seconds(2 * EVERY + 1, world.health.probe)
    assert done == ["probe 0 1", "probe 0 1"]
    assert list(world.book) == [FIRST, SECOND]


async def test_a_lost_gpu_spoils_no_other(world: World) -> None:
    """One call probes all; each GPU has its own answer."""
    world.driver.lost.add(FIRST)
    world.driver.needed[SECOND] = "a reset of the GPU"
    assert await world.for_seconds(EVERY + 1, world.health.probe) == [
        "probe 0 1",
        "0 False",
        "1 False",
    ]


async def test_a_verdict_has_the_drivers_words(world: World) -> None:
    """The event has the driver's error."""
    world.driver.lost.add(SECOND)
    await world.for_seconds(EVERY + 1, world.health.probe)
    why = f"it does not respond ({SECOND} is lost)"
    assert world.verdicts == [HealthStatus(SECOND, healthy=False, why=why)]
    assert world.health.healthy(FIRST)
    assert not world.health.healthy(SECOND)


async def test_gpus_that_an_enumeration_finds_out_of_order_are_unhealthy(world: World) -> None:
    """Each for its reason, and no other; all are reported at once."""
    told: list[list[str]] = []
    world.health.on_verdicts = lambda verdicts: told.append([each.why for each in verdicts])
    world.health.withdraw({FIRST: "it is lost"})
    assert (world.health.healthy(FIRST), world.health.healthy(SECOND)) == (False, True)
    world.health.withdraw({})
    world.health.withdraw({FIRST: "it is lost", SECOND: "it is lost too"})
    assert told == [["it is lost"], ["it is lost too"]]


async def test_a_gpu_whose_driver_requires_a_recovery_is_unhealthy(world: World) -> None:
    """It answers, but not until it was reset may it be used; the event has what it needs."""
    world.driver.needed[SECOND] = "a reset of the GPU"
    await world.for_seconds(9 * EVERY + 1, world.health.probe)
    why = "the driver requires a reset of the GPU"
    assert world.verdicts == [HealthStatus(SECOND, healthy=False, why=why)]
    world.driver.needed.clear()
    assert "1 True" in await world.for_seconds(2 * EVERY + 1, world.health.probe)


@pytest.mark.parametrize(
    ("code", "reports", "returns"),
    [(79, True, True), (79, False, False), (94, False, True)],
    ids=["reset, reported", "reset, not reported", "no reset"],
)
async def test_a_gpu_returns_after_an_xid_if_it_needs_no_reset_or_had_one(
    world: World, code: int, *, reports: bool, returns: bool
) -> None:
    """An old driver does not report that a GPU was reset: it stays unhealthy."""
    world.driver.reports_recovery = reports
    world.driver.events = [Xid(code, FIRST)]
    await world.for_seconds(1, world.health.listen)
    assert not world.health.healthy(FIRST)
    await world.for_seconds(9 * EVERY + 1, world.health.probe)
    assert world.health.healthy(FIRST) is returns


@pytest.mark.parametrize(
    ("numbers", "named", "withdrawn"),
    [
        ((2, 3), 3, {"MIG-b"}),
        ((2, 3), NO_INSTANCE, {"MIG-a", "MIG-b"}),
        ((2, 3), 9, set()),
        ((NO_INSTANCE, NO_INSTANCE), 3, {"MIG-a", "MIG-b"}),
    ],
    ids=["one", "all", "another", "unknown"],
)
async def test_an_xid_of_a_gpu_in_mig_mode_withdraws_its_instances(
    world: World, numbers: tuple[int, int], named: int, withdrawn: set[str]
) -> None:
    """The one that the event names, else all, since NVML reports the GPU; no other GPU."""
    uuids = ("MIG-a", "MIG-b")
    instances = tuple(
        MigInstance(slot, uuid, "3g.20gb", 19968, gpu_instance=number)
        for slot, (uuid, number) in enumerate(zip(uuids, numbers, strict=True))
    )
    watched = [
        *((GpuIndex(slot), uuid) for slot, uuid in enumerate(uuids, 2)),
        (GpuIndex(1), SECOND),
    ]
    world.health.watch_only(watched, {FIRST: instances})
    world.driver.events = [Xid(79, FIRST, named)]
    await world.for_seconds(1, world.health.listen)
    assert {each.uuid for each in world.verdicts} == withdrawn
    assert all(each.why == "XID 79" for each in world.verdicts)
    assert world.health.healthy(SECOND)


async def test_a_gpu_that_is_not_watched_any_more_starts_over(world: World) -> None:
    """Its record went; a failure of its successor is the first."""
    world.health.withdraw({SECOND: "it is lost"})
    world.health.watch_only([(GpuIndex(0), FIRST)], {})
    assert list(world.book) == [FIRST]
    assert world.health.healthy(SECOND)


async def test_failed_starts_are_held_against_the_gpu_that_the_pods_hold(world: World) -> None:
    """Its index leads to its uuid; the other one stays healthy."""
    for name, namespace in (("p0", "a"), ("p1", "b")):
        world.health.start_failed([GpuIndex(1)], pod(name, namespace))
    why = "the container runtime cannot start pods of several namespaces on it"
    assert world.verdicts == [HealthStatus(SECOND, healthy=False, why=why)]


async def test_failed_starts_on_a_gpu_that_left_judge_nobody(world: World) -> None:
    """The pods hold an index that no GPU has now."""
    for name, namespace in (("p0", "a"), ("p1", "b")):
        world.health.start_failed([GpuIndex(7)], pod(name, namespace))
    assert world.verdicts == []


async def test_one_pod_that_fails_again_and_again_is_one_failure(world: World) -> None:
    """The limit counts pods, of at least two namespaces."""
    for _ in range(3):
        world.health.start_failed([GpuIndex(0)], pod("p0", "a"))
    world.health.start_failed([GpuIndex(0)], pod("p1", "a"))
    assert world.verdicts == []


async def test_pods_of_one_name_in_two_namespaces_are_two_failures(world: World) -> None:
    """A StatefulSet names its pods alike everywhere; so does a pod that was created again."""
    for namespace in ("a", "b"):
        world.health.start_failed([GpuIndex(1)], pod("web-0", namespace))
    assert [each.uuid for each in world.verdicts] == [SECOND]


async def test_a_hold_ends_with_the_first_clean_probe_after_it(world: World) -> None:
    """Clean probes count meanwhile, but only the hold's end lets them."""
    for name, namespace in (("p0", "a"), ("p1", "b")):
        world.health.start_failed([GpuIndex(0)], pod(name, namespace))
    done = await world.for_seconds(HOLD_SECONDS - EVERY + 1, world.health.probe)
    assert "resubscribe" not in done
    done = await world.for_seconds(EVERY + 1, world.health.probe)
    assert done[-2:] == ["resubscribe", "0 True"]


async def test_a_gpu_that_fails_again_soon_proves_itself_twice_as_long(world: World) -> None:
    """Signs and probes are dated by the same clock."""
    world.health.withdraw({FIRST: "it is lost"})
    await world.for_seconds(2 * EVERY + 1, world.health.probe)
    assert world.health.healthy(FIRST)
    world.health.withdraw({FIRST: "it is lost"})
    await world.for_seconds(3 * EVERY + 1, world.health.probe)
    assert not world.health.healthy(FIRST)
    await world.for_seconds(EVERY + 1, world.health.probe)
    assert world.health.healthy(FIRST)


async def test_error_events_are_counted_logged_and_judged(world: World, logs: list[Any]) -> None:
    """The XID of an application is counted, but changes no health."""
    world.driver.events = [None, Xid(31, SECOND), Xid(79, SECOND)]
    assert await world.for_seconds(1, world.health.listen) == ["1 False"]
    assert world.verdicts[0].why == "XID 79"
    for code in ("31", "79"):
        labels = {"gpu": SECOND, "xid": code}
        assert (REGISTRY.get_sample_value("gpushare_gpu_xid_total", labels) or 0) >= 1
    lines = [(line["event"], line["log_level"], line["uuid"], line["code"]) for line in logs]
    assert lines == [("XID", "warning", SECOND, 31), ("XID", "warning", SECOND, 79)]


async def test_error_events_that_a_tenant_repeats_push_no_other_line_out_of_the_log(
    world: World, logs: list[Any]
) -> None:
    """All are counted; of one GPU and XID a line a minute is logged, with the number between."""
    labels = {"gpu": SECOND, "xid": "13"}
    before = REGISTRY.get_sample_value("gpushare_gpu_xid_total", labels) or 0
    world.driver.events = [*[Xid(13, SECOND)] * 1000, Xid(43, SECOND), Xid(13, FIRST)]
    await world.for_seconds(61, world.health.listen)
    world.driver.events = [Xid(13, SECOND)] * 2
    await world.for_seconds(1, world.health.listen)
    assert REGISTRY.get_sample_value("gpushare_gpu_xid_total", labels) == before + 1002
    assert [(line["uuid"], line["code"], line["suppressed"]) for line in logs] == [
        (SECOND, 13, 0),
        (SECOND, 43, 0),
        (FIRST, 13, 0),
        (SECOND, 13, 999),
    ]


async def test_an_event_of_no_gpu_in_particular_judges_all(world: World) -> None:
    """The driver reports no GPU for the event."""
    world.driver.events = [Xid(79, "")]
    assert await world.for_seconds(1, world.health.listen) == ["0 False", "1 False"]


async def test_pauses_start_over_after_a_wait_that_went_well(world: World, logs: list[Any]) -> None:
    """A spoilt set of events is replaced at once, again and again."""
    refused = DriverError("not supported")
    world.driver.events = [refused, refused, None, refused, refused, refused]
    before = world.clock.seconds
    await world.for_seconds(FIRST_PAUSE_SECONDS * 10, world.health.listen)
    assert world.clock.seconds == before + FIRST_PAUSE_SECONDS * 10
    assert [line["again_in"] for line in logs] == [
        0.0,
        FIRST_PAUSE_SECONDS,
        0.0,
        FIRST_PAUSE_SECONDS,
        2 * FIRST_PAUSE_SECONDS,
    ]
    assert {(line["event"], line["log_level"], line["why"]) for line in logs} == {
        ("no error events", "info", "not supported")
    }
