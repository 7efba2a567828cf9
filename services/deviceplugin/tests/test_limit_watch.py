"""Pods without the limit of their share: which are found, reported and counted, round by round."""

import pytest
from fakedriver import t4
from msgspec.structs import replace
from prometheus_client import REGISTRY

from gpucore.model import Gpu, IsolationMode
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.node.grant import GrantPolicy
from gpucore.node.isolation.overuse import AGAIN_SECONDS
from gpucore.units import GIB, NodeName, PodUid
from gpucore.wire.names import ENV_MPS_MEMORY
from gpucore.wire.pod.spec import Container, Pod
from gpudeviceplugin.cluster.events import WARNING, Subject
from gpudeviceplugin.gpus.devices import NodeHardware, Process, Usage
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.isolation.limits import ENVIRONMENT, OVERRIDDEN, PROCESS, LimitWatch
from gpudeviceplugin.state import NodeState

INVENTORY = inventory_of(NodeHardware("535.1", (t4(0), t4(1))), GIB)


def pod(name: str, *variables: str) -> Pod:
    """A pod with a share whose container sets variables."""
    container = Container("c0", {"aliyun.com/gpu-mem": "2"}, env=variables)
    return Pod(
        PodUid(f"uid-{name}"),
        "team",
        name,
        NodeName("n1"),
        phase="Running",
        containers=(container,),
    )


class World:
    """A node whose GPUs are in mode mps; pod ``a`` has a share of GPU 0."""

    def __init__(self, *pods: Pod) -> None:
        self.state = NodeState(GrantPolicy())
        gpus = tuple(replace(gpu, isolation=IsolationMode.MPS) for gpu in INVENTORY.gpus)
        self.state.equip(replace(INVENTORY, gpus=gpus))
        self.state.on_replace(pods)
        self.replaced = False
        self.events: list[tuple[Subject, str, str, str]] = []
        self.limits = LimitWatch(self.state, self, lambda: self.replaced)  # type: ignore[arg-type]
        ids = self.state.matcher.tables[Resource.MEM].ids[self.gpu().index][:2]
        held = [Held("team", each.name, {"c0": {Resource.MEM: ids}}) for each in pods]
        self.state.sync_from_kubelet(held[:1], requested_at=0)

    async def event(self, subject: Subject, reason: str, message: str, *, kind: str) -> None:
        """As the event recorder's."""
        self.events.append((subject, reason, message, kind))

    def gpu(self) -> Gpu:
        """GPU 0 as it is offered."""
        return self.state.inventory.gpus[0]

    def measured(self, *, client: bool | None, name: str = "a", exempt: bool = False) -> None:
        """Process 7 of a pod is a client of MPS, or is not."""
        usage = Usage(16, 1, (Process(7, 1, mps=client),))
        uid = PodUid(f"uid-{name}")
        self.limits.measured(self.gpu(), usage, {7: uid}, {uid} if exempt else ())

    async def round(self, *, client: bool | None) -> float | None:
        """Measure and publish; returns the metric of the pod."""
        self.measured(client=client)
        await self.limits.publish()
        return overridden("a", PROCESS)


def overridden(name: str, how: str) -> float | None:
    """The metric of a pod without its limit; ``None`` while there is none."""
    labels = {"exported_namespace": "team", "exported_pod": name, "by": how}
    return REGISTRY.get_sample_value("gpushare_pod_limit_overridden", labels)


async def test_a_process_that_is_no_client_is_found_the_second_time() -> None:
    """A process may end between the driver's two lists; the second time, the pod gets one event."""
    world = World(pod("a"))
    assert await world.round(client=False) is None
    assert await world.round(client=False) == 1
    assert await world.round(client=False) == 1
    subject = Subject("Pod", "a", "team", "uid-a")
    message = "a process uses GPU 0 without the MPS daemon, so no limit applies to it"
    assert world.events == [(subject, OVERRIDDEN, message, WARNING)]


async def test_a_series_goes_with_its_reason() -> None:
    """The process ended: the next round shows nothing."""
    world = World(pod("a"))
    await world.round(client=False)
    assert await world.round(client=False) == 1
    assert await world.round(client=True) is None
    assert await world.round(client=False) is None


@pytest.mark.parametrize("client", [True, None])
async def test_clients_and_processes_of_which_nothing_is_known_are_left_alone(
    client: bool | None,
) -> None:
    """An older driver does not report the clients of MPS."""
    world = World(pod("a"))
    for _ in range(3):
        assert await world.round(client=client) is None


async def test_only_pods_with_a_share_of_the_gpu_have_a_limit() -> None:
    """Neither one with the whole GPU, nor one that holds nothing, nor one that left."""
    world = World(pod("a"), pod("b"))
    for _ in range(3):
        world.measured(client=False, exempt=True)
    for _ in range(3):
        world.measured(client=False, name="b")
        world.measured(client=False, name="gone")
    await world.limits.publish()
    assert world.events == []


async def test_a_gpu_that_left_mode_mps_has_no_limits_to_watch() -> None:
    """What was seen before that does not count afterwards."""
    world = World(pod("a"))
    await world.round(client=False)
    for isolation in (IsolationMode.NONE, IsolationMode.MPS):
        gpus = tuple(replace(gpu, isolation=isolation) for gpu in INVENTORY.gpus)
        world.state.equip(replace(INVENTORY, gpus=gpus))
        assert await world.round(client=False) is None


async def test_a_variable_of_the_pod_is_found_where_the_runtime_does_not_replace_it() -> None:
    """Where CDI does, the pod's value never reaches the container."""
    world = World(pod("a", ENV_MPS_MEMORY), pod("b"))
    world.replaced = True
    await world.limits.publish()
    assert world.events == []
    world.replaced = False
    await world.limits.publish()
    ((subject, reason, message, kind),) = world.events
    assert (subject.name, reason, kind) == ("a", OVERRIDDEN, WARNING)
    assert message == (
        f"container c0 sets {ENV_MPS_MEMORY}, which replaces the value of the device plugin"
    )
    assert (overridden("a", ENVIRONMENT), overridden("b", ENVIRONMENT)) == (1, None)


async def test_a_pod_that_has_ended_overrides_nothing() -> None:
    """Its containers do not run."""
    world = World(replace(pod("a", ENV_MPS_MEMORY), phase="Succeeded"))
    await world.limits.publish()
    assert world.events == []
    assert overridden("a", ENVIRONMENT) is None


async def test_what_goes_on_is_reported_again_after_ten_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And at once where it had stopped meanwhile; the metric is there all the while."""
    now = [1000.0]
    monkeypatch.setattr("gpudeviceplugin.isolation.limits.time.monotonic", lambda: now[0])
    world = World(pod("a", ENV_MPS_MEMORY))
    for seconds, expected in ((0, 1), (AGAIN_SECONDS - 1, 1), (AGAIN_SECONDS, 2)):
        now[0] = 1000.0 + seconds
        await world.limits.publish()
        assert len(world.events) == expected
        assert overridden("a", ENVIRONMENT) == 1
    world.replaced = True
    await world.limits.publish()
    world.replaced = False
    await world.limits.publish()
    assert len(world.events) == 3
