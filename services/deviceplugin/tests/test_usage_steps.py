"""Memory in use, round by round: attribution, metrics that come and go, and events."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from claimholding import prepared
from fakedriver import t4
from msgspec.structs import replace
from prometheus_client import REGISTRY

from gpucore.model import Gpu, IsolationMode
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.node.grant import GrantPolicy
from gpucore.node.isolation.overuse import AGAIN_SECONDS
from gpucore.sizing.usage_documents import PodMemoryUse, decode_usage
from gpucore.units import GIB, GpuIndex, NodeName, PodUid
from gpucore.wire.pod.spec import Container, Pod
from gpudeviceplugin import telemetry
from gpudeviceplugin.cluster.events import WARNING, Subject
from gpudeviceplugin.gpus.devices import DriverError, GpuLostError, NodeHardware, Process, Usage
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.node.usage import MIB, OVERUSED, UsageMeter, UsageSettings
from gpudeviceplugin.state import NodeState

pytestmark = pytest.mark.slow

FIRST, SECOND = t4(0).uuid, t4(1).uuid
GI = 1024 * MIB


def uid(number: int) -> PodUid:
    return PodUid(f"00000000-0000-0000-0000-{number:012}")


def pod(number: int, name: str) -> Pod:
    """A pod whose processes are known by its uid."""
    containers = (Container("c0", {"aliyun.com/gpu-mem": "2"}),)
    return Pod(uid(number), "team", name, NodeName("n1"), phase="Running", containers=containers)


class World:
    """Driver, event recorder and limits in one, over pods with two units of a GPU each."""

    def __init__(self, proc: Path, *, slack: int = 0) -> None:
        self.proc = proc
        self.state = NodeState(GrantPolicy())
        self.state.equip(inventory_of(NodeHardware("535.1", (t4(0), t4(1))), GIB))
        self.known: dict[str, Usage] = {}
        self.events: list[tuple[Subject, str, str, str]] = []
        self.effects: list[Any] = []
        watch = UsageSettings(proc, interval_seconds=4.0, slack_bytes=slack)
        self.meter = UsageMeter(self.state, self, self, watch, self)  # type: ignore[arg-type]

    async def usages(self, uuids: Sequence[str]) -> dict[str, Usage | DriverError]:
        """As the driver's."""
        self.effects += [f"usage {uuid[-1]}" for uuid in uuids]
        return {uuid: self.known.get(uuid, GpuLostError("lost")) for uuid in uuids}

    async def event(self, subject: Subject, reason: str, message: str, *, kind: str) -> None:
        """As the event recorder's."""
        self.events.append((subject, reason, message, kind))

    def measured(self, gpu: Any, usage: Usage, owners: Any, exempt: Any) -> None:
        """As that of limits."""
        self.effects.append(("limits", gpu.index, dict(owners), set(exempt)))

    async def publish(self) -> None:
        """As that of limits."""
        self.effects.append("publish")

    def holds(self, **pods: tuple[int, int, Resource]) -> None:
        """Kubelet's account: by pod name the GPU, the first id and the resource; two ids each."""
        held = []
        for name, (gpu, first, resource) in pods.items():
            ids = self.state.matcher.tables[resource].ids[gpu]  # type: ignore[index]
            taken = ids[first : first + 2]
            held.append(Held("team", name, {"c0": {resource: taken}}))
        self.state.sync_from_kubelet(held, requested_at=self.state.settled_turn())

    def process(self, pid: int, owner: int | None) -> None:
        """A process of the host; without an owner it is in no pod."""
        folder = self.proc / str(pid)
        folder.mkdir(parents=True)
        text = f"0::/kubepods/pod{uid(owner)}/x\n" if owner is not None else "0::/system\n"
        (folder / "cgroup").write_text(text)

    def used(self, uuid: str, work: dict[int, int] | None = None, **sizes: int) -> None:
        """The driver's figures: bytes by ``p<pid>``, and SM utilization by process."""
        processes = tuple(Process(int(key[1:]), size) for key, size in sizes.items())
        self.known[uuid] = Usage(16 * GI, sum(sizes.values()), processes, work)

    def shown(self) -> dict[str, PodMemoryUse]:
        """The rows of the first GPU in the document, by pod."""
        gpu = decode_usage(self.meter._use.document()).gpus[0]
        return {row.name: row for row in gpu.pods}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two pods that share GPU 0."""
    made = World(tmp_path)
    made.state.on_replace((pod(1, "a"), pod(2, "b")))
    made.holds(a=(0, 0, Resource.MEM), b=(0, 2, Resource.MEM))
    for pid, owner in ((11, 1), (12, 1), (21, 2), (31, 3), (99, None)):
        made.process(pid, owner)
    made.used(FIRST)
    made.used(SECOND)
    return made


def of_pod(name: str, pod: str, gpu: int = 0) -> float | None:
    """A metric of a pod on a GPU."""
    labels = {"gpu": str(gpu), "exported_namespace": "team", "exported_pod": pod}
    return REGISTRY.get_sample_value(f"gpushare_pod_{name}", labels)


def of_gpu(name: str, gpu: int) -> float | None:
    """A metric of a GPU."""
    labels = {"gpu": str(gpu), "uuid": t4(gpu).uuid}
    return REGISTRY.get_sample_value(f"gpushare_gpu_{name}", labels)


async def test_bytes_are_those_of_the_pods_whose_processes_use_them(world: World) -> None:
    """Processes of a pod are added up; those of no known pod are unattributed."""
    world.used(FIRST, p11=100, p12=20, p21=3, p31=7, p99=1000, p404=5)
    await world.meter.measure()
    assert (of_pod("used_bytes", "a"), of_pod("used_bytes", "b")) == (120, 3)
    assert of_gpu("unattributed_bytes", 0) == 7 + 1000 + 5
    assert of_gpu("used_bytes", 0) == 1135
    assert (of_gpu("used_bytes", 1), of_gpu("unattributed_bytes", 1)) == (0, 0)


async def test_a_pod_that_uses_no_memory_has_a_zero_where_that_is_certain(world: World) -> None:
    """Prometheus has no other sign of an idle pod; memory of no known pod may be its own."""
    world.used(FIRST, p11=100)
    await world.meter.measure()
    assert (of_pod("used_bytes", "a"), of_pod("used_bytes", "b")) == (100, 0)
    world.used(FIRST, p11=100, p99=1000)
    await world.meter.measure()
    assert (of_pod("used_bytes", "a"), of_pod("used_bytes", "b")) == (100, None)
    world.used(FIRST)
    await world.meter.measure()
    assert (of_pod("used_bytes", "a"), of_pod("used_bytes", "b")) == (0, 0)
    world.known.clear()
    await world.meter.measure()
    assert (of_pod("used_bytes", "a"), of_pod("used_bytes", "b")) == (0, 0)


async def test_allocated_units_are_those_of_kubelets_account(world: World) -> None:
    """Of the GPU, and of each pod on it."""
    world.holds(a=(0, 0, Resource.MEM), b=(1, 0, Resource.MEM))
    await world.meter.measure()
    assert [of_gpu("allocated_units", gpu) for gpu in (0, 1)] == [2, 2]
    assert (of_pod("allocated_units", "a"), of_pod("allocated_units", "b", 1)) == (2, 2)
    assert of_pod("allocated_units", "b") is None


async def test_the_part_of_a_gpu_is_that_of_its_units_or_the_whole(world: World) -> None:
    """A share by its units; an exclusive GPU counts 1, though it has no units of its own."""
    world.holds(a=(0, 0, Resource.MEM), b=(1, 0, Resource.GPU))
    await world.meter.measure()
    units = world.state.inventory.gpus[0].units
    assert of_pod("allocated_gpus", "a") == 2 / units
    assert of_pod("allocated_gpus", "b", 1) == 1
    assert of_pod("allocated_units", "b", 1) is None


async def test_a_cgroup_whose_name_is_no_text_is_its_pods_all_the_same(world: World) -> None:
    """A container that may create cgroups can name one in any bytes; others keep their figures."""
    content = f"0::/kubepods/pod{uid(1)}/".encode() + b"\xff\xfe\n"
    (world.proc / "11" / "cgroup").write_bytes(content)
    world.used(FIRST, p11=GI, p21=GI)
    await world.meter.measure()
    assert [of_pod("used_bytes", name) for name in ("a", "b")] == [GI, GI]


async def test_figures_of_a_pod_go_with_it(world: World) -> None:
    """The next round has no series of a pod that has ended."""
    world.used(FIRST, p11=3 * GI)
    await world.meter.measure()
    assert of_pod("over_bytes", "a") == GI
    world.state.on_replace((pod(2, "b"),))
    world.used(FIRST)
    await world.meter.measure()
    for name in ("allocated_units", "allocated_gpus", "used_bytes", "over_bytes"):
        assert of_pod(name, "a") is None
    assert of_gpu("allocated_units", 0) == 2


async def test_a_gpu_that_does_not_answer_keeps_its_figures_and_holds_up_no_other(
    world: World,
) -> None:
    """What was handed out on it is known without the driver."""
    world.used(FIRST, p11=100)
    await world.meter.measure()
    del world.known[FIRST]
    world.used(SECOND, p21=7)
    await world.meter.measure()
    assert (of_gpu("used_bytes", 0), of_gpu("used_bytes", 1)) == (100, 7)
    assert of_gpu("allocated_units", 0) == 4
    assert (of_pod("allocated_units", "a"), of_pod("used_bytes", "b", 1)) == (2, 7)


def pods_figures(name: str) -> dict[str, float | None]:
    """Figures of the pods that the tests below use, by metric."""
    names = (
        "allocated_units",
        "allocated_gpus",
        "used_bytes",
        "over_bytes",
        "sm_utilization_percent",
    )
    return {metric: of_pod(metric, name) for metric in names}


async def test_series_of_pods_stay_while_the_driver_is_asked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scrape at any moment of a round has the figures of the last one."""
    world.used(FIRST, {11: 40}, p11=3 * GI)
    await world.meter.measure()
    before = pods_figures("a")
    assert None not in before.values()
    seen = []

    async def slowly(uuids: Sequence[str]) -> dict[str, Usage | DriverError]:
        seen.append(pods_figures("a"))
        return {uuid: world.known[uuid] for uuid in uuids}

    monkeypatch.setattr(world, "usages", slowly)
    world.used(FIRST, {11: 10}, p11=GI)
    await world.meter.measure()
    assert seen == [before]
    assert (of_pod("used_bytes", "a"), of_pod("over_bytes", "a")) == (GI, None)


