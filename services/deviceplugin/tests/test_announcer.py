"""Events about a GPU, and the ConfigMap of unhealthy GPUs, request by request."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from claimholding import prepared
from fakedriver import t4
from msgspec.structs import replace
from structlog.testing import capture_logs

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.node.grant import GrantPolicy
from gpucore.node.health.records import HealthStatus
from gpucore.units import GIB, NodeName, PodUid
from gpucore.wire.pod.spec import Container, Pod
from gpudeviceplugin.cluster.events import NORMAL, WARNING, Subject
from gpudeviceplugin.cluster.health_events import (
    AGAIN_SECONDS,
    LOOK_SECONDS,
    HealthEventRecorder,
    NodeEvent,
)
from gpudeviceplugin.gpus.devices import NodeHardware
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.state import NodeState
from gpukube.errors import ForbiddenError, KubeError, NotFoundError, UnreachableError
from gpukube.testing.clock import FakeClock

INVENTORY = inventory_of(NodeHardware("535.1", (t4(0), t4(1))), GIB)
FIRST, SECOND = (gpu.uuid for gpu in INVENTORY.gpus)
COLLECTION = "/api/v1/namespaces/kube-system/configmaps"
MAP = f"{COLLECTION}/unhealthy-gpu-n1"
OURS = {"app.kubernetes.io/managed-by": "gpushare-device-plugin"}
NODE = Subject("Node", "n1", uid="n1")


def pod(name: str, namespace: str = "team", phase: str = "Running") -> Pod:
    containers = (Container("c0", {"aliyun.com/gpu-mem": "2"}),)
    uid = PodUid(f"uid-{namespace}-{name}")
    return Pod(uid, namespace, name, NodeName("n1"), phase=phase, containers=containers)


class World:
    """API server and event recorder in one: one ConfigMap, and all requests in order."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.began = clock.seconds
        self.state = NodeState(GrantPolicy())
        self.state.equip(INVENTORY)
        self.map: dict[str, Any] | None = None
        self.error: KubeError | None = None
        self.requests: list[tuple[float, str, str]] = []
        self.events: list[tuple[Subject, str, str, str]] = []
        self.node_uid = "first"
        api: Any = self
        self.announcer = HealthEventRecorder(self.state, api, api, "n1", lambda: self.node_uid)

    async def event(self, subject: Subject, reason: str, message: str, *, kind: str) -> None:
        """As the event recorder's."""
        self.events.append((subject, reason, message, kind))

    def _request(self, method: str, path: str) -> None:
        self.requests.append((round(self.clock.seconds - self.began, 3), method, path))
        if self.error is not None:
            raise self.error

    async def get(self, path: str) -> bytes:
        """As the API server's."""
        self._request("GET", path)
        if self.map is None:
            raise NotFoundError("get", status=404, message="not found")
        return json.dumps(self.map).encode()

    async def post(self, path: str, body: dict[str, Any]) -> None:
        """As the API server's."""
        self._request("POST", path)
        self.map = body

    async def patch(self, path: str, body: dict[str, Any]) -> None:
        """As the API server's."""
        self._request("PATCH", path)
        assert self.map is not None
        metadata = self.map["metadata"] | body.get("metadata", {})
        data = self.map.get("data", {}) | body["data"]
        self.map = self.map | {"metadata": metadata, "data": data}

    async def delete(self, path: str) -> None:
        """As the API server's."""
        self._request("DELETE", path)
        self.map = None

    def healthy(self, *flags: bool) -> None:
        """The health of each GPU."""
        pairs = zip(INVENTORY.gpus, flags, strict=True)
        gpus = tuple(replace(gpu, healthy=flag) for gpu, flag in pairs)
        self.state.equip(replace(INVENTORY, gpus=gpus))

    async def look(self) -> list[tuple[str, str]]:
        """One look at the ConfigMap; returns its requests."""
        self.requests.clear()
        await self.announcer._write_map()
        return [(method, path) for _, method, path in self.requests]


@pytest.fixture
async def world(clock: FakeClock) -> World:
    """A node with two GPUs; pod ``a`` has a share of GPU 0 and pod ``b`` one of GPU 1."""
    made = World(clock)
    made.state.on_replace((pod("a"), pod("b"), pod("a", "other")))
    ids = made.state.matcher.tables[Resource.MEM].ids
    held = [
        Held("team", name, {"c0": {Resource.MEM: ids[index][:2]}})  # type: ignore[index]
        for index, name in enumerate("ab")
    ]
    made.state.sync_from_kubelet(held, requested_at=0)
    return made


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    """What was logged."""
    with capture_logs() as found:
        yield found


