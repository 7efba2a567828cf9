"""Histories of the memory that workloads use: which figures count, and for whom."""

import json
from collections.abc import Mapping

import pytest
from claimholding import prepared
from fakedriver import t4
from msgspec.structs import replace
from recorderworld import GI, NOW, World, ended, owned, pod

from gpucore.node.isolation.attribution import EngineUse
from gpucore.sizing.history_documents import MOST_HISTORIES, decode_histories
from gpucore.sizing.usage_documents import MOST_CONTAINERS, decode_usage
from gpucore.sizing.usage_history import FADE_SECONDS, START_SECONDS, LimitEvent, WorkloadKey
from gpucore.units import MemoryUnit, PodUid
from gpucore.wire.names import CLAIM_TEMPLATE
from gpucore.wire.pod.spec import Container
from gpudeviceplugin.node.recorder import MOST_BYTES


@pytest.fixture
def world() -> World:
    """One pod with a share of GPU 0."""
    made = World()
    made.state.on_replace((pod("a"),))
    made.holds("a")
    return made


def test_a_sample_has_use_request_and_limit(world: World) -> None:
    """Of the container that holds the share."""
    world.uses(a=GI)
    world.sampled()
    found = world.history()
    assert (found.samples, found.peak_bytes) == (1, GI)
    assert (found.requested_bytes, found.limit_bytes, found.gpus) == (2 * GI, 2 * GI, 1)
    assert found.last_seen == world.now


def test_a_clock_that_was_ahead_for_one_sample_loses_no_later_one(world: World) -> None:
    """The workload is measured from the time on at which the clock is right again."""
    world.uses(a=GI)
    right = world.now
    world.sampled(365 * 86_400)
    world.now = right
    for _ in range(3):
        world.sampled(86_400)
    found = world.history()
    assert (found.first_seen, found.last_seen) == (right + 86_400, right + 3 * 86_400)


def test_the_fullest_gpu_of_a_pod_counts_for_all_of_them(world: World) -> None:
    """A size is spread evenly: 1 GiB and 2 GiB need 2 GiB of each GPU."""
    world.holds("a", gpus=(0, 1))
    world.uses(0, a=GI)
    world.uses(1, a=2 * GI)
    world.sampled()
    assert (world.history().peak_bytes, world.history().requested_bytes) == (4 * GI, 4 * GI)
    assert world.history().gpus == 2


def test_a_sample_has_the_sm_utilization_where_it_is_known(world: World) -> None:
    """A round without it adds none, and one without work adds 0 percent."""
    world.uses(a=GI, work=EngineUse({PodUid("uid-a"): 42}))
    world.sampled()
    world.uses(a=GI)
    world.sampled()
    world.uses(a=GI, work=EngineUse({}, {PodUid("uid-a")}))
    world.sampled()
    assert (world.history().samples, world.history().sm_buckets) == (3, {0: 1, 9: 1})
    assert (world.history().sm_percentile(50), world.history().sm_percentile(95)) == (0, 45)


def test_the_gpu_that_works_most_counts_for_a_pod_with_several(world: World) -> None:
    """Where one of them is unknown, so is the pod."""
    world.holds("a", gpus=(0, 1))
    for gpu, percent in ((0, 10), (1, 90)):
        world.uses(gpu, a=GI, work=EngineUse({PodUid("uid-a"): percent}))
    world.sampled()
    assert world.history().sm_percentile(100) == 90
    world.uses(1, a=GI)
    world.sampled()
    assert sum(world.history().sm_buckets.values()) == 1


def test_a_gpu_that_does_not_answer_makes_the_sum_unknown(world: World) -> None:
    """Half of the memory would pass for all of it."""
    world.holds("a", gpus=(0, 1))
    world.uses(0, a=GI)
    world.sampled()
    assert world.history().samples == 0
    world.uses(1, a=GI)
    world.use.unanswered(world.state.inventory.gpus[0])
    world.sampled()
    assert world.history().samples == 0


def test_memory_of_no_known_pod_makes_a_pod_without_figures_unknown(world: World) -> None:
    """It may be the pod's own."""
    world.uses(a=GI)
    world.uses(unattributed=GI)
    world.sampled()
    assert world.history().samples == 0


def test_an_idle_pod_counts_with_nothing_where_figures_can_be_attributed(world: World) -> None:
    """Its share is held and not used."""
    world.uses(a=GI)
    world.sampled()
    world.uses()
    world.sampled()
    assert (world.history().samples, world.history().percentile(50)) == (2, 64 << 20)


