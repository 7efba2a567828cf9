"""The ResourceSlice of a node, request by request, and what is known of slices in between."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from fakedriver import t4
from moduletime import Clock
from sliceagent import Agent

from gpucore.model import Inventory, IsolationMode
from gpucore.model.constraints import NO_EXECUTE, NO_SCHEDULE
from gpucore.units import GIB, GpuIndex, GpuUuid, NodeName
from gpucore.wire.claim.devices import SliceDevice
from gpucore.wire.claim.resource_slices import MAX_TAINTED, PATH, ResourceSlice, encode_slice
from gpucore.wire.names import API_DEVICES, CLAIM_DRIVER, DEFAULT_NAMES
from gpucore.wire.node.spec import Node
from gpudeviceplugin.dra.publisher import LOOK_SECONDS, UNKNOWN_SECONDS
from gpudeviceplugin.dra.slices import SliceWatch, wanted_slice, without_new_claims
from gpudeviceplugin.gpus.devices import NodeHardware
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.signals import Signal
from gpukube.errors import ConflictError, KubeError, NotFoundError, ThrottledError
from gpukube.testing.clock import FakeClock

NAME = f"n1-{CLAIM_DRIVER}"
LABELS = {"gpushare": "true", "gpushare/api": "claims"}


class Api:
    """An API server with one slice, which is written to it and never watched.

    Attributes:
        answers: of the next writes: errors, or bodies; further ones are as they should be.
        meanwhile: happens between a read and its answer.
    """

    def __init__(self, clock: FakeClock) -> None:
        self._clock, self._began = clock, clock.seconds
        self._version = 0
        self.stored: dict[str, Any] | None = None
        self.answers: list[KubeError | bytes] = []
        self.writes: list[tuple[float, str]] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def _write(self, what: str, body: Any) -> bytes:
        self.writes.append((round(self._clock.seconds - self._began, 3), what))
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, KubeError):
            raise answer
        self._version += 1
        version = str(self._version)
        stored = json.loads(msgspec.json.encode(body))
        stored["metadata"] = {**stored["metadata"], "resourceVersion": version}
        for device in stored["spec"]["devices"]:
            for taint in device.get("taints", ()):  # the API server dates what has no time
                taint.setdefault("timeAdded", f"2026-01-02T00:00:0{version}Z")
        self.stored = stored
        return answer or json.dumps(stored).encode()

    async def post(self, path: str, body: Any) -> bytes:
        """Create the slice."""
        assert path == PATH
        return self._write("create", body)

    async def patch(self, path: str, body: Any) -> bytes:
        """Replace what is in it."""
        assert self.stored is not None
        assert body["metadata"]["resourceVersion"] == self.stored["metadata"]["resourceVersion"]
        spec = {**self.stored["spec"], **body["spec"]}
        merged = {"metadata": {"name": path.rpartition("/")[2]}, "spec": spec}
        owned = {**self.stored["metadata"], **merged["metadata"]}
        return self._write("update", {**self.stored, **merged, "metadata": owned})

    async def delete(self, path: str) -> bytes:
        """Delete a slice, of whatever name."""
        self.writes.append((round(self._clock.seconds - self._began, 3), f"delete {path}"))
        return b"{}"

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> bytes:
        """The slice as it is."""
        del params
        if self.stored is None:
            raise NotFoundError(f"GET {path}", status=404, message="not found")
        answer = json.dumps(self.stored).encode()
        self.meanwhile()
        return answer

    def taints(self) -> dict[int, str]:
        """Times of the taints by index of the GPU."""
        assert self.stored is not None
        devices = self.stored["spec"]["devices"]
        return {
            each["attributes"]["index"]["int"]: each["taints"][0]["timeAdded"]
            for each in devices
            if each.get("taints")
        }


class World:
    """The publisher of a node whose slices are known: there are none."""

    def __init__(self, clock: FakeClock) -> None:
        self.api = Api(clock)
        client: Any = self.api
        self.agent = Agent(client, Clock())
        self.agent.label(LABELS)
        self.agent.slices.on_replace(())

    async def publish(self, seconds: float) -> list[tuple[float, str]]:
        """Publish for a time; returns the writes of that time."""
        self.api.writes.clear()
        running = asyncio.create_task(self.agent.publisher.run())
        await asyncio.sleep(seconds)
        running.cancel()
        await asyncio.wait({running})
        return self.api.writes

    def effects(self) -> list[str]:
        """Effects of the taints, one of each tainted device."""
        assert self.api.stored is not None
        devices = self.api.stored["spec"]["devices"]
        return [taint["effect"] for each in devices for taint in each.get("taints", ())]

    def ill(self, *indexes: int) -> None:
        """These GPUs are unhealthy."""
        now = self.agent.state.inventory
        gpus = (msgspec.structs.replace(g, healthy=g.index not in indexes) for g in now.gpus)
        self.agent.state.equip(msgspec.structs.replace(now, gpus=tuple(gpus)))


@pytest.fixture
async def world(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> World:
    """Nothing is published yet."""
    monkeypatch.setattr("gpudeviceplugin.dra.publisher.time.monotonic", clock.now)
    return World(clock)


async def test_a_slice_of_another_name_is_deleted_once_and_ours_stays(world: World) -> None:
    """An earlier version named it otherwise; schedulers would count its GPUs a second time."""
    await world.publish(1)
    ours = dict(world.agent.slices.slices)
    world.agent.slices.on_update(made("n1-earlier", 9), b"")
    assert [what for _, what in await world.publish(20)] == [f"delete {PATH}/n1-earlier"]
    assert world.agent.slices.slices == ours


async def test_the_time_that_the_server_requests_is_waited(world: World) -> None:
    """A thousand nodes publish at once after an upgrade."""
    world.api.answers = [ThrottledError("POST", status=429, message="later", retry_after=7)]
    writes = await world.publish(20)
    assert [what for _, what in writes] == ["create", "create"]
    assert writes[1][0] - writes[0][0] >= 7


async def test_a_reply_that_cannot_be_read_is_a_failure_as_any_other(world: World) -> None:
    """The publisher goes on, and the slice is read once it conflicts."""
    world.api.answers = [b"<html>"]
    assert [what for _, what in await world.publish(20)] == ["create", "create"]


async def test_a_slice_that_is_deleted_while_it_is_read_is_created_again(world: World) -> None:
    """The watch reports the deletion before the answer of the read after a conflict arrives."""
    await world.publish(1)

    def delete() -> None:
        world.api.stored = None
        world.agent.slices.on_delete(made(NAME, 1))

    world.api.meanwhile = delete
    world.api.answers = [ConflictError("PATCH", status=409, message="it was changed")]
    world.ill(0)
    assert [what for _, what in await world.publish(20)] == ["update", "create"]


async def test_a_slice_is_compared_from_time_to_time_without_any_signal(world: World) -> None:
    """Something that no watch reported is put right."""
    await world.publish(1)
    running = asyncio.create_task(world.publish(LOOK_SECONDS + 5))
    await asyncio.sleep(1)
    world.agent.slices.slices.clear()
    assert [what for _, what in await running] == ["create"]


async def test_a_taint_keeps_its_time_while_others_come(world: World) -> None:
    """Tolerations for a number of seconds count from it; and nothing is written for it alone."""
    world.ill(0)
    await world.publish(30)
    first = world.api.taints()
    assert set(first) == {0}
    world.agent.state.outlook_changed.fire()
    assert await world.publish(30) == []
    world.ill(0, 1)
    await world.publish(30)
    second = world.api.taints()
    assert set(second) == {0, 1}
    assert second[0] == first[0] != second[1]


async def test_a_node_whose_driver_is_missing_after_a_restart_takes_no_new_claims(
    world: World,
) -> None:
    """The slice stays; its devices have a taint that evicts no pod, until the driver answers."""
    await world.publish(1)
    found = world.agent.state.inventory
    world.agent.state.equip(Inventory(gpus=(), unit=GIB))
    assert await world.publish(UNKNOWN_SECONDS - 1) == []
    assert [what for _, what in await world.publish(UNKNOWN_SECONDS + LOOK_SECONDS + 1)] == [
        "update"
    ]
    assert world.effects() == ["NoSchedule"] * 3
    world.agent.state.equip(found)
    assert [what for _, what in await world.publish(5)] == ["update"]
    assert world.effects() == []


async def test_a_taint_that_evicts_is_not_replaced_where_the_driver_is_missing(
    world: World,
) -> None:
    """The GPU was unhealthy before, and a toleration of its taint may name the effect."""
    await world.publish(1)
    (present,) = world.agent.slices.slices.values()
    first, *others = present.devices
    devices = (msgspec.structs.replace(first, taint=NO_EXECUTE), *others)
    tainted = without_new_claims(msgspec.structs.replace(present, devices=devices))
    assert [each.taint for each in tainted.devices] == [NO_EXECUTE, NO_SCHEDULE, NO_SCHEDULE]


@pytest.mark.parametrize("known", [True, False], ids=["driver", "no driver"])
async def test_an_undecided_api_at_the_start_leaves_the_slice(world: World, known: bool) -> None:
    """One request to the API server that fails must not take the GPUs from the scheduler."""
    await world.publish(1)
    if not known:
        world.agent.state.equip(Inventory(gpus=(), unit=GIB))
    world.agent.state.offer("", chosen=False)
    assert await world.publish(UNKNOWN_SECONDS - 1) == []
    await world.publish(UNKNOWN_SECONDS + LOOK_SECONDS + 1)
    assert world.effects() == ["NoSchedule"] * 3


async def test_a_node_that_offers_devices_has_no_slice_though_its_driver_is_missing(
    world: World,
) -> None:
    """The label was changed while the plugin was away; claims for it could not be prepared."""
    await world.publish(1)
    world.agent.state.equip(Inventory(gpus=(), unit=GIB))
    world.agent.state.offer(API_DEVICES)
    assert [what for _, what in await world.publish(5)] == [f"delete {PATH}/{NAME}"]


async def test_a_node_with_shares_of_both_kinds_has_no_slice(world: World) -> None:
    """It offers neither, and that is known."""
    await world.publish(1)
    world.agent.state.offer("")
    assert [what for _, what in await world.publish(5)] == [f"delete {PATH}/{NAME}"]


def made(name: str, generation: int) -> ResourceSlice:
    """A slice of this node."""
    return ResourceSlice(name, CLAIM_DRIVER, "n1", "n1", (), generation=generation)


def test_the_generation_of_a_pool_never_falls() -> None:
    """Whatever is read in which order: a smaller one would be ignored by schedulers."""
    watch = SliceWatch(Signal())
    watch.on_replace([made("a", 7), made("b", 3)])
    assert watch.generation == 7
    watch.on_update(made("a", 2), b"")
    watch.on_replace(())
    watch.put_answer(made("a", 9), watch.removals - 1)
    assert (watch.generation, watch.slices) == (9, {})


def test_a_list_replaces_what_was_known() -> None:
    """And an answer that was on its way meanwhile may be of a slice that went."""
    watch = SliceWatch(Signal())
    watch.on_replace([made("a", 1)])
    before = watch.removals
    watch.on_replace([made("b", 1)])
    assert set(watch.slices) == {"b"}
    watch.put_answer(made("a", 2), before)
    assert set(watch.slices) == {"b"}
    watch.put_answer(made("a", 2), watch.removals)
    assert set(watch.slices) == {"a", "b"}


def test_every_change_of_slices_is_a_reason_to_publish() -> None:
    """Also the first list, and the end of a slice."""
    changed = Signal()
    watch = SliceWatch(changed)
    for number, change in enumerate(
        (
            lambda: watch.on_replace(()),
            lambda: watch.on_update(made("a", 1), b""),
            lambda: watch.on_delete(made("a", 1)),
        ),
        start=1,
    ):
        change()
        assert changed.count == number


def test_an_unhealthy_gpu_among_many_is_left_out_of_the_slice() -> None:
    """The API server accepts no taint in a slice of more than 64 devices, and would refuse it."""
    inventory = inventory_of(NodeHardware("580.1", (t4(0),)), GIB)
    (one,) = inventory.gpus
    gpus = [
        msgspec.structs.replace(one, index=GpuIndex(n), uuid=GpuUuid(f"GPU-{n}"), healthy=n != 3)
        for n in range(MAX_TAINTED + 1)
    ]
    many = slice_of(msgspec.structs.replace(inventory, gpus=tuple(gpus)))
    few = slice_of(msgspec.structs.replace(inventory, gpus=tuple(gpus[1:])))
    assert many is not None
    assert few is not None
    assert (len(many.devices), {each.index for each in many.devices} & {3}) == (MAX_TAINTED, set())
    assert [each.index for each in few.devices if each.taint] == [3]
    assert encode_slice(many)
    assert encode_slice(few)


def test_many_gpus_of_which_nothing_is_known_take_no_new_claims() -> None:
    """The driver of a node with more than 64 devices is missing: the slice has none meanwhile."""
    device = SliceDevice("d", index=0, uuid="d", memory_mib=2, step_mib=1)
    names = [msgspec.structs.replace(device, name=f"d{n}") for n in range(MAX_TAINTED + 1)]
    many = msgspec.structs.replace(made("a", 1), devices=tuple(names))
    assert without_new_claims(many).devices == ()
    assert encode_slice(without_new_claims(many))


def test_a_gpu_behind_mps_takes_as_many_shares_as_its_daemon_has_clients() -> None:
    """Others take any number."""
    inventory = inventory_of(NodeHardware("580.1", (t4(0), t4(1))), GIB)
    first, second = inventory.gpus
    gpus = (msgspec.structs.replace(first, isolation=IsolationMode.MPS), second)
    found = slice_of(msgspec.structs.replace(inventory, gpus=gpus))
    assert found is not None
    limits = {device.index: device.max_shares for device in found.devices}
    assert limits[0] > 0
    assert limits[1] == 0


def test_a_gpu_that_is_smaller_than_a_unit_is_no_device() -> None:
    """A MIG instance can be; its capacity would be 0."""
    inventory = inventory_of(NodeHardware("580.1", (t4(0), t4(1))), GIB)
    first, second = inventory.gpus
    tiny = msgspec.structs.replace(first, units=0, memory_mib=512)
    found = slice_of(msgspec.structs.replace(inventory, gpus=(tiny, second)))
    assert found is not None
    assert [device.index for device in found.devices] == [1]
    assert slice_of(msgspec.structs.replace(inventory, gpus=(tiny,))) is None


def slice_of(inventory: Inventory) -> ResourceSlice | None:
    """The slice of a node without any claims."""
    node = Node(NodeName("n1"), labels=LABELS, uid="uid-n1")
    return wanted_slice(node, inventory, (), policy="binpack", names=DEFAULT_NAMES)
