"""The inventory manager over time, and what each enumeration hands on to whom, in which order."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from fakedriver import FakeDriver, hardware_of, t4
from msgspec.structs import replace
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from gpucore.model import IsolationMode
from gpucore.node.grant import GrantPolicy
from gpucore.units import GIB, MemoryUnit
from gpudeviceplugin import telemetry
from gpudeviceplugin.gpus.devices import (
    DriverError,
    DriverUnavailableError,
    GpuLostError,
    MigInstance,
    NodeHardware,
)
from gpudeviceplugin.node.inventory_manager import InventoryManager
from gpudeviceplugin.state import NodeState
from gpukube.testing.clock import FakeClock

EVERY = 60.0
RETRY = 5.0
FIRST, SECOND = t4(0), t4(1)


class World:
    """Driver, health and isolation in one; it records what the inventory manager does with them.

    Attributes:
        answers: what the driver answers to the next enumerations; the last one stays.
        opens: how the next connections end; further ones succeed.
        unhealthy, unusable: GPUs that must not be offered.
    """

    def __init__(self, clock: FakeClock, *, unit: MemoryUnit = GIB) -> None:
        self.clock = clock
        self.began = clock.seconds
        self.effects: list[Any] = []
        self.opens: list[DriverError | None] = []
        self.answers: list[NodeHardware | DriverError] = [hardware_of(FakeDriver(FIRST, SECOND))]
        self.known = True
        self.unhealthy: set[str] = set()
        self.unusable: set[str] = set()
        self.isolations: dict[str, IsolationMode] = {}
        self.limited: set[str] = set()
        self.state = NodeState(GrantPolicy())
        self.manager = InventoryManager(
            self.state,
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            unit=unit,
            reserve_mib=0,
            numa_hints=False,
            interval_seconds=EVERY,
            retry_seconds=RETRY,
        )

    def note(self, effect: str) -> None:
        self.effects.append((round(self.clock.seconds - self.began, 3), effect))

    async def open(self) -> None:
        """As the driver's."""
        self.note("open")
        fault = self.opens.pop(0) if self.opens else None
        if fault is not None:
            raise fault

    async def machine(self) -> NodeHardware:
        """As the driver's."""
        self.note("machine")
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, DriverError):
            raise answer
        return answer

    def watch_only(self, gpus: Any, _: Any) -> None:
        """As that of health."""
        self.effects.append(("watch", sorted(gpus)))

    def withdraw(self, reasons: Any) -> None:
        """As that of health, without verdicts."""
        if reasons:
            self.effects.append(("withdraw", dict(reasons)))
        self.unhealthy |= set(reasons)

    def healthy(self, uuid: str) -> bool:
        """As that of health."""
        return uuid not in self.unhealthy

    def equip(self, inventory: Any, capabilities: Any, limited: Any) -> None:
        """As that of isolation."""
        self.limited = set(limited)
        self.effects.append(("equip", [gpu.index for gpu in inventory.gpus], dict(capabilities)))

    def isolation(self, uuid: str) -> IsolationMode:
        """As that of isolation."""
        return self.isolations.get(uuid, IsolationMode.NONE)

    def usable(self, uuid: str) -> bool:
        """As that of isolation."""
        return uuid not in self.unusable

    def take(self, *machines: NodeHardware) -> None:
        """Enumerate, without the loop."""
        for machine in machines:
            self.manager._take(machine)

    async def for_seconds(self, seconds: float) -> list[Any]:
        """Run the loop for these seconds; its calls of the driver, with their times."""
        running = asyncio.create_task(self.manager.run())
        await asyncio.sleep(seconds)
        running.cancel()
        await asyncio.wait({running})
        return [each for each in self.effects if each[1] in ("open", "machine")]

    def offered(self) -> list[tuple[int, bool, IsolationMode]]:
        """Index, health and mode of what the state has."""
        return [(gpu.index, gpu.healthy, gpu.isolation) for gpu in self.state.inventory.gpus]