def test_without_the_hosts_processes_an_idle_gpu_is_no_sample(world: World) -> None:
    """Use would never be seen there, so that zeros alone would make the history."""
    world.uses()
    world.sampled()
    assert world.history().samples == 0


def test_use_of_a_whole_share_is_an_event_with_its_limit(world: World) -> None:
    """Nothing on the node counts allocations that failed: this is the sign of them."""
    world.uses(a=GI)
    world.sampled()
    assert not world.history().reached.at
    world.uses(a=2 * GI)
    world.sampled()
    assert world.history().reached == LimitEvent(world.now, 2 * GI)


def test_a_program_that_ran_out_of_memory_is_an_event_once(world: World) -> None:
    """Every later event of the pod shows the same end, also to a restarted plugin."""
    world.uses(a=GI)
    world.sampled()
    for _ in range(2):
        world.recorder.seen(world.state.pods[PodUid("uid-a")], ended("2026-01-01T01:00:05Z"))
        known = world.recorder.histories.all()
        world.recorder = world.started()
        world.recorder.histories.put(known)
    assert world.history().out_of_memory == 1
    assert world.history().ran_out == LimitEvent(NOW + 5, 2 * GI)
    world.recorder.seen(world.state.pods[PodUid("uid-a")], ended("2026-01-01T01:00:09Z"))
    assert world.history().out_of_memory == 2


@pytest.mark.parametrize("container", ["main", "sidecar"])
def test_only_the_container_with_the_share_counts(world: World, container: str) -> None:
    """And nothing does before the first sample, whose limit is needed."""
    line = ended("2026-01-01T01:00:05Z", container)
    world.recorder.seen(world.state.pods[PodUid("uid-a")], line)
    assert not world.recorder.histories.all()
    world.uses(a=GI)
    world.sampled()
    world.recorder.seen(world.state.pods[PodUid("uid-a")], line)
    assert world.history().out_of_memory == (container == "main")


def test_several_containers_with_gpus_have_one_history_of_the_pod(world: World) -> None:
    """The driver tells pods apart and not their containers."""
    world.state.on_replace((pod("a", "one", "two", "log"),))
    world.holds("a", containers=("one", "two"))
    world.uses(a=GI)
    world.sampled()
    assert world.workloads == [("Pod", "a", "")]


def test_a_sidecar_with_the_share_has_the_history_of_the_pod(world: World) -> None:
    """So `gpushare recommend -o patch` prints a comment, not a patch of another container."""
    share = Container("sidecar", {"aliyun.com/gpu-mem": "2"}, restart_policy="Always")
    world.state.on_replace((pod("a", init_containers=(share,)),))
    world.holds("a", containers=("sidecar",))
    world.uses(a=GI)
    world.sampled()
    assert world.workloads == [("Pod", "a", "")]


def test_of_several_containers_the_one_with_the_gpu_is_named(world: World) -> None:
    """A sidecar without a share does not matter."""
    world.state.on_replace((pod("a", "main", "log"),))
    world.uses(a=GI)
    world.sampled()
    assert world.workloads == [("Pod", "a", "main")]


@pytest.mark.parametrize(
    ("kind", "name", "labels", "expected"),
    [
        ("ReplicaSet", "web-7f8d", {"pod-template-hash": "7f8d"}, ("Deployment", "web")),
        ("ReplicaSet", "web", {}, ("ReplicaSet", "web")),
        ("StatefulSet", "db", {}, ("StatefulSet", "db")),
        ("DaemonSet", "agent", {}, ("DaemonSet", "agent")),
        ("Job", "train", {}, ("Job", "train")),
        ("Job", "nightly-29453759", {}, ("CronJob", "nightly")),
        ("Job", "train-20260101", {}, ("Job", "train-20260101")),
    ],
)
def test_a_pod_counts_for_its_workload(
    world: World, kind: str, name: str, labels: Mapping[str, str], expected: tuple[str, str]
) -> None:
    """Found by the names that Kubernetes' controllers give."""
    world.controllers.listed(owned("uid-a", kind, name))
    world.state.on_replace((pod("a", owner="o", labels=labels),))
    world.uses(a=GI)
    world.sampled()
    assert world.workloads == [(*expected, "main")]