async def test_pods_on_a_gpu_that_does_not_answer_keep_their_last_figures(world: World) -> None:
    """Until the pod ends; its neighbour's figures stay for as long as the GPU does not answer."""
    world.used(FIRST, {11: 40}, p11=3 * GI, p21=5)
    await world.meter.measure()
    before = pods_figures("a")
    del world.known[FIRST]
    for _ in range(2):
        await world.meter.measure()
        assert pods_figures("a") == before
    world.state.on_replace((pod(2, "b"),))
    await world.meter.measure()
    assert set(pods_figures("a").values()) == {None}
    assert of_pod("used_bytes", "b") == 5


async def test_the_limits_are_measured_gpu_by_gpu_and_published_once(world: World) -> None:
    """A GPU that does not answer is left out; pods with the whole GPU are exempt."""
    world.holds(a=(0, 0, Resource.MEM), b=(1, 0, Resource.GPU))
    world.used(FIRST, p11=1)
    world.used(SECOND, p21=1)
    await world.meter.measure()
    assert world.effects == [
        "usage 0",
        "usage 1",
        ("limits", 0, {11: uid(1)}, set()),
        ("limits", 1, {21: uid(2)}, {uid(2)}),
        "publish",
    ]
    world.effects.clear()
    del world.known[FIRST]
    await world.meter.measure()
    assert world.effects[:2] == ["usage 0", "usage 1"]
    assert world.effects[-1] == "publish"


