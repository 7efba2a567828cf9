"""The isolation mode of each GPU, look by look: requests, waits, and single reports."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest
from fakedriver import t4
from msgspec.structs import replace

from gpucore.model import IsolationMode
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.node.grant import GrantPolicy
from gpucore.units import GIB, NodeName
from gpucore.wire.names import INVENTORY as PUBLISHED
from gpucore.wire.names import ISOLATION
from gpucore.wire.node.inventories import encode_inventory
from gpucore.wire.node.spec import Node
from gpudeviceplugin.cluster.node_watch import NodeWatch
from gpudeviceplugin.gpus.devices import NodeHardware
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.isolation.modes import LOOK_SECONDS, Isolation
from gpudeviceplugin.state import NodeState
from gpukube.testing.clock import FakeClock

INVENTORY = inventory_of(NodeHardware("535.1", (t4(0), t4(1))), GIB)
FIRST, SECOND = (gpu.uuid for gpu in INVENTORY.gpus)
NONE, MPS, DRIVER, BOTH = IsolationMode


class World:
    """The daemons of a node, which are only wanted, and an isolation over them."""

    def __init__(self, *, default: IsolationMode = NONE, fleet: bool = True) -> None:
        self.state = NodeState(GrantPolicy())
        self.watch = NodeWatch(self.state.outlook_changed)
        self.wanted: list[list[str]] = []
        self.up: set[str] = set()
        self.changes = 0
        self.faults: list[tuple[str, ...]] = []
        daemons: Any = self if fleet else None
        self.isolation = Isolation(self.state, self.watch, daemons, default=default)
        self.isolation.on_change = self._changed
        self.isolation.on_faults = self.faults.append

    def _changed(self) -> None:
        self.changes += 1

    def want(self, uuids: Collection[str]) -> None:
        """As the fleet's."""
        self.wanted.append(sorted(uuids))

    def serving(self, uuid: str) -> bool:
        """As the fleet's."""
        return uuid in self.up

    def node(self, mode: str = "", **annotations: str) -> None:
        """The node has this label, and these annotations."""
        labels = {ISOLATION: mode} if mode else {}
        self.watch.on_update(Node(NodeName("n1"), labels, annotations), b"")

    def gpus(self) -> None:
        """The driver has reported two GPUs, and they are offered."""
        self.isolation.equip(INVENTORY, {})
        self.state.equip(INVENTORY)

    def held(self, *gpus: int) -> None:
        """Kubelet's account: a pod has a share of these GPUs."""
        ids = self.state.matcher.tables[Resource.MEM].ids
        row = {Resource.MEM: tuple(ids[device][0] for device in gpus)}  # type: ignore[index]
        self.state.sync_from_kubelet(
            [Held("team", "p", {"c0": row})] if gpus else [], requested_at=0
        )

    def look(self, *, trusted: bool = True) -> bool:
        """One look."""
        return self.isolation._look(trusted=trusted)

    @property
    def modes(self) -> list[IsolationMode]:
        return [self.isolation.isolation(uuid) for uuid in (FIRST, SECOND)]


@pytest.fixture
async def world() -> World:
    """A node whose label selects MPS."""
    made = World()
    made.node("mps")
    return made


async def test_nothing_is_known_before_both_node_and_gpus_are(world: World) -> None:
    """A GPU must not be published as open first."""
    late = World()
    late.gpus()
    assert not late.isolation.known
    assert not late.look()
    assert late.wanted == []
    late.node("mps")
    assert late.look()
    assert (late.isolation.known, late.modes) == (True, [MPS, MPS])
    assert not world.look()
    world.gpus()
    assert (world.isolation.known, world.wanted) == (True, [[FIRST, SECOND]])


async def test_the_first_look_is_news_though_every_gpu_stays_open() -> None:
    """Nothing was published before it, since the modes were not known."""
    world = World()
    world.state.equip(INVENTORY)
    world.node("none")
    world.isolation._inventory = INVENTORY
    assert world.look()
    assert world.modes == [NONE, NONE]
    assert not world.look()


async def test_a_fault_that_returns_is_reported_again(world: World) -> None:
    """After the label was right for a while."""
    world.gpus()
    for mode in ("fast", "mps", "fast"):
        world.node(mode)
        world.look()
    assert [len(each) for each in world.faults] == [1, 0, 1]


async def test_without_daemons_every_gpu_is_open_and_usable() -> None:
    """And known at once."""
    world = World(fleet=False)
    assert world.isolation.known
    world.node("mps")
    world.gpus()
    assert not world.look()
    assert world.modes == [NONE, NONE]
    assert world.isolation.usable(FIRST)