def test_an_event_names_the_controller_too(world: World) -> None:
    """A pod that is created while the plugin runs is in no list."""
    (item,) = json.loads(owned("uid-a", "StatefulSet", "db"))["items"]
    created = pod("a", owner="o")
    world.controllers.seen(created, json.dumps({"type": "ADDED", "object": item}).encode())
    world.state.on_replace((created,))
    world.uses(a=GI)
    world.sampled()
    assert world.workloads == [("StatefulSet", "db", "main")]


def test_a_pod_whose_controller_is_not_known_yet_waits(world: World) -> None:
    """It would be a workload of its own."""
    world.state.on_replace((pod("a", owner="o"),))
    world.uses(a=GI)
    world.sampled()
    assert world.workloads == []


def test_controllers_of_pods_that_are_gone_are_forgotten(world: World) -> None:
    """A page is read before its pods are handed over, so the first absence does not count."""
    gone = pod("b", owner="o")
    world.controllers.listed(owned("uid-b", "StatefulSet", "db"))
    world.sampled()
    assert world.controllers.of(gone) is not None
    world.sampled()
    assert world.controllers.of(gone) is None


def test_pods_and_starts_are_counted_once(world: World) -> None:
    """The first pod ran before the plugin did; the second is measured from its start on."""
    world.uses(a=GI)
    world.sampled()
    world.sampled()
    assert (world.history().pods, world.history().starts) == (1, 0)
    world.state.on_replace((pod("b", creation="2026-01-01T01:00:20Z"),))
    world.holds("b")
    world.uses(b=GI)
    world.sampled()
    world.sampled()
    assert (world.history(name="b").pods, world.history(name="b").starts) == (1, 1)


def test_pods_of_a_workload_that_are_first_seen_together_count_each(world: World) -> None:
    """The sample of the first one must not make the second one look old."""
    world.sampled()
    names = ("b", "c")
    for name in names:
        world.controllers.listed(owned(f"uid-{name}", "StatefulSet", "db"))
    young = (pod(name, owner="o", creation="2026-01-01T01:00:20Z") for name in names)
    world.state.on_replace(tuple(young))
    world.holds(*names)
    world.uses(b=GI, c=GI)
    world.sampled()
    found = world.history("StatefulSet", "db")
    assert (found.pods, found.starts, found.samples) == (2, 2, 2)


def test_a_pod_counts_beside_one_of_its_workload_that_runs(world: World) -> None:
    """As in a rollout: samples of the old pod come while the new one pulls its image."""
    for uid in ("uid-b", "uid-c"):
        world.controllers.listed(owned(uid, "StatefulSet", "db"))
    old = pod("b", owner="o", creation="2026-01-01T01:00:05Z")
    world.state.on_replace((old,))
    world.holds("b")
    world.sampled()
    new = pod("c", owner="o", creation="2026-01-01T01:00:20Z")
    world.state.on_replace((old, replace(new, phase="Pending")))
    world.uses(b=GI)
    world.sampled()
    world.state.on_replace((old, new))
    world.holds("b", "c")
    world.uses(b=GI, c=GI)
    world.sampled()
    found = world.history("StatefulSet", "db")
    assert (found.pods, found.starts) == (2, 2)


def test_a_pod_that_has_no_gpus_for_a_moment_counts_once(world: World) -> None:
    """Kubelet's account was empty for a round; that the pod is back is no start of it."""
    world.sampled()
    world.state.on_replace((pod("b", creation="2026-01-01T01:00:20Z"),))
    for held in (("b",), (), ("b",)):
        world.holds(*held)
        world.uses(b=GI)
        world.sampled(START_SECONDS)
    found = world.history(name="b")
    assert (found.pods, found.starts, found.start_peak_bytes) == (1, 1, GI)
    world.uses(b=2 * GI)
    world.sampled()
    assert world.history(name="b").start_peak_bytes == GI


def test_a_restarted_plugin_does_not_count_running_pods_again(world: World) -> None:
    """Their history has samples that are younger than the pod."""
    world.uses(a=GI)
    world.sampled()
    known = world.recorder.histories.all()
    world.recorder = world.started()
    world.recorder.histories.put(known)
    world.sampled()
    assert (world.history().pods, world.history().samples) == (1, 2)


def test_the_peak_of_a_start_is_that_of_its_first_two_minutes(world: World) -> None:
    """Later use is steady use."""
    world.sampled()
    world.state.on_replace((pod("b", creation="2026-01-01T01:00:20Z"),))
    world.holds("b")
    world.uses(b=GI)
    world.sampled()
    world.uses(b=2 * GI)
    world.sampled(START_SECONDS + 1)
    found = world.history(name="b")
    assert (found.start_peak_bytes, found.peak_bytes) == (GI, 2 * GI)


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_only_running_pods_are_recorded(world: World, phase: str) -> None:
    """Others have not begun, or have ended."""
    world.state.on_replace((pod("a", phase=phase),))
    world.uses(a=GI)
    world.sampled()
    assert world.workloads == []