async def test_a_pod_that_uses_more_than_its_share_is_notified(world: World) -> None:
    """A pod that uses exactly its share gets no event, and neither does its neighbour."""
    before = REGISTRY.get_sample_value("gpushare_plugin_overuses_total")
    world.used(FIRST, p11=2 * GI, p21=2 * GI)
    await world.meter.measure()
    assert world.events == []
    assert of_pod("over_bytes", "a") is None
    world.used(FIRST, p11=2 * GI + 5 * MIB, p21=2 * GI)
    await world.meter.measure()
    subject = Subject("Pod", "a", "team", uid(1))
    message = "uses 2053 MiB of GPU 0, but its share is 2048"
    assert world.events == [(subject, OVERUSED, message, WARNING)]
    assert of_pod("over_bytes", "a") == 5 * MIB
    assert REGISTRY.get_sample_value("gpushare_plugin_overuses_total") == (before or 0) + 1


async def test_over_use_that_goes_on_is_reported_again_after_ten_minutes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its metric stays meanwhile; over-use that ended and began again is news."""
    now = [1000.0]
    monkeypatch.setattr("gpudeviceplugin.node.usage.time.monotonic", lambda: now[0])
    world.used(FIRST, p11=3 * GI)
    for seconds, expected in ((0, 1), (AGAIN_SECONDS - 1, 1), (AGAIN_SECONDS, 2)):
        now[0] = 1000.0 + seconds
        await world.meter.measure()
        assert len(world.events) == expected
        assert of_pod("over_bytes", "a") == GI
    world.used(FIRST)
    await world.meter.measure()
    world.used(FIRST, p11=3 * GI)
    await world.meter.measure()
    assert len(world.events) == 3


async def test_a_little_more_than_the_share_is_nobodys_business(tmp_path: Path) -> None:
    """The slack is the setting, to the byte."""
    world = World(tmp_path, slack=100)
    world.state.on_replace((pod(1, "a"),))
    world.holds(a=(0, 0, Resource.MEM))
    world.process(11, 1)
    world.used(FIRST, p11=2 * GI + 100)
    await world.meter.measure()
    assert world.events == []
    world.used(FIRST, p11=2 * GI + 101)
    await world.meter.measure()
    assert len(world.events) == 1


async def test_a_pod_on_another_gpu_than_its_own_was_given_nothing_there(world: World) -> None:
    """Its share is of GPU 1."""
    world.holds(a=(1, 0, Resource.MEM), b=(0, 2, Resource.MEM))
    world.used(FIRST, p11=MIB)
    await world.meter.measure()
    assert [message for _, _, message, _ in world.events] == [
        "uses 1 MiB of GPU 0, but its share is 0"
    ]


async def test_pods_without_a_share_of_memory_are_not_notified(world: World) -> None:
    """One with the whole GPU, one with compute alone, and this plugin's own pod."""
    world.state.on_replace((pod(1, "a"), pod(2, "b"), pod(3, "plugin")))
    world.holds(a=(0, 0, Resource.GPU), b=(0, 2, Resource.CORE))
    world.used(FIRST, p11=9 * GI, p21=GI, p31=GI)
    await world.meter.measure()
    assert world.events == []
    assert of_pod("used_bytes", "plugin") == GI