@pytest.fixture
async def world(clock: FakeClock) -> World:
    """A node with two GPUs."""
    return World(clock)


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    """What was logged."""
    with capture_logs() as logged:
        yield logged


async def test_gpus_are_enumerated_at_the_start_and_after_every_pause(world: World) -> None:
    """The connection is opened once; before the first answer readiness has a reason."""
    assert world.manager.trouble == "the driver has not responded yet"
    done = await world.for_seconds(EVERY + 1)
    assert done == [(0, "open"), (0, "machine"), (EVERY, "machine")]
    assert world.manager.trouble == ""


async def test_only_gpus_whose_driver_answers_for_memory_limits_can_have_them(
    world: World,
) -> None:
    """The isolation modes that are possible depend on it, GPU by GPU."""
    machine = hardware_of(FakeDriver(FIRST, SECOND))
    gpus = (replace(machine.gpus[0], memory_limits=True), machine.gpus[1])
    world.take(replace(machine, gpus=gpus))
    assert world.limited == {FIRST.uuid}


async def test_a_silent_gpu_keeps_the_modes_that_it_can_have(world: World) -> None:
    """Otherwise it would return without its isolation, for as long as pods use it."""
    driver = FakeDriver(FIRST, SECOND)
    driver.answers_limits = True
    world.take(hardware_of(driver))
    driver.lost.add(SECOND.uuid)
    world.take(hardware_of(driver))
    assert world.limited == {FIRST.uuid, SECOND.uuid}


async def test_a_query_for_memory_limits_that_fails_later_takes_no_mode_away(
    world: World,
) -> None:
    """A driver that answered it once supports them; another driver may not."""
    driver = FakeDriver(FIRST, SECOND)
    for answers, version, limited in (
        (True, "615.1", {FIRST.uuid, SECOND.uuid}),
        (False, "615.1", {FIRST.uuid, SECOND.uuid}),
        (False, "580.1", set()),
    ):
        driver.answers_limits, driver.driver_version = answers, version
        world.take(hardware_of(driver))
        assert world.limited == limited


async def test_an_enumeration_that_is_requested_is_made_at_once(world: World) -> None:
    """A request during an enumeration is not lost either."""
    running = asyncio.create_task(world.for_seconds(9))
    await asyncio.sleep(3)
    world.manager.refresh()
    assert await running == [(0, "open"), (0, "machine"), (3, "machine")]


async def test_a_node_without_gpus_is_enumerated_more_often(world: World) -> None:
    """They may be attached later: the pause is that for a driver that is away."""
    world.answers = [NodeHardware("535.1", ())]
    done = await world.for_seconds(RETRY + 1)
    assert done == [(0, "open"), (0, "machine"), (RETRY, "machine")]
    assert world.manager.trouble == "the driver lists no GPU"


async def test_a_driver_that_went_away_is_opened_again_after_a_pause(
    world: World, logs: list[Any]
) -> None:
    """No question is put to a connection that is gone."""
    machine = world.answers[0]
    world.answers = [DriverUnavailableError("unloaded"), machine]
    world.opens = [None, DriverUnavailableError("no driver"), DriverUnavailableError("no driver")]
    assert await world.for_seconds(3 * RETRY + 1) == [
        (0, "open"),
        (0, "machine"),
        (RETRY, "open"),
        (2 * RETRY, "open"),
        (3 * RETRY, "open"),
        (3 * RETRY, "machine"),
    ]
    lines = [(each["event"], each["log_level"], each["why"]) for each in logs if "why" in each]
    assert lines == [
        ("the driver is no longer available", "warning", "unloaded"),
        ("no usable NVIDIA driver; retrying", "warning", "no driver"),
    ]
    assert world.manager.trouble == ""


async def test_each_new_reason_for_a_driver_that_is_away_is_logged_once(
    world: World, logs: list[Any]
) -> None:
    """And the newest one is the answer of readiness."""
    first, second = DriverUnavailableError("no library"), DriverUnavailableError("no permission")
    world.opens = [first, first, second, second, first]
    await world.for_seconds(4 * RETRY + 1)
    assert [line["why"] for line in logs] == ["no library", "no permission", "no library"]
    assert world.manager.trouble == "no library"