async def events_of(world: World) -> list[tuple[str, str, str, str]]:
    """Write the events of all notices; name, reason, message and kind of each."""
    telling = asyncio.create_task(world.announcer.tell_pods())
    await asyncio.sleep(1)
    telling.cancel()
    await asyncio.wait({telling})
    return [(subject.name, *rest) for subject, *rest in world.events]  # type: ignore[misc]


async def test_a_verdict_is_reported_to_the_node_and_to_the_pods_on_the_gpu(world: World) -> None:
    """To no other pod, one of the same name in another namespace included."""
    world.announcer.announce([HealthStatus(FIRST, healthy=False, why="XID 79")])
    message = f"GPU 0 ({FIRST}) is unhealthy: XID 79"
    assert await events_of(world) == [
        ("n1", "GpuUnhealthy", message, WARNING),
        ("a", "GpuUnhealthy", message, WARNING),
    ]
    assert [subject for subject, *_ in world.events] == [
        NODE,
        Subject("Pod", "a", "team", "uid-team-a"),
    ]


async def test_a_return_is_reported_as_good_news(world: World) -> None:
    """Verdicts are delivered in their order."""
    world.announcer.announce(
        [
            HealthStatus(SECOND, healthy=False, why="XID 79"),
            HealthStatus(SECOND, healthy=True, why="3 successful probes after XID 79"),
        ]
    )
    found = await events_of(world)
    assert [(name, reason, kind) for name, reason, _, kind in found] == [
        ("n1", "GpuUnhealthy", WARNING),
        ("b", "GpuUnhealthy", WARNING),
        ("n1", "GpuRecovered", NORMAL),
        ("b", "GpuRecovered", NORMAL),
    ]
    assert found[2][2] == f"GPU 1 ({SECOND}) is healthy again: 3 successful probes after XID 79"


async def test_a_notice_about_no_gpu_is_the_nodes_alone(world: World) -> None:
    """Its words are the message."""
    world.announcer.notify(NodeEvent("GpuIsolation", "the label is wrong"))
    world.announcer.notify(NodeEvent("GpuIsolation", "of a GPU that left", uuid="GPU-gone"))
    assert await events_of(world) == [("n1", "GpuIsolation", "the label is wrong", WARNING)]


async def test_pods_that_have_ended_get_no_events(world: World) -> None:
    """Kubelet still lists what they had."""
    world.state.pods[PodUid("uid-team-a")] = pod("a", phase="Succeeded")
    world.announcer.announce([HealthStatus(FIRST, healthy=False, why="XID 79")])
    assert [name for name, *_ in await events_of(world)] == ["n1"]


async def test_pods_with_the_exclusive_gpu_get_the_events(world: World) -> None:
    """They hold the GPU and no memory of it."""
    table = world.state.matcher.tables[Resource.GPU]
    row = Held("team", "b", {"c0": {Resource.GPU: tuple(table.ids[INVENTORY.gpus[0].index])}})
    turn = world.state.matcher.holdings.turn
    world.state.sync_from_kubelet([row], requested_at=turn)
    world.announcer.announce([HealthStatus(FIRST, healthy=False, why="XID 79")])
    assert [name for name, *_ in await events_of(world)] == ["n1", "b"]


async def test_pods_that_use_the_gpu_by_a_claim_get_the_events_too(world: World) -> None:
    """Those of another claim, and those that have ended, do not."""
    for name, gpu, phase in (("c", 0, "Running"), ("d", 1, "Running"), ("e", 0, "Failed")):
        world.state.claims.put(prepared(f"claim-{name}", INVENTORY.gpus[gpu], 2))
        world.state.on_update(replace(pod(name, phase=phase), claims=(f"claim-{name}",)), b"{}")
    world.announcer.announce([HealthStatus(FIRST, healthy=False, why="XID 79")])
    assert [name for name, *_ in await events_of(world)] == ["n1", "a", "c"]


async def test_unhealthy_gpus_are_listed_in_a_config_map_of_ours(world: World) -> None:
    """It is created, changed and removed; what is as it should be is not written."""
    assert await world.look() == [("GET", MAP)]
    world.healthy(False, True)
    assert await world.look() == [("GET", MAP), ("POST", COLLECTION)]
    assert world.map == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "unhealthy-gpu-n1",
            "namespace": "kube-system",
            "labels": OURS,
            "ownerReferences": owners("first"),
        },
        "data": {"gpus": "0"},
    }
    assert await world.look() == [("GET", MAP)]
    world.healthy(False, False)
    assert await world.look() == [("GET", MAP), ("PATCH", MAP)]
    assert world.map["data"] == {"gpus": "0,1"}
    world.healthy(True, True)
    assert await world.look() == [("GET", MAP), ("DELETE", MAP)]
    assert world.map is None