async def test_a_pod_with_one_whole_gpu_and_a_share_of_another_has_no_share_of_the_first(
    world: World,
) -> None:
    """Its containers have different ones."""
    tables = world.state.matcher.tables
    rows = {
        "c0": {Resource.GPU: tables[Resource.GPU].ids[GpuIndex(0)]},
        "c1": {Resource.MEM: tables[Resource.MEM].ids[GpuIndex(1)][:2]},
    }
    world.state.sync_from_kubelet(
        [Held("team", "a", rows)], requested_at=world.state.settled_turn()
    )
    world.used(FIRST, p11=9 * GI)
    world.used(SECOND, p12=2 * GI)
    await world.meter.measure()
    assert world.events == []


async def test_what_claims_hold_is_allocated_like_devices(world: World) -> None:
    """A pod that uses more than its claim gets an event; a part of a unit counts as a unit."""
    gpu = world.state.inventory.gpus[1]
    claiming = Pod(uid(3), "team", "c", NodeName("n1"), phase="Running", claims=("own",))
    world.state.on_update(claiming, b"")
    world.state.claims.put(prepared("own", gpu, 3))
    world.used(SECOND, p31=5 * GI)
    await world.meter.measure()
    assert (of_pod("allocated_units", "c", 1), of_gpu("allocated_units", 1)) == (3, 3)
    assert of_pod("over_bytes", "c", 1) == 2 * GI
    (notified,) = [event for event in world.events if event[0].name == "c"]
    assert "its share is 3072" in notified[2]