async def test_an_enumeration_that_fails_is_made_again_over_the_same_connection(
    world: World, logs: list[Any]
) -> None:
    """What was known stays known."""
    machine = world.answers[0]
    world.answers = [machine, GpuLostError("timed out"), machine]
    done = await world.for_seconds(2 * EVERY + 1)
    assert done == [(0, "open"), (0, "machine"), (EVERY, "machine"), (2 * EVERY, "machine")]
    assert len(world.offered()) == 2
    (line,) = [line for line in logs if "why" in line]
    assert line["event"] == "cannot enumerate the GPUs"
    assert (line["log_level"], line["why"]) == ("warning", "timed out")


async def test_an_enumeration_is_handed_to_health_then_to_isolation(world: World) -> None:
    """The record of a silent GPU is there before its silence is a sign against it."""
    old = replace(SECOND, capability=(6, 1))
    world.take(hardware_of(FakeDriver(FIRST, old)))
    both = [(0, FIRST.uuid), (1, SECOND.uuid)]
    capabilities = {FIRST.uuid: (0, 0), SECOND.uuid: (6, 1)}
    assert world.effects == [("watch", both), ("equip", [0, 1], capabilities)]
    world.effects.clear()
    driver = FakeDriver(FIRST, old)
    driver.lost.add(SECOND.uuid)
    world.take(hardware_of(driver))
    assert world.effects == [
        ("watch", both),
        ("withdraw", {SECOND.uuid: f"it does not respond ({SECOND.uuid} is lost)"}),
        ("equip", [0, 1], capabilities),
    ]
    assert world.offered() == [(0, True, IsolationMode.NONE), (1, False, IsolationMode.NONE)]


async def test_a_gpu_that_never_responded_is_reported_once(world: World, logs: list[Any]) -> None:
    """With its reason; one that was known before is unhealthy, which is reported elsewhere."""
    told: list[tuple[int, str]] = []
    world.manager.on_unresponsive = lambda index, why: told.append((index, why))
    machine = hardware_of(FakeDriver(FIRST, SECOND))
    one = replace(machine, gpus=(FIRST,), silent={1: "no memory"}, links={})
    world.take(one, one)
    assert told == [(1, "no memory")]
    lines = [line for line in logs if line["event"] == "a GPU does not respond"]
    assert [(line["log_level"], line["gpu"], line["why"]) for line in lines] == [
        ("warning", 1, "no memory")
    ]
    assert unresponsive() == 1
    world.take(machine)
    assert (unresponsive(), len(world.offered())) == (0, 2)
    world.take(one)
    assert (unresponsive(), told) == (0, [(1, "no memory")])


async def test_a_gpu_that_the_driver_no_longer_lists_is_missing_from_its_metric(
    world: World,
) -> None:
    """One that does not respond is listed, and counts."""
    machine = hardware_of(FakeDriver(FIRST, SECOND))
    counts = list[float | None]()
    for answer in (
        machine,
        replace(machine, gpus=(FIRST,), silent={1: "it is lost"}, links={}),
        replace(machine, gpus=(FIRST,), links={}),
    ):
        world.take(answer)
        counts.append(REGISTRY.get_sample_value("gpushare_plugin_driver_gpus"))
    assert counts == [2, 2, 1]


def unresponsive() -> float | None:
    """GPUs of which nothing is known."""
    return REGISTRY.get_sample_value("gpushare_plugin_unresponsive_gpus")


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        (DriverUnavailableError("the driver is unloaded"), "the driver is unloaded"),
        (
            GpuLostError("driver did not return within 30.0 s"),
            "driver did not return within 30.0 s",
        ),
        (
            NodeHardware("1", (), silent={0: "nvmlDeviceGetMemoryInfo: Not Supported"}),
            "no GPU responds: nvmlDeviceGetMemoryInfo: Not Supported",
        ),
        (
            NodeHardware("1", (replace(FIRST, mig=True),)),
            "all GPUs are in MIG mode, and have no MIG instance with memory of its own",
        ),
    ],
    ids=["unavailable", "failed", "silent", "no instances"],
)
async def test_readiness_has_the_reason_why_no_gpu_is_known(
    world: World, answer: NodeHardware | DriverError, trouble: str
) -> None:
    """A driver that answered with an error has responded."""
    world.answers = [answer]
    await world.for_seconds(1)
    assert world.manager.trouble == trouble


