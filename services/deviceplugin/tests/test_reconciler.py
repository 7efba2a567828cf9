"""Annotations are held against kubelet's account, look by look."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from fakedriver import t4
from msgspec.structs import replace

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.node.grant import GrantPolicy
from gpucore.units import GIB, NodeName, PodUid
from gpucore.wire.names import DEFAULT_NAMES as NAMES
from gpucore.wire.pod.spec import Container, Pod
from gpudeviceplugin.gpus.devices import NodeHardware
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.kubelet.pod_resources import PodResourcesError
from gpudeviceplugin.kubelet.reconciler import SETTLE_SECONDS, Reconciler
from gpudeviceplugin.state import NodeState
from gpukube.errors import ConflictError, UnreachableError

INVENTORY = inventory_of(NodeHardware("535.1", (t4(0), t4(1))), GIB)
POD = Pod(
    PodUid("uid-p"),
    "default",
    "p",
    NodeName("n1"),
    phase="Running",
    annotations={NAMES.mem_idx: "0", NAMES.mem_pod: "3", NAMES.mem_assume_time: "17"},
    containers=(Container("c0", {"aliyun.com/gpu-mem": "3"}),),
)


class World:
    """kubelet, API server and events in one; it records what was done to it, in order."""

    def __init__(self) -> None:
        self.state = NodeState(GrantPolicy())
        self.state.equip(INVENTORY)
        self.state.on_replace((POD,))
        self.held: list[Held] = [self.rows(1)]
        self.effects: list[Any] = []
        self.kinds: list[str] = []
        self.error: Exception | None = None
        self.reconciler = Reconciler(self.state, self, self, self, interval_seconds=30)  # type: ignore[arg-type]

    def rows(self, gpu: int) -> Held:
        """The pod has three units of a GPU."""
        ids = self.state.matcher.tables[Resource.MEM].ids[gpu][:3]  # type: ignore[index]
        return Held("default", "p", {"c0": {Resource.MEM: ids}})

    async def list(self) -> list[Held]:
        """As kubelet's PodResources."""
        self.effects.append("list")
        if isinstance(self.error, PodResourcesError):
            raise self.error
        return self.held

    async def patch(self, path: str, patch: dict[str, Any]) -> None:
        """As the API server's patch."""
        self.effects.append((path, patch["metadata"]))
        if self.error is not None:
            raise self.error

    async def event(self, subject: Any, reason: str, message: str, *, kind: str = "Normal") -> None:
        """As an event."""
        self.effects.append((subject.name, reason, message))
        self.kinds.append(kind)

    async def look(self) -> bool:
        """One look."""
        return await self.reconciler.look()

    def reasons(self) -> Sequence[str]:
        """Of the events."""
        return [effect[1] for effect in self.effects if len(effect) == 3]


async def test_a_correction_is_bound_to_the_pods_uid_and_the_event_follows_it() -> None:
    """A pod of the same name that came meanwhile must not get another one's GPU."""
    world = World()
    assert not await world.look()  # something was found: look again soon
    listed, (path, metadata), event = world.effects
    assert listed == "list"
    assert path == "/api/v1/namespaces/default/pods/p"
    assert metadata["uid"] == "uid-p"
    assert metadata["annotations"][NAMES.mem_idx] == "1"
    assert event[:2] == ("p", "GpuShareCorrected")