async def test_a_part_of_a_unit_counts_as_a_unit_and_claims_add_to_devices(world: World) -> None:
    """A claim can be for any number of MiB, and a pod can have both."""
    gpu = world.state.inventory.gpus[0]
    for number, name in ((1, "a"), (3, "c")):
        claiming = replace(pod(number, name), claims=(f"of-{name}",))
        world.state.on_update(claiming, b"")
        claim = prepared(f"of-{name}", gpu, 3)
        (share,) = claim.allocated.devices
        odd = replace(claim.allocated, devices=(replace(share, memory=share.memory - 512 * MIB),))  # type: ignore[operator]
        world.state.claims.put(replace(claim, allocated=odd))
    await world.meter.measure()
    assert (of_pod("allocated_units", "a"), of_pod("allocated_units", "c")) == (2 + 3, 3)
    world.used(FIRST, p11=5 * GI)
    await world.meter.measure()
    assert of_pod("over_bytes", "a") == 512 * MIB


async def test_a_change_during_a_round_is_measured_in_the_next_one_at_once(
    world: World, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not four seconds later."""
    began, rounds = clock.seconds, list[float]()

    async def measure() -> None:
        rounds.append(clock.seconds - began)
        if len(rounds) == 1:
            world.state.inventory_changed.fire()

    monkeypatch.setattr(world.meter, "measure", measure)
    running = asyncio.create_task(world.meter.run())
    await asyncio.sleep(5)
    running.cancel()
    await asyncio.wait({running})
    assert rounds == [0, 0, 4]


async def test_a_claim_of_a_whole_gpu_is_exempt_from_limits(world: World) -> None:
    """No other pod shares the GPU, so its processes need no MPS daemon."""
    gpu = world.state.inventory.gpus[1]
    claiming = Pod(uid(3), "team", "c", NodeName("n1"), phase="Running", claims=("own",))
    world.state.on_update(claiming, b"")
    world.state.claims.put(prepared("own", gpu, gpu.units))
    await world.meter.measure()
    exempt = [effect[3] for effect in world.effects if effect[0] == "limits" and effect[1] == 1]
    assert exempt == [{uid(3)}]


async def test_the_unit_of_the_node_is_the_size_of_a_share(world: World) -> None:
    """Two units of 256 MiB."""
    inventory = world.state.inventory
    world.state.equip(replace(inventory, unit=type(GIB)(256)))
    world.used(FIRST, p11=513 * MIB)
    await world.meter.measure()
    assert [message for _, _, message, _ in world.events] == [
        "uses 513 MiB of GPU 0, but its share is 512"
    ]


async def test_rounds_come_at_the_interval_and_after_a_change_of_the_gpus(
    world: World, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new GPU has its figures at once."""
    began, rounds = clock.seconds, list[float]()

    async def measure() -> None:
        rounds.append(clock.seconds - began)

    monkeypatch.setattr(world.meter, "measure", measure)
    running = asyncio.create_task(world.meter.run())
    await asyncio.sleep(5)
    world.state.inventory_changed.fire()
    await asyncio.sleep(5)
    running.cancel()
    await asyncio.wait({running})
    assert rounds == [0, 4, 5, 9]


async def test_the_drivers_own_figure_of_a_pod_replaces_the_sum_of_its_processes(
    world: World,
) -> None:
    """It counts for over-use too, and is no longer among the bytes of no known pod."""
    exact = {uid(1): 3 * GI, uid(2): GI}

    async def of_driver(gpu: Any) -> dict[PodUid, int]:
        return exact if gpu.index == 0 else {}

    world.meter._exact = of_driver
    world.used(FIRST, p11=GI, p99=2 * GI)
    await world.meter.measure()
    assert (of_pod("used_bytes", "a"), of_pod("used_bytes", "b")) == (3 * GI, GI)
    assert of_pod("over_bytes", "a") == GI
    labels = {"gpu": "0", "uuid": FIRST}
    assert REGISTRY.get_sample_value("gpushare_gpu_unattributed_bytes", labels) == GI


async def test_a_pod_that_may_use_more_than_its_share_is_not_notified_before(world: World) -> None:
    """Its limit is what counts, where the driver holds it to that."""
    first, second = world.state.inventory.gpus
    gpus = (replace(first, isolation=IsolationMode.DRIVER), second)
    world.state.equip(replace(world.state.inventory, gpus=gpus))
    bursting = replace(pod(1, "a"), annotations={"gpushare/memory-limit": "5"})
    world.state.on_update(bursting, b"{}")
    world.used(FIRST, p11=5 * GI, p21=3 * GI)
    await world.meter.measure()
    assert [event[0].name for event in world.events] == ["b"]
    assert of_pod("over_bytes", "a") is None


async def test_each_round_gives_its_figures_to_the_histories(world: World) -> None:
    """A GPU that does not answer has none: those of the last round would pass for current ones."""
    gpus = world.state.inventory.gpus
    world.used(FIRST, p11=100, p99=7)
    await world.meter.measure()
    measured = world.meter._use.on(gpus[0])
    assert measured is not None
    assert (measured.used_by(uid(1)), measured.unattributed_bytes) == (100, 7)
    assert measured.used_by(uid(2)) is None
    del world.known[FIRST]
    await world.meter.measure()
    assert world.meter._use.on(gpus[0]) is None


async def test_without_visible_processes_a_pod_alone_on_its_gpu_has_their_memory(
    world: World,
) -> None:
    """It is shown, but no sample of its history: that would have none of its time with others."""
    world.holds(a=(0, 0, Resource.MEM))
    world.used(FIRST, p404=100, p405=20)
    await world.meter.measure()
    assert (of_pod("used_bytes", "a"), of_gpu("unattributed_bytes", 0)) == (120, 0)
    measured = world.meter._use.on(world.state.inventory.gpus[0])
    assert measured is not None
    assert measured.used_by(uid(1)) is None
    (shown, _) = decode_usage(world.meter._use.document()).gpus
    assert [(each.name, each.used_bytes) for each in shown.pods] == [("a", 120)]
    assert shown.unattributed_bytes == 0


async def test_without_visible_processes_an_exclusive_gpu_is_its_pods(world: World) -> None:
    """No other pod ever comes, so that its history is complete."""
    world.holds(a=(0, 0, Resource.GPU))
    world.used(FIRST, p404=100)
    await world.meter.measure()
    measured = world.meter._use.on(world.state.inventory.gpus[0])
    assert measured is not None
    assert measured.used_by(uid(1)) == 100


async def test_work_is_that_of_the_pods_whose_processes_ran_it(world: World) -> None:
    """A pod with memory and no work has 0 percent."""
    world.used(FIRST, {11: 30, 12: 12}, p11=100, p12=20, p21=3)
    await world.meter.measure()
    found = (of_pod("sm_utilization_percent", "a"), of_pod("sm_utilization_percent", "b"))
    assert found == (42, 0)
    assert [row.no_work_since > 0 for row in world.shown().values()] == [False, True]


async def test_the_time_without_work_ends_with_work(world: World) -> None:
    """It begins with the first measurement that finds none, whatever memory is in use."""
    world.used(FIRST, {}, p11=100, p21=3)
    await world.meter.measure()
    first = world.shown()["a"].no_work_since
    world.used(FIRST, {21: 1}, p11=200, p21=3)
    await world.meter.measure()
    assert (world.shown()["a"].no_work_since, world.shown()["b"].no_work_since) == (first, 0.0)
    assert world.shown()["a"].idle_since == 0.0


@pytest.mark.parametrize("pid", [31, 99, 404])
async def test_work_of_a_process_of_no_pod_may_be_that_of_any(world: World, pid: int) -> None:
    """The server of MPS can have the work of its clients; so no pod is idle."""
    world.used(FIRST, {pid: 50}, p11=100, p21=3)
    await world.meter.measure()
    assert (of_pod("sm_utilization_percent", "a"), world.shown()["a"].no_work_since) == (None, 0.0)
    world.used(FIRST, {pid: 50, 11: 7}, p11=100, p21=3)
    await world.meter.measure()
    found = (of_pod("sm_utilization_percent", "a"), of_pod("sm_utilization_percent", "b"))
    assert found == (7, None)


async def test_a_driver_that_reports_no_work_leaves_it_unknown(world: World) -> None:
    """Only a pod without memory has none for certain."""
    world.used(FIRST, None, p11=100)
    await world.meter.measure()
    rows = world.shown()
    assert (of_pod("sm_utilization_percent", "a"), rows["a"].no_work_since) == (None, 0.0)
    assert rows["b"].no_work_since > 0


async def test_a_pod_whose_processes_are_not_listed_may_work(world: World) -> None:
    """The driver's own figure of its memory does not list its processes."""

    async def exact(_gpu: Gpu) -> dict[PodUid, int]:
        return {uid(2): 5}

    world.meter._exact = exact
    world.used(FIRST, {}, p11=100)
    await world.meter.measure()
    rows = world.shown()
    assert [rows[name].no_work_since > 0 for name in ("a", "b")] == [True, False]


async def test_without_visible_processes_memory_of_a_shared_gpu_is_of_no_pod(world: World) -> None:
    """Either of the two may use it."""
    world.used(FIRST, p404=100)
    await world.meter.measure()
    assert (of_pod("used_bytes", "a"), of_gpu("unattributed_bytes", 0)) == (None, 100)


async def test_memory_of_processes_that_the_driver_does_not_list_is_of_no_pod(world: World) -> None:
    """So it is outside the PID namespace of the node: no pod is idle, and none has a figure."""
    world.known[FIRST] = Usage(16 * GI, 9 * GI, ())
    await world.meter.measure()
    assert (of_pod("used_bytes", "a"), of_gpu("unattributed_bytes", 0)) == (None, 9 * GI)
    measured = world.meter._use.on(world.state.inventory.gpus[0])
    assert measured is not None
    assert (measured.shown_of(uid(1)), measured.used_by(uid(1))) == (None, None)
    (shown, _) = decode_usage(world.meter._use.document()).gpus
    assert (shown.pods, shown.unattributed_bytes) == ((), 9 * GI)


async def test_memory_that_is_not_listed_is_that_of_a_pod_alone_on_its_gpu(world: World) -> None:
    """As the memory of processes that are listed and not visible."""
    world.holds(a=(0, 0, Resource.MEM))
    world.known[FIRST] = Usage(16 * GI, 9 * GI, ())
    await world.meter.measure()
    assert (of_pod("used_bytes", "a"), of_gpu("unattributed_bytes", 0)) == (9 * GI, 0)


async def test_a_process_whose_size_is_not_reported_makes_no_pod_idle(world: World) -> None:
    """Its pod has no figure, as the memory may be its own or another's."""
    world.known[FIRST] = Usage(16 * GI, 9 * GI, (Process(11, 0), Process(21, 0)))
    await world.meter.measure()
    measured = world.meter._use.on(world.state.inventory.gpus[0])
    assert measured is not None
    assert (measured.shown_of(uid(1)), measured.shown_of(uid(2))) == (None, None)


async def test_what_a_driver_holds_without_any_process_is_no_use(world: World) -> None:
    """Then all pods of the GPU are idle."""
    world.known[FIRST] = Usage(16 * GI, 3 << 20, ())
    await world.meter.measure()
    measured = world.meter._use.on(world.state.inventory.gpus[0])
    assert measured is not None
    assert (measured.shown_of(uid(1)), measured.unattributed_bytes) == (0, 0)


async def test_a_process_outside_of_pods_is_not_that_of_the_only_pod(world: World) -> None:
    """Where processes are visible, nothing is guessed."""
    world.holds(a=(0, 0, Resource.MEM))
    world.used(FIRST, p99=100)
    await world.meter.measure()
    assert (of_pod("used_bytes", "a"), of_gpu("unattributed_bytes", 0)) == (None, 100)


async def test_a_gpu_that_leaves_during_a_measurement_has_no_metrics(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would end them later: they are removed once, when the GPU leaves."""
    answers = world.usages

    async def leaving(uuids: Sequence[str]) -> dict[str, Usage | DriverError]:
        world.state.equip(inventory_of(NodeHardware("535.1", (t4(0),)), GIB))
        telemetry.forget_gpus([("1", SECOND)])
        return await answers(uuids)

    monkeypatch.setattr(world, "usages", leaving)
    await world.meter.measure()
    assert of_gpu("used_bytes", 0) == 0
    assert (of_gpu("used_bytes", 1), of_gpu("allocated_units", 1)) == (None, None)