def test_a_claim_is_a_share_too(world: World) -> None:
    """Of the only container, where there is one."""
    world.state.on_replace((pod("c", claims=("own",)),))
    world.state.claims.put(prepared("own", world.state.inventory.gpus[1], 3))
    world.uses(1, c=GI)
    world.sampled()
    found = world.history(name="c")
    assert (found.peak_bytes, found.requested_bytes, found.claims) == (GI, 3 * GI, True)


def test_a_share_of_kubelets_account_is_no_claim(world: World) -> None:
    """Its size is in the limits of a container."""
    world.uses(a=GI)
    world.sampled()
    assert not world.history().claims


def test_a_converted_pod_counts_with_what_its_owner_wrote(world: World) -> None:
    """The webhook made its claim from the limits of its container."""
    converted = pod("c", claims=("own",), annotations={CLAIM_TEMPLATE: "{}"})
    world.state.on_replace((converted,))
    world.state.claims.put(prepared("own", world.state.inventory.gpus[1], 3))
    world.uses(1, c=GI)
    world.sampled()
    assert not world.history(name="c").claims


def test_samples_fade_with_time(world: World) -> None:
    """Once a week, while the plugin runs."""
    world.uses(a=GI)
    for _ in range(8):
        world.sampled()
    world.sampled(FADE_SECONDS)
    assert world.history().samples == 5


def test_a_flood_of_workloads_displaces_its_own_namespace_only(world: World) -> None:
    """The number of histories is bounded, and those of other namespaces stay."""
    world.uses(a=GI)
    world.sampled()
    for number in range(2 * MOST_HISTORIES):
        key = WorkloadKey("flood", "Job", f"job-{number}", "main")
        world.recorder.histories.current(key, world.now).record(world.now + number, GI)
    assert len(world.recorder.histories) == MOST_HISTORIES
    assert world.history().samples == 1
    newest = WorkloadKey("flood", "Job", f"job-{2 * MOST_HISTORIES - 1}", "main")
    assert world.recorder.histories.get(newest) is not None


def test_the_documents_are_those_that_readers_expect(world: World) -> None:
    """Histories, and memory in use now by GPU and pod."""
    world.state.on_replace((pod("a"), pod("b")))
    world.holds("a", "b")
    world.uses(0, a=GI)
    world.sampled()
    assert decode_histories(world.recorder.document()) == world.recorder.histories.all()
    (gpu,) = decode_usage(world.use.document()).gpus
    assert (gpu.uuid, gpu.used_bytes, gpu.unattributed_bytes) == (t4(0).uuid, GI, 0)
    assert [(p.name, p.containers, p.used_bytes) for p in gpu.pods] == [
        ("a", ("main",), GI),
        ("b", ("main",), 0),
    ]


def test_no_number_of_containers_makes_the_document_unreadable(world: World) -> None:
    """A claim is that of all containers of its pod; a tenant chooses how many these are."""
    names = tuple(f"c{number}" for number in range(3 * MOST_CONTAINERS))
    world.state.on_replace((pod("b", *names, claims=("own",)),))
    world.state.claims.put(prepared("own", world.state.inventory.gpus[0], 3))
    world.uses(b=GI)
    ((found,),) = (gpu.pods for gpu in decode_usage(world.use.document()).gpus)
    assert (found.used_bytes, found.containers) == (GI, names[:MOST_CONTAINERS])


@pytest.mark.parametrize(
    ("kind", "name"),
    [("K" * 254, "db"), ("Set", "d" * 254), ("K\x01", "db"), ("Set", "d\N{SNOWMAN}")],
)
def test_no_forged_owner_makes_the_document_unreadable(world: World, kind: str, name: str) -> None:
    """The API server takes any text in an owner reference; escapes would exceed the size."""
    world.state.on_replace((pod("a", owner="o"),))
    world.controllers.listed(owned("uid-a", kind, name))
    world.uses(a=GI)
    world.sampled()
    (found,) = decode_histories(world.recorder.document())
    assert (found.key.kind, found.key.name) == ("Pod", "a")