async def test_an_enumeration_that_fails_later_changes_no_readiness(world: World) -> None:
    """The GPUs that are known stay offered."""
    world.answers = [world.answers[0], GpuLostError("timed out")]
    await world.for_seconds(EVERY + 1)
    assert (world.manager.trouble, len(world.offered())) == ("", 2)


async def test_instances_that_share_memory_are_logged_once(world: World, logs: list[Any]) -> None:
    """Again only when there are others."""
    parts = tuple(
        MigInstance(slot, f"MIG-{slot}", "1c.3g.20gb", 19968, reserved_mib=0, gpu_instance=2)
        for slot in (0, 1, 2)
    )
    gpu = replace(FIRST, reserved_mib=0, mig=True, slots=7)
    two = NodeHardware("1", (replace(gpu, instances=parts[:2]),))
    world.take(two, two, NodeHardware("1", (replace(gpu, instances=parts),)))
    lines = [line["instances"] for line in logs if "MIG instances" in line["event"]]
    assert lines == [["MIG-0", "MIG-1"], ["MIG-0", "MIG-1", "MIG-2"]]


async def test_links_of_a_silent_gpu_stay_and_those_of_one_that_left_go(world: World) -> None:
    """Answers are newer than what was known."""
    three = (FIRST, SECOND, t4(2))
    before = {"0-1": ("SYS",), "0-2": ("SYS",), "1-2": ("SYS",)}
    world.take(NodeHardware("1", three, links=before))
    world.take(NodeHardware("1", (FIRST, t4(2)), silent={1: "is lost"}, links={"0-2": ("PIX",)}))
    assert world.state.inventory.links == before | {"0-2": ("PIX",)}
    assert [index for index, _, _ in world.offered()] == [0, 1, 2]
    world.take(NodeHardware("1", (FIRST, t4(2)), links={"0-2": ("PIX",)}))
    assert world.state.inventory.links == {"0-2": ("PIX",)}
    assert [index for index, _, _ in world.offered()] == [0, 2]


async def test_a_gpu_whose_links_are_unknown_is_offered_and_named_in_a_warning(
    world: World, logs: list[Any]
) -> None:
    """Once, until its links are known; links that were known before stay."""
    three, known = (FIRST, SECOND, t4(2)), {"0-1": ("SYS",), "0-2": ("SYS",), "1-2": ("SYS",)}
    why = {1: "links of GPU 1 did not return within 30.0 s"}
    hanging = NodeHardware("1", three, links={"0-2": ("PIX",)}, unlinked=why)
    world.take(hanging, hanging)
    assert [index for index, healthy, _ in world.offered() if healthy] == [0, 1, 2]
    assert world.state.inventory.links == {"0-2": ("PIX",)}
    lines = [line for line in logs if line["event"] == "the links of a GPU are unknown"]
    assert [(line["log_level"], line["gpu"], line["why"]) for line in lines] == [
        ("warning", 1, why[1])
    ]
    world.take(NodeHardware("1", three, links=known), hanging)
    assert world.state.inventory.links == known | {"0-2": ("PIX",)}
    assert len([line for line in logs if "links" in line["event"]]) == 2
    world.take(NodeHardware("1", three[:2], unlinked=why))
    assert world.state.inventory.links == {"0-1": ("SYS",)}


async def test_nothing_is_offered_before_the_isolation_is_known(world: World) -> None:
    """A GPU must not be offered as open first and as isolated a moment later."""
    world.known = False
    world.take(world.answers[0])  # type: ignore[arg-type]
    assert world.offered() == []
    world.known = True
    world.manager.publish()
    assert len(world.offered()) == 2


