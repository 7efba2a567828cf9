"""The inventory follows the driver, enumeration by enumeration."""

import asyncio

import pytest
from fakedriver import FakeDriver, t4
from moduletime import Clock
from msgspec.structs import replace

from gpucore.model import IsolationMode
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.grant import GrantPolicy
from gpucore.node.health.breaker import Breaker
from gpucore.node.health.records import HealthRecords
from gpucore.units import GIB, MemoryUnit
from gpudeviceplugin.cluster.node_watch import NodeWatch
from gpudeviceplugin.gpus.devices import DriverGpu, MigInstance, Xid
from gpudeviceplugin.gpus.driver import PatientDriver
from gpudeviceplugin.gpus.health import HealthMonitor
from gpudeviceplugin.isolation.modes import Isolation
from gpudeviceplugin.node.inventory_manager import InventoryManager
from gpudeviceplugin.signals import Signal
from gpudeviceplugin.state import NodeState

SECONDS = 60.0
RETRY = 5.0
EVERY = 60.0


class Kept:
    """An inventory manager over a driver whose GPUs the test changes."""

    def __init__(self, driver: FakeDriver, *, unit: MemoryUnit = GIB, reserve_mib: int = 0) -> None:
        self.driver = driver
        self.state = NodeState(GrantPolicy())
        patient = PatientDriver(driver)
        book = HealthRecords(clean_probes=1, ignored_xids=())
        self.health = HealthMonitor(book, Breaker(limit=5), patient, interval_seconds=1.0)
        watch = NodeWatch(Signal())
        self.isolation = Isolation(self.state, watch, None, default=IsolationMode.NONE)
        self.manager = InventoryManager(
            self.state,
            patient,
            self.health,
            self.isolation,
            unit=unit,
            reserve_mib=reserve_mib,
            numa_hints=False,
            interval_seconds=EVERY,
            retry_seconds=RETRY,
        )
        self.health.on_verdicts = lambda _: self.manager.publish()

    async def enumerated(self) -> None:
        """The driver was queried once more."""
        self.manager._take(await self.manager._driver.machine())

    def gpus(self) -> list[tuple[int, int, bool]]:
        """Index, units and health of what is offered."""
        return [(gpu.index, gpu.units, gpu.healthy) for gpu in self.state.inventory.gpus]

    def ids(self) -> set[str]:
        """Ids of the memory devices, without their numbers."""
        return {one.split("-_-")[0] for one in self.state.matcher.tables[Resource.MEM].owner}


async def test_a_silent_gpu_stays_in_the_inventory_and_is_unhealthy() -> None:
    """Who holds a part of it is still notified of it, and its links stay known."""
    kept = Kept(FakeDriver(t4(0), t4(1)))
    await kept.enumerated()
    kept.driver.lost.add(t4(1).uuid)
    await kept.enumerated()
    assert kept.gpus() == [(0, 15, True), (1, 15, False)]
    assert kept.state.inventory.links == {"0-1": ("SYS",)}
    kept.driver.lost.clear()
    kept.health._tell(kept.health._book.clean(t4(1).uuid, float("inf")))
    assert kept.gpus() == [(0, 15, True), (1, 15, True)]


async def test_an_exchanged_gpu_takes_the_place_of_the_old_one() -> None:
    """Another uuid and size in the same slot: the old ids are gone, and its faults with them."""
    kept = Kept(FakeDriver(t4(0), t4(1)))
    await kept.enumerated()
    kept.health.withdraw({t4(1).uuid: "it is lost"})
    assert kept.gpus()[1] == (1, 15, False)
    new = replace(t4(7, memory_mib=40960), index=1)
    kept.driver.gpus = (t4(0), new)
    await kept.enumerated()
    assert kept.gpus() == [(0, 15, True), (1, 40, True)]
    assert kept.ids() == {t4(0).uuid, new.uuid}


async def test_a_gpu_that_is_cut_into_instances_is_offered_as_those() -> None:
    """MIG is turned on at run time, changed, and turned off again."""
    kept = Kept(FakeDriver(t4(0), t4(1)))
    await kept.enumerated()
    small, large = MigInstance(0, "MIG-a", "1g", 4864), MigInstance(2, "MIG-b", "2g", 9856)
    cut = replace(t4(1), mig=True, slots=7, instances=(small, large))
    kept.driver.gpus = (t4(0), cut)
    await kept.enumerated()
    assert kept.gpus() == [(0, 15, True), (9, 4, True), (11, 9, True)]
    kept.driver.gpus = (t4(0), replace(cut, instances=(large,)))
    await kept.enumerated()
    assert kept.ids() == {t4(0).uuid, "MIG-b"}
    kept.driver.gpus = (t4(0), t4(1))
    await kept.enumerated()
    assert kept.gpus() == [(0, 15, True), (1, 15, True)]