def test_no_use_makes_the_document_unreadable(world: World) -> None:
    """Far beyond a small share of one GPU, and spread over the large share of another."""
    first, second = world.state.inventory.gpus
    small = prepared("small", second, 1)
    (share,) = small.allocated.devices
    tiny = replace(small.allocated, devices=(replace(share, memory=1 << 20),))
    for claim in (prepared("large", first, 200), replace(small, allocated=tiny)):
        world.state.claims.put(claim)
    world.state.on_replace((pod("b", claims=("large", "small")),))
    world.uses(0, b=GI)
    world.uses(1, b=600 * GI)
    world.sampled()
    (found,) = decode_histories(world.recorder.document())
    assert (found.key.name, found.peak_bytes) == ("b", MOST_BYTES)


def test_figures_of_a_gpu_go_with_it(world: World) -> None:
    """The next round has none of a GPU that left the node."""
    world.uses(0, a=GI)
    world.uses(1)
    inventory = world.state.inventory
    world.state.equip(replace(inventory, gpus=inventory.gpus[1:]))
    world.use.begin()
    assert [gpu.index for gpu in decode_usage(world.use.document()).gpus] == [1]


def test_a_pod_is_idle_from_the_first_measurement_without_memory_on(world: World) -> None:
    """Until it uses some; a GPU without any process is used by nobody."""

    def idle() -> list[tuple[str, float]]:
        (gpu,) = decode_usage(world.use.document()).gpus
        return [(each.name, each.idle_since) for each in gpu.pods]

    world.state.on_replace((pod("a"), pod("b")))
    world.holds("a", "b")
    world.uses(0)
    first = world.now
    world.now += 60
    world.uses(0)
    assert idle() == [("a", first), ("b", first)]
    world.uses(0, a=GI)
    assert idle() == [("a", 0), ("b", first)]
    world.now += 60
    world.uses(0)
    assert idle() == [("a", world.now), ("b", first)]


def test_a_pod_that_might_use_memory_is_not_idle(world: World) -> None:
    """Memory of no known pod may be its own; a GPU that does not answer knows nothing."""
    world.uses(0)
    world.uses(0, unattributed=GI)
    (gpu,) = decode_usage(world.use.document()).gpus
    assert [each.idle_since for each in gpu.pods] == []
    world.uses(0)
    began = world.now
    world.now += 60
    world.use.unanswered(world.state.inventory.gpus[0])
    world.uses(0)
    (gpu,) = decode_usage(world.use.document()).gpus
    assert [each.idle_since for each in gpu.pods] == [began + 60]


def test_idle_times_go_with_their_pods(world: World) -> None:
    """A pod that comes under the same name later begins anew; nothing is kept for ever."""
    world.uses(0)
    world.state.on_replace(())
    world.use.begin()
    assert world.use._idle == {}


def test_a_resized_pod_counts_with_the_request_of_its_owner(world: World) -> None:
    """Else the next pod, which requests what the owner wrote, would have another history."""
    world.state.on_replace((pod("a", annotations={"gpushare/original-memory": "8"}),))
    world.uses(a=GI)
    world.sampled()
    found = world.history()
    assert (found.requested_bytes, found.limit_bytes) == (8 * GI, 8 * GI)
    burst = {"gpushare/original-memory": "8", "gpushare/original-memory-limit": "12"}
    world.state.on_replace((pod("a", annotations=burst),))
    world.sampled()
    assert (world.history().requested_bytes, world.history().limit_bytes) == (8 * GI, 12 * GI)


def test_a_resized_pod_that_fills_its_share_has_reached_that_share(world: World) -> None:
    """Not the larger request of its owner: it needs more than it was given."""
    world.state.on_replace((pod("a", annotations={"gpushare/original-memory": "8"}),))
    world.uses(a=2 * GI)
    world.sampled()
    assert world.history().reached == LimitEvent(world.now, 2 * GI)


@pytest.mark.parametrize("text", ["-1", "eight", str(1 << 19), "9" * 30])
def test_no_forged_original_size_makes_the_document_unreadable(world: World, text: str) -> None:
    """Readers refuse a document with numbers out of range, and with it those of other tenants."""
    unit = MemoryUnit(1 << 24)
    world.state.equip(replace(world.state.inventory, unit=unit))
    world.state.on_replace((pod("a", annotations={"gpushare/original-memory": text}),))
    world.holds("a")
    world.uses(a=GI)
    world.sampled()
    (found,) = decode_histories(world.recorder.document())
    assert found.requested_bytes == 2 * unit.mib << 20
