"""The reconciler over time: its intervals, the answers that it accepts, and its metrics."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from fakedriver import t4
from msgspec.structs import replace
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from gpucore.node.allocation.device_ids import Resource
from gpucore.node.allocation.holdings import Held
from gpucore.node.grant import GrantPolicy
from gpucore.node.reconcile.corrections import CORRECTED
from gpucore.units import GIB, GpuIndex, NodeName, PodUid
from gpucore.wire.names import DEFAULT_NAMES as NAMES
from gpucore.wire.names import V2_ASSIGNED
from gpucore.wire.pod.spec import Container, Pod
from gpudeviceplugin.cluster.events import Subject
from gpudeviceplugin.gpus.devices import NodeHardware
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.kubelet.pod_resources import PodResourcesError
from gpudeviceplugin.kubelet.reconciler import RETRY_SECONDS, SETTLE_SECONDS, Reconciler
from gpudeviceplugin.state import NOTED_SECONDS, NodeState
from gpukube.errors import ConflictError, KubeError, UnreachableError
from gpukube.testing.clock import FakeClock

INVENTORY = inventory_of(NodeHardware("535.1", (t4(0), t4(1))), GIB)
EVERY = 30.0
POD = Pod(
    PodUid("uid-p"),
    "team",
    "p",
    NodeName("n1"),
    phase="Running",
    annotations={NAMES.mem_idx: "0", NAMES.mem_pod: "3", NAMES.mem_assume_time: "17"},
    containers=(Container("c0", {"aliyun.com/gpu-mem": "3"}),),
)


class World:
    """kubelet and API server in one: an accepted patch changes the pod, and the watch reports it.

    Attributes:
        held: kubelet's answer; an error is raised instead.
        meanwhile: called while kubelet makes up its answer.
        refuses: the API server's answer to a patch; ``None`` takes it.
    """

    def __init__(self, clock: FakeClock, *pods: Pod) -> None:
        self.clock = clock
        self.began = clock.seconds
        self.state = NodeState(GrantPolicy())
        self.state.equip(INVENTORY)
        self.state.on_replace(pods)
        self.held: list[Held] | PodResourcesError = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.refuses: KubeError | None = None
        self.looks: list[float] = []
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self.events: list[tuple[Subject, str, str]] = []
        self.reconciler = Reconciler(self.state, self, self, self, interval_seconds=EVERY)  # type: ignore[arg-type]

    def row(self, gpu: int, pod: Pod = POD) -> Held:
        """The pod has three units of a GPU."""
        ids = self.state.matcher.tables[Resource.MEM].ids[gpu][:3]  # type: ignore[index]
        return Held(pod.namespace, pod.name, {"c0": {Resource.MEM: ids}})

    async def list(self) -> list[Held]:
        """As kubelet's PodResources."""
        self.looks.append(round(self.clock.seconds - self.began, 3))
        answer = self.held
        self.meanwhile()
        if isinstance(answer, PodResourcesError):
            raise answer
        return answer

    async def patch(self, path: str, patch: dict[str, Any]) -> None:
        """As the API server's patch, with the uid as its precondition."""
        self.patches.append((path, patch))
        if self.refuses is not None:
            raise self.refuses
        metadata = patch["metadata"]
        pod = next(each for each in self.state.pods.values() if path.endswith(f"/{each.name}"))
        if metadata["uid"] != pod.uid:
            raise ConflictError("patch", status=409, message="Precondition failed: UID")
        texts = pod.annotations | metadata["annotations"]
        kept = {key: text for key, text in texts.items() if text is not None}
        self.state.on_update(replace(pod, annotations=kept), b"")

    async def event(self, subject: Subject, reason: str, message: str) -> None:
        """As the event recorder's."""
        self.events.append((subject, reason, message))

    async def for_seconds(self, seconds: float) -> Sequence[float]:
        """Run the reconciler for a time; returns the times of its checks."""
        running = asyncio.create_task(self.reconciler.run())
        await asyncio.sleep(seconds)
        running.cancel()
        await asyncio.wait({running})
        return self.looks