def owners(uid: str) -> list[dict[str, str]]:
    """The Node with this UID."""
    return [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid}]


async def test_the_config_map_is_deleted_with_its_node(world: World) -> None:
    """The Node owns it, and so does one that is created again; one of before gets its owner."""
    world.healthy(False, True)
    await world.look()
    assert world.map is not None
    del world.map["metadata"]["ownerReferences"]
    for uid in ("first", "again"):
        world.node_uid = uid
        assert await world.look() == [("GET", MAP), ("PATCH", MAP)]
        assert world.map["metadata"]["ownerReferences"] == owners(uid)
        assert world.map["metadata"]["labels"] == OURS
        assert await world.look() == [("GET", MAP)]


async def test_no_config_map_is_created_without_a_node(world: World) -> None:
    """Nobody would delete it; it is created soon after the Node."""
    world.node_uid = ""
    world.healthy(False, True)
    keeping = asyncio.create_task(world.announcer.keep_map())
    await asyncio.sleep(1)
    assert world.map is None
    world.node_uid = "again"
    await asyncio.sleep(AGAIN_SECONDS)
    keeping.cancel()
    await asyncio.wait({keeping})
    assert world.map is not None
    assert world.map["metadata"]["ownerReferences"] == owners("again")


async def test_a_config_map_of_a_deleted_node_is_not_written_again(world: World) -> None:
    """The owner of before stays in it, and Kubernetes deletes it with that owner."""
    world.healthy(False, True)
    await world.look()
    world.node_uid = ""
    assert await world.look() == [("GET", MAP)]


@pytest.mark.parametrize("flags", [(False, True), (True, True)])
@pytest.mark.parametrize("labels", [{}, {"labels": {"app.kubernetes.io/managed-by": "helm"}}])
async def test_a_config_map_of_somebody_else_is_left_alone(
    world: World, flags: tuple[bool, bool], labels: dict[str, Any]
) -> None:
    """It is neither changed nor removed."""
    world.map = {"metadata": labels, "data": {"gpus": "1"}}
    world.healthy(*flags)
    assert await world.look() == [("GET", MAP)]


async def test_the_config_map_is_looked_at_after_changes_and_every_five_minutes(
    world: World, logs: list[Any]
) -> None:
    """After an error sooner; the ConfigMap may have been removed."""
    keeping = asyncio.create_task(world.announcer.keep_map())
    await asyncio.sleep(10)
    world.healthy(False, True)
    await asyncio.sleep(10)
    world.error = UnreachableError("no answer")
    world.healthy(True, True)
    await asyncio.sleep(AGAIN_SECONDS + 1)
    world.error = None
    await asyncio.sleep(LOOK_SECONDS + AGAIN_SECONDS)
    keeping.cancel()
    await asyncio.wait({keeping})
    looks = [at for at, method, _ in world.requests if method == "GET"]
    assert looks == [0, 10, 20, 25, 30, 330]
    assert world.map is None
    lines = [(line["event"], line["log_level"], line["why"]) for line in logs]
    assert lines == [("cannot write the list of unhealthy GPUs", "warning", "no answer")] * 2


async def test_a_forbidden_write_is_reported_once_and_tried_again_after_five_minutes(
    world: World, logs: list[Any]
) -> None:
    """A missing right fills no log and causes few requests; a later one is reported again."""
    keeping = asyncio.create_task(world.announcer.keep_map())
    for error in (True, False, True):
        refused = ForbiddenError("post", status=403, message="forbidden")
        world.error = refused if error else None
        world.healthy(not error, True)
        await asyncio.sleep(LOOK_SECONDS + AGAIN_SECONDS)
    keeping.cancel()
    await asyncio.wait({keeping})
    looks = [at for at, method, _ in world.requests if method == "GET"]
    assert looks == [0, 300, 305, 605, 610, 910]
    assert [(line["log_level"], line["why"]) for line in logs] == [
        ("warning", "post: 403 forbidden")
    ] * 2


async def test_a_node_without_gpus_lists_nothing(clock: FakeClock) -> None:
    """Nothing is known before the driver has answered: what there is stays."""
    world = World(clock)
    world.state.equip(replace(INVENTORY, gpus=()))
    metadata = {"labels": OURS, "ownerReferences": owners("first")}
    world.map = {"metadata": metadata, "data": {"gpus": "1"}}
    keeping = asyncio.create_task(world.announcer.keep_map())
    await asyncio.sleep(1)
    assert world.requests == []
    world.healthy(True, False)
    await asyncio.sleep(1)
    assert [method for _, method, _ in world.requests] == ["GET"]
    keeping.cancel()
    await asyncio.wait({keeping})
