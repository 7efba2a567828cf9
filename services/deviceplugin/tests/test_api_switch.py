"""Which API a node offers, as the agent finds out and follows it."""

import asyncio
from typing import Any

import msgspec
import pytest
from claimholding import prepared

from gpucore.model import Gpu, Inventory
from gpucore.node.grant import GrantPolicy
from gpucore.units import GIB, GpuIndex, GpuUuid, NodeName
from gpucore.wire.node.spec import Node
from gpudeviceplugin.cluster.node_watch import NodeWatch
from gpudeviceplugin.dra.switch import (
    LOOK_SECONDS,
    PROBE_SECONDS,
    RETRY_SECONDS,
    SETTLED_SECONDS,
    ApiSwitch,
)
from gpudeviceplugin.state import NodeState
from gpukube.errors import ForbiddenError, NotFoundError
from gpukube.testing.clock import FakeClock


class World:
    """A node, and an API server that answers dry runs.

    Attributes:
        drops: fields of devices that the API server drops, because a feature is off.
        failure: every dry run gets it.
    """

    def __init__(self, *, default: str = "auto", enabled: bool = True) -> None:
        self.state = NodeState(GrantPolicy())
        self.state.api = ""
        self.watch = NodeWatch(self.state.outlook_changed)
        self.requested: list[dict[str, Any]] = []
        self.refused: list[str] = []
        self.drops: tuple[str, ...] = ()
        self.failure: Exception | None = None
        self.switch = ApiSwitch(
            self.state,
            self.watch,
            self,
            default=default,
            enabled=enabled,
            on_refused=self.refused.append,
        )

    async def dry_run(self, path: str, body: Any) -> bytes:
        """As the API server's."""
        assert path.endswith("/resourceslices")
        self.requested.append(body)
        if self.failure is not None:
            raise self.failure
        stored = msgspec.json.decode(msgspec.json.encode(body))
        for device in stored["spec"]["devices"]:
            for field in self.drops:
                device.pop(field)
        return msgspec.json.encode(stored)

    def label(self, **labels: str) -> None:
        """The node has these labels."""
        found = {key.replace("_", "/"): text for key, text in labels.items()}
        self.watch.on_update(Node(NodeName("n1"), labels=found), b"")

    async def api(self) -> str:
        """What is offered once the API server was queried, where that is needed."""
        if self.switch._needed():
            await self.switch._ask()
        self.switch.decide()
        return self.state.api


async def test_auto_queries_the_api_server_with_a_slice_of_this_node() -> None:
    """By a dry run, so that nothing is published; an admission policy sees the node's own name."""
    world = World()
    world.state.certain.set()
    world.label()
    assert await world.api() == "claims"
    (requested,) = world.requested
    assert (requested["spec"]["nodeName"], requested["spec"]["driver"]) == ("n1", "gpu.gpushare.io")


@pytest.mark.parametrize("field", ["allowMultipleAllocations", "capacity"])
async def test_a_feature_that_is_off_shows_in_what_would_be_stored(field: str) -> None:
    """Then auto is devices, and the request for claims is refused with the reason."""
    world = World()
    world.drops = (field,)
    world.label()
    assert await world.api() == "devices"
    assert world.refused == []
    world.label(gpushare_api="claims")
    assert await world.api() == "devices"
    assert "Kubernetes 1.36" in world.refused[0]


async def test_a_cluster_without_the_api_has_no_claims() -> None:
    """Kubernetes before 1.34 does not have version v1."""
    world = World()
    world.failure = NotFoundError("POST", status=404, message="no such resource")
    world.label()
    assert await world.api() == "devices"


async def test_without_an_answer_nothing_is_offered_but_what_runs() -> None:
    """Missing permissions are no proof of anything; the next question may be answered."""
    world = World()
    world.failure = ForbiddenError("POST", status=403, message="not yet")
    world.label()
    assert await world.api() == ""
    assert not world.state.api_chosen
    world.failure = None
    world.state.certain.set()
    assert await world.api() == "claims"
    assert world.state.api_chosen


async def test_devices_need_no_question() -> None:
    """By the setting, or by the label; where claims are disabled neither."""
    world = World(default="devices")
    world.label()
    assert await world.api() == "devices"
    world.label(gpushare_api="devices")
    assert await world.api() == "devices"
    assert world.requested == []


async def test_a_refusal_is_reported_once() -> None:
    """And again only where the sentence is another one."""
    world = World(default="devices", enabled=False)
    world.label(gpushare_api="claims")
    for _ in range(3):
        world.switch.decide()
    assert len(world.refused) == 1
    world.label(gpushare_api="nonsense")
    world.switch.decide()
    assert len(world.refused) == 2
    world.label()
    world.switch.decide()
    assert world.switch.why == ""