@pytest.fixture(autouse=True)
def one_clock(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    """The state reads the time of the test."""
    monkeypatch.setattr("gpudeviceplugin.state.time.monotonic", clock.now)


@pytest.fixture
async def world(clock: FakeClock) -> World:
    """A pod that runs, planned on GPU 0."""
    return World(clock, POD)


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    """What was logged."""
    with capture_logs() as logged:
        yield logged


def figure(name: str, **labels: str) -> float:
    """A metric now."""
    return REGISTRY.get_sample_value(f"gpushare_plugin_{name}", labels) or 0.0


async def test_a_quiet_node_is_looked_at_after_every_interval(world: World) -> None:
    """Nothing to correct, nothing granted."""
    world.held = [world.row(0)]
    await world.reconciler.look()
    world.looks.clear()
    assert world.state.pods[POD.uid].annotations[NAMES.mem_assigned] == "true"
    looks = await world.for_seconds(2 * EVERY + 1)
    assert looks == [0, EVERY + SETTLE_SECONDS, 2 * (EVERY + SETTLE_SECONDS)]


async def test_a_node_that_is_looked_at_often_is_so_after_a_restart_too(clock: FakeClock) -> None:
    """What kubelet remembers is not known yet, and the interval is shorter than the usual pause."""
    texts = {**POD.annotations, NAMES.mem_assigned: "true", V2_ASSIGNED: "true"}
    world = World(clock, replace(POD, annotations=texts))
    world.held = []  # the running pod is not listed yet
    world.reconciler = Reconciler(world.state, world, world, world, interval_seconds=0.5)  # type: ignore[arg-type]
    assert await world.for_seconds(1.2) == [0, 0.55, 1.1]
    assert world.state.suspicious


async def test_pods_on_devices_that_only_overselling_gives_are_confirmed_and_corrected(
    clock: FakeClock,
) -> None:
    """Kubelet lists ids beyond the size of a GPU: one pod is on its planned GPU, one is not."""
    other = replace(POD, uid=PodUid("uid-q"), name="q")
    world = World(clock, POD, other)
    world.state.follow(cgpu_disable=False, oversell=2, cdi=False)
    table = world.state.matcher.tables[Resource.MEM]
    size = INVENTORY.gpus[0].units
    world.held = [
        Held("team", name, {"c0": {Resource.MEM: table.ids[GpuIndex(gpu)][size : size + 3]}})
        for name, gpu in (("p", 0), ("q", 1))
    ]
    await world.reconciler.look()
    pods = world.state.pods
    assert [pods[uid].annotations[NAMES.mem_idx] for uid in (POD.uid, other.uid)] == ["0", "1"]
    assert [pod.annotations[NAMES.mem_assigned] for pod in pods.values()] == ["true", "true"]
    assert [(subject.name, reason) for subject, reason, _ in world.events] == [("q", CORRECTED)]


async def test_an_answer_that_is_older_never_replaces_a_later_one(world: World) -> None:
    """The gate of a start reads too; kubelet may answer the two calls in another order."""
    answers = [world.row(1), world.row(0)]
    slow = [5.0, 0.0]

    async def listing() -> list[Held]:
        answer = answers.pop()
        await asyncio.sleep(slow.pop(0))
        return [answer]

    world.list = listing  # type: ignore[method-assign]
    await asyncio.gather(world.reconciler.read(), world.reconciler.read())
    assert world.state.matcher.gpus_held("team", "p") == {1}


async def test_what_init_containers_were_given_counts_though_kubelet_does_not_list_it(
    clock: FakeClock,
) -> None:
    """Planned on GPU 0, given on GPU 1: kubelet lists the pod with nothing."""
    init = Container("i0", {"aliyun.com/gpu-mem": "3"})
    bare = replace(POD, phase="Pending", containers=(Container("c0"),), init_containers=(init,))
    world = World(clock, bare)
    world.state.grant(Resource.MEM, world.row(1).containers["c0"][Resource.MEM])
    world.state.on_update(replace(bare, phase="Running"), b"")
    world.held = [Held("team", "p", {})]
    await world.reconciler.look()
    ((_, patch),) = world.patches
    assert patch["metadata"]["annotations"][NAMES.mem_idx] == "1"


async def test_a_pod_of_an_original_plugin_keeps_its_annotation(clock: FakeClock) -> None:
    """Kubelet's ids of it meant nothing."""
    texts = {**POD.annotations, NAMES.mem_assigned: "true"}
    world = World(clock, replace(POD, annotations=texts))
    world.held = [world.row(1)]
    await world.reconciler.look()
    assert world.state.inherited.pods == {("team", "p")}
    assert world.patches == []


async def test_what_was_corrected_is_looked_at_again_soon(world: World) -> None:
    """The pause is short once; then the annotations are true."""
    world.held = [world.row(1)]
    assert await world.for_seconds(1) == [0, 2 * SETTLE_SECONDS]
    assert len(world.patches) == 1


async def test_an_account_that_lacks_something_is_fetched_every_second_after_a_restart(
    clock: FakeClock,
) -> None:
    """A pod that ran before is not listed yet, and neither is what was granted since."""
    texts = POD.annotations | {NAMES.mem_assigned: "true", V2_ASSIGNED: "true"}
    world = World(clock, replace(POD, annotations=texts))
    world.state.grant(Resource.MEM, world.row(1).containers["c0"][Resource.MEM])
    looks = await world.for_seconds(3)
    assert looks == [0, RETRY_SECONDS + SETTLE_SECONDS, 2 * (RETRY_SECONDS + SETTLE_SECONDS)]
    assert world.state.suspicious


async def test_a_grant_is_looked_at_after_kubelet_had_a_moment_to_note_it(world: World) -> None:
    """Not at once, and not after the interval."""
    world.held = [world.row(0)]
    running = asyncio.create_task(world.for_seconds(4))
    await asyncio.sleep(2)
    world.state.grant_made.fire()
    assert await running == [0, 2 * SETTLE_SECONDS, 2 + SETTLE_SECONDS]


async def test_a_grant_during_a_look_is_looked_at_next(world: World) -> None:
    """Its signal came before the wait."""
    world.held = [world.row(0)]
    await world.reconciler.look()
    world.looks.clear()

    def granted() -> None:
        world.meanwhile = lambda: None
        world.state.grant_made.fire()

    world.meanwhile = granted
    assert await world.for_seconds(3) == [0, SETTLE_SECONDS]


async def test_an_answer_takes_nothing_back_that_was_granted_after_the_question(
    clock: FakeClock,
) -> None:
    """However long kubelet took: it was queried before."""
    world = World(clock, replace(POD, phase="Pending"))
    ids = world.row(1).containers["c0"][Resource.MEM]

    def granted() -> None:
        world.state.grant(Resource.MEM, ids)
        clock.seconds += NOTED_SECONDS + 1

    world.held, world.meanwhile = [], granted
    assert not await world.reconciler.look()
    assert world.state.matcher.gpus_held("team", "p") == {1}
    world.meanwhile = lambda: None
    await world.reconciler.look()
    assert world.state.matcher.gpus_held("team", "p") == frozenset()


async def test_a_kubelet_that_does_not_answer_changes_nothing(
    world: World, logs: list[Any]
) -> None:
    """It is queried again after the interval, and what was known stays known."""
    world.held = [world.row(1)]
    await world.reconciler.look()
    world.held = PodResourcesError("no such socket")
    assert await world.reconciler.look()
    assert world.state.matcher.gpus_held("team", "p") == {1}
    assert logs[-1] == {
        "event": "cannot read kubelet's allocations",
        "log_level": "warning",
        "why": "no such socket",
    }


async def test_a_correction_is_counted_logged_and_reported_to_its_pod(
    world: World, logs: list[Any]
) -> None:
    """The event, the log and the metric have the same reason."""
    world.held = [world.row(1)]
    before = figure("corrections_total", reason="GpuShareCorrected")
    await world.reconciler.look()
    ((path, patch),) = world.patches
    assert path == "/api/v1/namespaces/team/pods/p"
    assert set(patch) == {"metadata"}
    assert set(patch["metadata"]) == {"uid", "annotations"}
    ((subject, reason, message),) = world.events
    assert subject == Subject("Pod", "p", "team", "uid-p")
    assert (reason, figure("corrections_total", reason=reason)) == ("GpuShareCorrected", before + 1)
    assert logs == [{"event": "corrected", "log_level": "info", "pod": "p", "why": message}]


async def test_disagreements_are_counted_until_they_are_gone(world: World) -> None:
    """A plan that was kept is none."""
    world.held = [world.row(1)]
    await world.reconciler.look()
    assert figure("disagreements") == 1
    await world.reconciler.look()
    assert figure("disagreements") == 0
    assert not world.patches[1:]


async def test_a_confirmation_is_neither_counted_nor_reported(
    world: World, logs: list[Any]
) -> None:
    """The plan was kept: ASSIGNED becomes true, and that is all."""
    world.held = [world.row(0)]
    assert not await world.reconciler.look()
    assert figure("disagreements") == 0
    assert len(world.patches) == 1
    assert world.events == logs == []
    assert await world.reconciler.look()


async def test_a_patch_that_is_refused_is_neither_counted_nor_reported(
    world: World, logs: list[Any]
) -> None:
    """The log has the reason, and a look after a moment makes it again."""
    world.held, world.refuses = [world.row(1)], UnreachableError("no answer")
    before = figure("corrections_total", reason="GpuShareCorrected")
    assert await world.reconciler.look()
    assert figure("corrections_total", reason="GpuShareCorrected") == before
    assert world.events == []
    (line,) = logs
    assert (line["event"], line["log_level"], line["pod"]) == ("cannot patch", "warning", "p")
    assert "no answer" in line["why"]
    world.refuses = None
    await asyncio.sleep(SETTLE_SECONDS)
    await world.reconciler.look()
    assert len(world.events) == 1


async def test_a_patch_that_is_always_refused_is_sent_less_and_less_often(world: World) -> None:
    """Such as one that an admission policy denies, or one of a pod with too many annotations."""
    world.held, world.refuses = [world.row(1)], UnreachableError("denied")
    await world.for_seconds(EVERY)
    in_the_first = len(world.patches)
    assert 5 <= in_the_first <= 12
    await world.for_seconds(10 * EVERY)
    assert len(world.patches) - in_the_first <= 21
    assert len(world.looks) <= len(world.patches) + 1


async def test_a_patch_that_failed_holds_up_no_other(clock: FakeClock) -> None:
    """The other pod is corrected at once, and comparisons go on."""
    other = replace(POD, uid=PodUid("uid-q"), name="q")
    world = World(clock, POD, other)
    world.held, world.refuses = [world.row(1)], UnreachableError("denied")
    await world.for_seconds(EVERY)
    world.refuses = None
    ids = world.state.matcher.tables[Resource.MEM].ids[1][3:6]  # type: ignore[index]
    world.held = [world.row(1), Held("team", "q", {"c0": {Resource.MEM: ids}})]
    await world.reconciler.look()
    assert [subject.name for subject, _, _ in world.events] == ["q"]


async def test_one_pod_that_cannot_be_patched_holds_up_no_other(clock: FakeClock) -> None:
    """All corrections of a look are sent at the same time."""
    other = replace(POD, uid=PodUid("uid-q"), name="q")
    world = World(clock, POD, other)
    ids = world.state.matcher.tables[Resource.MEM].ids[1][3:6]  # type: ignore[index]
    world.held = [world.row(1), Held("team", "q", {"c0": {Resource.MEM: ids}})]
    gate = asyncio.Event()
    patch = world.patch

    async def slow(path: str, body: dict[str, Any]) -> None:
        if path.endswith("/p"):
            await gate.wait()
        await patch(path, body)

    world.patch = slow  # type: ignore[method-assign]
    looking = asyncio.create_task(world.reconciler.look())
    await asyncio.sleep(0.1)
    assert [subject.name for subject, _, _ in world.events] == ["q"]
    gate.set()
    await looking


async def test_a_pod_of_the_same_name_that_came_meanwhile_keeps_its_annotations(
    world: World,
) -> None:
    """The patch is bound to the uid, so the API server refuses it."""
    world.held = [world.row(1)]
    fresh = replace(POD, uid=PodUid("uid-new"))
    patch = world.patch

    async def late(path: str, body: dict[str, Any]) -> None:
        world.state.on_replace((fresh,))
        await patch(path, body)

    world.patch = late  # type: ignore[method-assign]
    await world.reconciler.look()
    assert world.state.pods[fresh.uid].annotations == POD.annotations
    assert world.events == []


async def test_a_record_that_kubelet_has_lost_is_logged_once(
    clock: FakeClock, logs: list[Any]
) -> None:
    """The pod runs, kubelet lists it without devices: they are kept for it."""
    texts = POD.annotations | {NAMES.mem_assigned: "true", V2_ASSIGNED: "true"}
    world = World(clock, replace(POD, annotations=texts))
    world.held = [Held("team", "p", {})]
    await world.reconciler.look()
    await world.reconciler.look()
    (line,) = [line for line in logs if line["event"].startswith("kubelet has lost")]
    assert line["event"].endswith("its record of the devices of a running pod; they stay reserved")
    assert (line["log_level"], line["pod"]) == ("warning", "team/p")