async def test_an_error_of_a_gpu_in_mig_mode_withdraws_its_instance() -> None:
    """The driver reports the GPU, which is not offered itself."""
    instances = tuple(
        MigInstance(slot, f"MIG-{slot}", "1g", 4864, gpu_instance=slot + 7) for slot in (0, 1)
    )
    driver = FakeDriver(t4(0), replace(t4(1), mig=True, slots=7, instances=instances))
    kept = Kept(driver)
    await kept.enumerated()
    kept.health._take(Xid(79, t4(1).uuid, 8))
    assert kept.gpus() == [(0, 15, True), (9, 4, True), (10, 4, False)]


def cut(index: int, *, slots: int = 7) -> DriverGpu:
    """A GPU in MIG mode with two instances."""
    instances = tuple(
        MigInstance(slot, f"MIG-{index}-{slot}", "1g", 4864, gpu_instance=slot + 7)
        for slot in (0, 1)
    )
    return replace(t4(index), mig=True, slots=slots, instances=instances)


async def test_instances_of_a_silent_gpu_stay_in_the_inventory_and_are_unhealthy() -> None:
    """With the indexes that their pods know; their faults are known when the GPU is back."""
    kept = Kept(FakeDriver(cut(0), cut(1, slots=4), t4(2)))
    kept.driver.reports_recovery = False
    await kept.enumerated()
    healthy = [(2, 15, True), (3, 4, True), (4, 4, True), (10, 4, True), (11, 4, True)]
    assert kept.gpus() == healthy
    kept.health._take(Xid(79, t4(0).uuid, 7))
    kept.driver.lost.add(t4(0).uuid)
    for _ in range(2):
        await kept.enumerated()
        assert kept.gpus() == [(2, 15, True), (3, 4, False), (4, 4, False), *healthy[3:]]
    kept.health._take(Xid(95, t4(0).uuid, 8))
    kept.driver.lost.clear()
    await kept.enumerated()
    assert [kept.health._book.why(f"MIG-0-{slot}") for slot in (0, 1)] == [
        f"it does not respond ({t4(0).uuid} is lost)",
        "XID 95",
    ]
    kept.health._tell(kept.health._book.clean("MIG-0-0", 1e9))
    assert kept.gpus() == [(2, 15, True), (3, 4, False), (4, 4, False), *healthy[3:]]


async def test_a_gpu_that_needs_a_reset_is_never_offered_to_a_new_plugin() -> None:
    """The enumeration finds it, before the first probe; so it is with the instances of one."""
    kept = Kept(FakeDriver(cut(0), t4(1), t4(2)))
    kept.driver.needed = {
        t4(0).uuid: "a reset of the GPU",
        t4(1).uuid: "a reboot of the node",
    }
    offers: list[list[bool]] = []
    kept.state.equip = lambda inventory: offers.append(  # type: ignore[method-assign]
        [gpu.healthy for gpu in inventory.gpus]
    )
    await kept.enumerated()
    assert offers
    assert all(each == [False, True, False, False] for each in offers)
    assert kept.health._book.why(t4(1).uuid) == "the driver requires a reboot of the node"


async def test_a_gpu_that_is_gone_for_good_is_not_offered() -> None:
    """The driver counts one GPU less: it is not silent, it is not there."""
    kept = Kept(FakeDriver(t4(0), t4(1)))
    await kept.enumerated()
    kept.driver.gpus = (t4(0),)
    await kept.enumerated()
    assert kept.gpus() == [(0, 15, True)]


async def test_the_reserve_is_kept_from_every_gpu() -> None:
    """The setting reaches the inventory."""
    kept = Kept(FakeDriver(replace(t4(0), reserved_mib=300)), reserve_mib=1024)
    await kept.enumerated()
    assert kept.gpus() == [(0, 14, True)]
    assert kept.state.inventory.gpus[0].reserved_mib == 1324


async def test_a_unit_that_kubelet_could_not_read_offers_nothing() -> None:
    """The trouble names the smallest unit that would do."""
    kept = Kept(FakeDriver(*(t4(index, memory_mib=143771) for index in range(8))))
    kept.manager._unit = MemoryUnit(1)
    await kept.enumerated()
    assert kept.gpus() == []
    assert "the smallest unit that fits these GPUs is" in kept.manager.trouble


async def test_a_driver_that_is_away_is_tried_again_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pause is the setting; what was known stays known."""
    clock = Clock()
    clock.rule(monkeypatch, "gpudeviceplugin.node.inventory_manager")
    kept = Kept(FakeDriver(t4(0)))
    kept.driver.absent = True
    tried = asyncio.Event()
    clock.on_sleep = lambda: tried.set() if len(clock.slept) > 2 else None
    running = asyncio.create_task(kept.manager.run())
    async with asyncio.timeout(SECONDS):
        await tried.wait()
    assert set(clock.slept) == {RETRY}
    assert kept.manager.trouble == "no driver"
    kept.driver.absent = False
    async with asyncio.timeout(SECONDS):
        while not kept.gpus():
            await kept.state.inventory_changed.beyond_or_after(0, 0.05)
    assert kept.manager.trouble == ""
    running.cancel()
    await asyncio.wait({running})