async def test_a_node_with_shares_of_both_kinds_is_known_to_offer_neither(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That is a decision: the slice of the node is deleted, so no new claim gets its GPUs."""
    world = World(default="claims")
    gpu = Gpu(GpuIndex(0), GpuUuid("GPU-0"), 15)
    world.state.equip(Inventory((gpu,), GIB))
    world.state.claims.put(prepared("c", gpu, 2))
    monkeypatch.setattr(world.state, "granted", lambda _: True)
    world.state.certain.set()
    world.label()
    assert await world.api() == ""
    assert "delete one kind" in world.switch.why
    assert world.state.api_chosen


async def test_a_known_holder_of_devices_keeps_them_before_all_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A restarted agent need not wait for kubelet's list to offer what its pods hold."""
    world = World(default="claims")
    world.state.equip(Inventory((Gpu(GpuIndex(0), GpuUuid("GPU-0"), 15),), GIB))
    monkeypatch.setattr(world.state, "granted", lambda _: True)
    world.label()
    assert await world.api() == "devices"
    assert "drain the node to offer claims" in world.switch.why


async def test_nothing_is_decided_without_the_node() -> None:
    """Its label is not known yet."""
    world = World(default="devices")
    world.switch.decide()
    assert world.state.api == ""


async def test_claims_wait_until_it_is_known_who_holds_devices() -> None:
    """A restarted agent knows no holder before kubelet has listed them; claims are kept."""
    world = World()
    world.label(gpushare_api="claims")
    assert await world.api() == ""
    world.state.certain.set()
    assert await world.api() == "claims"


async def run_for(world: World, seconds: float) -> None:
    """The switch follows for so long."""
    running = asyncio.create_task(world.switch.run())
    await asyncio.sleep(seconds)
    running.cancel()
    await asyncio.wait({running})


async def test_the_answer_is_followed_at_once(clock: FakeClock) -> None:
    """Not at the next look."""
    world, began = World(), clock.seconds
    times: list[float] = []
    world.state.certain.set()
    world.label()

    async def note() -> None:
        while world.state.api != "claims":
            await world.state.outlook_changed.beyond(world.state.outlook_changed.count)
        times.append(clock.seconds - began)

    noting = asyncio.create_task(note())
    await run_for(world, 10)
    await noting
    assert times == [0]


async def test_an_api_server_without_an_answer_is_asked_again_soon(clock: FakeClock) -> None:
    """And one that has no consumable capacity after minutes: it may be upgraded."""
    world = World()
    world.state.certain.set()
    world.label()
    world.failure = ForbiddenError("POST", status=403, message="not yet")
    await run_for(world, 3.5 * RETRY_SECONDS)
    assert len(world.requested) == 4
    world.failure, world.drops = None, ("capacity",)
    world.requested.clear()
    await run_for(world, 2.5 * PROBE_SECONDS)
    assert len(world.requested) == 3
    world.drops = ()
    await run_for(world, 1)
    world.requested.clear()
    await run_for(world, 3 * PROBE_SECONDS)
    assert (world.state.api, world.requested) == ("claims", [])


async def test_a_label_that_needs_claims_asks_at_once(clock: FakeClock) -> None:
    """Nothing was asked while the setting was enough."""
    world = World(default="devices")
    world.state.certain.set()
    world.label()
    running = asyncio.create_task(world.switch.run())
    await asyncio.sleep(PROBE_SECONDS / 2)
    assert world.requested == []
    world.label(gpushare_api="claims")
    await asyncio.sleep(1)
    assert len(world.requested) == 1
    assert world.state.api == "claims"
    running.cancel()
    await asyncio.wait({running})


async def test_the_end_of_the_last_share_is_found_without_a_signal(clock: FakeClock) -> None:
    """Nothing reports it; the node changes within two seconds."""
    world = World(default="devices")
    world.state.certain.set()
    gpu = Gpu(GpuIndex(0), GpuUuid("GPU-0"), 15)
    world.state.claims.put(prepared("c", gpu, 2))
    world.label()
    running = asyncio.create_task(world.switch.run())
    await asyncio.sleep(10.5 * LOOK_SECONDS)
    assert world.state.api == "claims"
    world.state.claims.drop("uid-c")
    await asyncio.sleep(LOOK_SECONDS)
    assert world.state.api == "devices"
    running.cancel()
    await asyncio.wait({running})


@pytest.mark.parametrize("api", ["devices", "claims"])
async def test_a_node_that_offers_what_is_requested_is_left_alone(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    """It is compared once a minute, and at once when its label changes."""
    world, decisions = World(default=api), list[float]()
    decide = world.switch.decide

    def counted() -> None:
        decisions.append(clock.seconds)
        decide()

    monkeypatch.setattr(world.switch, "decide", counted)
    world.state.certain.set()
    world.label()
    running = asyncio.create_task(world.switch.run())
    await asyncio.sleep(SETTLED_SECONDS / 2)
    assert world.state.api == api
    decisions.clear()
    await asyncio.sleep(5 * SETTLED_SECONDS)
    assert len(decisions) == 5
    world.label(gpushare_api="claims" if api == "devices" else "devices")
    await asyncio.sleep(1)
    assert world.state.api != api
    running.cancel()
    await asyncio.wait({running})


async def test_devices_beside_claims_are_found_soon_after_a_restart(clock: FakeClock) -> None:
    """Kubelet lists the holders of devices when the claims of the node are known already."""
    world = World(default="claims")
    world.state.claims.put(prepared("c", Gpu(GpuIndex(0), GpuUuid("GPU-0"), 15), 2))
    world.label()
    running = asyncio.create_task(world.switch.run())
    await asyncio.sleep(5.5 * LOOK_SECONDS)
    assert world.state.api == "claims"
    world.state.claims.drop("uid-c")
    await asyncio.sleep(LOOK_SECONDS)
    assert world.state.api == ""
    running.cancel()
    await asyncio.wait({running})


def test_questions_keep_their_distance() -> None:
    """A thousand nodes send requests to one API server."""
    assert PROBE_SECONDS >= 60
    assert RETRY_SECONDS >= 1