@pytest.mark.parametrize(
    "error",
    [
        ConflictError("patch", status=409, message="Precondition failed: UID"),
        UnreachableError("no answer"),
    ],
)
async def test_a_patch_that_fails_makes_no_event_and_is_made_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a moment."""
    now = [1000.0]
    monkeypatch.setattr("gpudeviceplugin.kubelet.reconciler.time.monotonic", lambda: now[0])
    world = World()
    world.error = error
    assert await world.look()
    assert [type(each) for each in world.effects] == [str, tuple]
    world.error = None
    now[0] += SETTLE_SECONDS
    await world.look()
    assert [each for each in world.effects[2:] if each != "list"][1][1] == "GpuShareCorrected"


async def test_a_pod_whose_plan_was_kept_is_confirmed_without_an_event() -> None:
    """ASSIGNED becomes true, and that is all."""
    world = World()
    world.held = [world.rows(0)]
    await world.look()
    _, (_, metadata) = world.effects
    assert metadata["annotations"][NAMES.mem_assigned] == "true"
    assert NAMES.mem_idx not in metadata["annotations"]


async def test_the_account_is_known_once_kubelet_has_reported_it() -> None:
    """Until then no answer is accepted, and holders stay as they were."""
    world = World()
    world.error = PodResourcesError("no such socket")
    assert await world.look()
    assert not world.reconciler.synced.is_set()
    assert world.state.matcher.gpus_held("default", "p") == frozenset()
    world.error = None
    await world.look()
    assert world.reconciler.synced.is_set()
    assert world.state.matcher.gpus_held("default", "p") == {1}


async def test_a_grant_that_kubelet_has_yet_to_note_is_requested_again() -> None:
    """Its silence about a new grant takes nothing back."""
    world = World()
    world.state.on_replace((replace(POD, phase="Pending"),))
    ids = world.rows(1).containers["c0"][Resource.MEM]
    world.state.grant(Resource.MEM, ids)
    world.held = []
    assert not await world.look()
    assert world.state.matcher.gpus_held("default", "p") == {1}


async def test_a_look_follows_every_grant_at_once() -> None:
    """The timer is for what was missed; a grant does not wait for it."""
    world = World()
    world.held = []
    looking = asyncio.create_task(world.reconciler.run())
    async with asyncio.timeout(60):
        while len(world.effects) < 1:  # noqa: ASYNC110 - a fake without signals
            await asyncio.sleep(0.01)
        world.state.grant_made.fire()
        while len(world.effects) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    looking.cancel()


WITHOUT = Held("default", "p", {})
CONFIRMED = replace(POD, annotations={**POD.annotations, NAMES.mem_assigned: "true"})


async def test_a_pod_that_runs_without_its_share_is_reported_once() -> None:
    """A kubelet without its checkpoint starts bound pods before the plugin has registered."""
    world = World()
    world.held = [WITHOUT]
    await world.look()
    assert world.reasons() == []  # it may be a pod that ends
    await world.look()
    await world.look()
    assert world.reasons() == ["GpuShareMissing"]
    assert world.kinds == ["Warning"]


async def test_a_pod_that_has_its_share_again_is_not_reported() -> None:
    """Two comparisons in a row have to find it without."""
    world = World()
    for held in (WITHOUT, world.rows(0), WITHOUT):
        world.held = [held]
        await world.look()
    assert "GpuShareMissing" not in world.reasons()


@pytest.mark.parametrize(
    "pod",
    [CONFIRMED, replace(POD, phase="Pending"), replace(POD, containers=(Container("c0", {}),))],
    ids=["confirmed", "not running", "no request"],
)
async def test_a_pod_that_lacks_nothing_is_not_reported(pod: Pod) -> None:
    """What a confirmed pod had stays reserved; one that waits has no devices yet."""
    world = World()
    world.state.on_replace((pod,))
    world.held = [WITHOUT]
    for _ in range(3):
        await world.look()
    assert world.reasons() == []


async def test_nothing_is_reported_before_kubelet_has_listed_all_pods() -> None:
    """Right after a restart of kubelet its list is not complete."""
    world = World()
    other = replace(CONFIRMED, uid=PodUid("uid-q"), name="q")
    world.state.on_replace((POD, other))
    world.state.kubelet_restarted()
    world.held = [WITHOUT]
    for _ in range(3):
        await world.look()
    assert world.reasons() == []
    world.held = [WITHOUT, replace(world.rows(0), name="q")]
    for _ in range(3):
        await world.look()
    assert world.reasons() == ["GpuShareMissing"]