async def test_a_gpu_with_a_daemon_is_usable_while_it_serves(world: World) -> None:
    """Others do not depend on any."""
    world.gpus()
    world.up = {FIRST}
    assert [world.isolation.usable(uuid) for uuid in (FIRST, SECOND)] == [True, False]
    world.node("none")
    world.look()
    assert world.isolation.usable(SECOND)


async def test_a_gpu_in_use_keeps_its_mode_and_the_node_gets_one_event(world: World) -> None:
    """The mode changes when the last pod ends; each new fault is reported once."""
    world.gpus()
    world.held(0)
    world.node("none")
    assert world.look()
    assert (world.modes, world.wanted[-1]) == ([MPS, NONE], [FIRST])
    assert not world.look()
    reported = "GPU 0 keeps isolation mode mps until no pod uses it, then changes to none"
    assert world.faults == [(reported,)]
    world.node("bad")
    world.look()
    (news,) = world.faults[1]
    assert news.endswith("=bad is none of none, mps, driver, driver-mps")
    world.node("none")
    world.held()
    assert world.look()
    assert world.modes == [NONE, NONE]
    assert world.faults[2:] == [()]


async def test_before_kubelet_has_reported_every_gpu_counts_as_used(world: World) -> None:
    """The GPU may be in use until kubelet has listed its allocations."""
    world.gpus()
    world.node("none")
    assert not world.look(trusted=False)
    assert world.modes == [MPS, MPS]
    assert world.look(trusted=True)
    assert world.modes == [NONE, NONE]


async def test_a_new_gpu_counts_as_used_until_it_is_offered(world: World) -> None:
    """Kubelet's account could not name its ids."""
    world.isolation.equip(INVENTORY, {})
    world.node("none")
    assert not world.look()
    world.state.equip(INVENTORY)
    assert world.look()


async def test_a_restarted_plugin_goes_on_with_what_was_published() -> None:
    """The label was removed meanwhile; an unpublished GPU takes the requested mode."""
    before = replace(INVENTORY, gpus=(replace(INVENTORY.gpus[0], isolation=MPS),))
    world = World()
    world.node("", **{PUBLISHED: encode_inventory(before)})
    world.gpus()
    assert world.modes == [MPS, NONE]
    world.node("", **{PUBLISHED: encode_inventory(INVENTORY)})
    world.look(trusted=False)
    assert world.modes == [MPS, NONE], "it is read once"


async def test_the_setting_is_the_weakest_word() -> None:
    """The node has no label."""
    world = World(default=MPS)
    world.node()
    world.gpus()
    assert world.modes == [MPS, MPS]


async def test_a_gpu_that_cannot_limit_stays_open_and_is_named() -> None:
    """Compute capability 6.1; the other one is unknown, which is no reason."""
    world = World()
    world.node("mps")
    world.isolation.equip(INVENTORY, {FIRST: (6, 1)})
    assert world.modes == [NONE, MPS]
    (fault,) = world.faults[0]
    assert fault.startswith("GPU 0 cannot use isolation mode mps: compute capability 6.1")


@pytest.mark.parametrize(("driver", "reported"), [("470.57", 1), ("495.29", 0)])
async def test_a_driver_that_limits_no_memory_is_named(driver: str, reported: int) -> None:
    """Only where a GPU is in mode mps."""
    world = World()
    world.node("mps")
    world.isolation.equip(replace(INVENTORY, driver=driver), {})
    assert [len(each) for each in world.faults] == [1] * reported
    if reported:
        assert world.faults[0][0].startswith(f"driver {driver} is older than 495")
    world.node("none")
    world.state.equip(INVENTORY)
    world.look()
    assert world.faults[-1:] == [()] * reported


async def test_a_look_follows_every_change_and_every_two_seconds(
    world: World, clock: FakeClock
) -> None:
    """The publisher is called when a mode changed, and only then."""
    truth = asyncio.Event()
    running = asyncio.create_task(world.isolation.run(truth))
    world.gpus()
    await asyncio.sleep(0.1)
    world.node("none")
    await asyncio.sleep(LOOK_SECONDS + 0.1)
    assert (world.modes, world.changes) == ([MPS, MPS], 0)
    truth.set()
    await asyncio.sleep(LOOK_SECONDS + 0.1)
    assert (world.modes, world.changes) == ([NONE, NONE], 1)
    world.node("mps")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (world.modes, world.changes) == ([MPS, MPS], 2)
    running.cancel()
    await asyncio.wait({running})