async def test_a_gpu_is_offered_when_it_is_healthy_and_its_isolation_works(world: World) -> None:
    """Either alone withdraws it; the mode is that of the isolation."""
    world.take(hardware_of(FakeDriver(FIRST, SECOND, t4(2), t4(3))))
    world.unhealthy = {SECOND.uuid, t4(3).uuid}
    world.unusable = {t4(2).uuid, t4(3).uuid}
    world.isolations = {t4(2).uuid: IsolationMode.MPS}
    world.manager.publish()
    assert world.offered() == [
        (0, True, IsolationMode.NONE),
        (1, False, IsolationMode.NONE),
        (2, False, IsolationMode.MPS),
        (3, False, IsolationMode.NONE),
    ]
    paused = [gpu.index for gpu in world.state.inventory.gpus if gpu.paused]
    assert paused == [2], "the GPU itself works"


async def test_health_and_units_of_every_gpu_are_metrics(world: World) -> None:
    """They follow each verdict, and go with the GPU."""
    world.unhealthy = {SECOND.uuid}
    world.take(hardware_of(FakeDriver(FIRST, replace(SECOND, memory_mib=40960))))
    assert [figure("healthy", 0), figure("healthy", 1)] == [1, 0]
    assert [figure("units", 0), figure("units", 1)] == [15, 40]
    world.unhealthy.clear()
    world.manager.publish()
    assert figure("healthy", 1) == 1


async def test_a_gpu_that_left_has_no_metrics(world: World) -> None:
    """One that was unhealthy before it was exchanged would be reported for ever."""
    world.unhealthy = {SECOND.uuid}
    world.take(hardware_of(FakeDriver(FIRST, SECOND)))
    for gauge in (telemetry.GPU_ALLOCATED, telemetry.GPU_USED, telemetry.UNATTRIBUTED):
        gauge.labels("1", SECOND.uuid).set(7)
    world.take(hardware_of(FakeDriver(FIRST, replace(t4(7), index=1))))
    names = ("healthy", "units", "allocated_units", "used_bytes", "unattributed_bytes")
    assert [figure(name, 1) for name in names] == [None] * 5
    assert [figure("healthy", 0), figure("units", 0)] == [1, 15]


def figure(name: str, index: int) -> float | None:
    """A metric of a GPU."""
    labels = {"gpu": str(index), "uuid": t4(index).uuid}
    return REGISTRY.get_sample_value(f"gpushare_gpu_{name}", labels)


async def test_a_unit_that_kubelet_could_not_read_is_logged_with_its_reason(
    clock: FakeClock, logs: list[Any]
) -> None:
    """Nothing is offered, and the answer of readiness is the same sentence."""
    world = World(clock, unit=MemoryUnit(1))
    world.take(hardware_of(FakeDriver(*(t4(index, memory_mib=143771) for index in range(8)))))
    assert world.offered() == []
    (line,) = [line for line in logs if line["log_level"] == "error"]
    assert line["event"] == "no device is advertised"
    assert line["why"] == world.manager.trouble
    assert "the smallest unit that fits these GPUs is" in world.manager.trouble


async def test_memory_that_a_driver_may_keep_is_mentioned_once_a_driver(
    world: World, logs: list[Any]
) -> None:
    """Only for GPUs whose reserve is not reported; a reserve of 0 is a report."""
    reported = replace(SECOND, reserved_mib=0)
    world.take(NodeHardware("535.1", (FIRST, reported)), NodeHardware("535.1", (FIRST, reported)))
    assert [(line["driver"], line["gpus"]) for line in logs] == [("535.1", [FIRST.uuid])]
    assert logs[0]["event"].startswith("the driver does not report the memory that it reserves;")
    assert logs[0]["event"].endswith("set reserve-mib to reserve memory")
    assert logs[0]["log_level"] == "warning"
    world.take(NodeHardware("570.1", (FIRST,)), NodeHardware("580.1", (reported,)))
    assert [line["driver"] for line in logs] == ["535.1", "570.1"]