async def test_without_daemons_nothing_is_followed() -> None:
    """The part ends at once."""
    world = World(fleet=False)
    async with asyncio.timeout(60):
        await world.isolation.run(asyncio.Event())


class Limits:
    """The driver's limits, which are only wanted; a test specifies where they hold."""

    def __init__(self, *, ready: bool = True) -> None:
        self.cgroups = ready
        self.wanted: list[tuple[list[str], list[str]]] = []
        self.holding: set[str] = set()

    def ready(self) -> bool:
        return self.cgroups

    def want(self, uuids: Collection[str], holding: Collection[str] = ()) -> None:
        self.wanted.append((sorted(uuids), sorted(holding)))

    def holds(self, uuid: str) -> bool:
        return uuid in self.holding


NEW = replace(INVENTORY, driver="615.36.01")


def limited(
    limits: Limits, *, default: IsolationMode | None = NONE, fleet: bool = False, **node: str
) -> World:
    """A node whose driver answers for the memory limits of both GPUs."""
    world = World(fleet=fleet)
    daemons: Any = world if fleet else None
    world.isolation = Isolation(
        world.state,
        world.watch,
        daemons,
        default=default,
        limits=limits,  # type: ignore[arg-type]
    )
    world.isolation.on_faults = world.faults.append
    world.node(**node)
    world.isolation.equip(NEW, {}, [FIRST, SECOND])
    world.state.equip(NEW)
    return world


def test_a_gpu_has_the_drivers_mode_while_its_limits_hold() -> None:
    """It is wanted by the label, and published once and as long as every limit is in force."""
    limits = Limits()
    world = limited(limits, mode="driver")
    world.held()
    world.look()
    assert limits.wanted[-1][0] == [FIRST, SECOND]
    assert world.modes == [NONE, NONE]
    limits.holding = {SECOND}
    assert world.modes == [NONE, DRIVER]
    assert all(map(world.isolation.usable, (FIRST, SECOND)))
    assert world.faults == []


def test_what_an_earlier_plugin_published_is_trusted_at_the_first_look_only() -> None:
    """So a restart does not take the mode off GPUs whose limits the driver has kept."""
    gpus = (replace(NEW.gpus[0], isolation=DRIVER), NEW.gpus[1])
    text = encode_inventory(replace(NEW, gpus=gpus))
    limits = Limits()
    world = limited(limits, mode="driver", **{PUBLISHED: text})
    world.look()
    assert limits.wanted == [([FIRST, SECOND], [FIRST]), ([FIRST, SECOND], [])]


def test_auto_takes_both_then_the_driver_then_mps_then_none() -> None:
    """By what each GPU can have and what the plugin was started with."""
    assert _auto(Limits(), fleet=True) == [BOTH, BOTH]
    assert _auto(Limits(), fleet=False) == [DRIVER, DRIVER]
    assert _auto(Limits(ready=False), fleet=True) == [MPS, MPS]
    assert _auto(Limits(ready=False), fleet=False) == [NONE, NONE]


def test_a_gpu_in_both_modes_has_a_daemon_and_loses_only_what_does_not_hold() -> None:
    """Without its limits it is in mode mps; without its daemon nothing of it is offered."""
    limits = Limits()
    world = limited(limits, mode="driver-mps", fleet=True)
    world.held()
    world.look()
    assert (limits.wanted[-1][0], world.wanted[-1]) == ([FIRST, SECOND], sorted([FIRST, SECOND]))
    world.up, limits.holding = {FIRST}, {FIRST}
    assert world.modes == [BOTH, MPS]
    assert [world.isolation.usable(uuid) for uuid in (FIRST, SECOND)] == [True, False]


def _auto(limits: Limits, *, fleet: bool) -> list[IsolationMode]:
    limits.holding = {FIRST, SECOND}
    world = limited(limits, default=None, fleet=fleet)
    world.held()
    world.look()
    assert world.faults == []
    return world.modes


def test_a_mode_that_the_plugin_was_not_started_for_is_a_fault() -> None:
    """A label requests MPS where there are no daemons, or for the driver where it is off."""
    without_daemons = limited(Limits(), mode="mps")
    without_limits = World()
    without_limits.node(mode="driver")
    without_limits.gpus()
    for world, words in (
        (without_daemons, "GPU 0 cannot use isolation mode mps: MPS is not enabled in the plugin"),
        (
            without_limits,
            "GPU 0 cannot use isolation mode driver: driver limits are not enabled in the plugin",
        ),
    ):
        assert world.modes == [NONE, NONE]
        assert world.faults[0][0] == words
