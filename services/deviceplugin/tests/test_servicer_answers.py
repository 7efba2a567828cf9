"""Each answer of the device plugin protocol: its content, its metrics, and what it changes."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY
from servicercalls import (
    CONTEXT,
    INVENTORY,
    RefusedError,
    allocation,
    ids,
    node,
    pod,
    preferred,
    servicer,
    stream,
)
from structlog.testing import capture_logs

from gpucore.model import IsolationMode
from gpucore.node.allocation.allocation_error import AllocationErrorCode
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.grant import GrantPolicy
from gpucore.node.isolation.cdi import CdiDevice
from gpucore.node.isolation.mps_grant import MpsPlace
from gpucore.units import GpuIndex, GpuUuid
from gpucore.wire.names import START_TURN_WORDS
from gpudeviceplugin.proto import deviceplugin_pb2 as api
from gpudeviceplugin.state import NodeState
from gpukube.testing.clock import FakeClock


def sample(name: str, **labels: str) -> float:
    """The value of a metric now; 0 where it has none."""
    return REGISTRY.get_sample_value(f"gpushare_plugin_{name}", labels) or 0.0


def limited(policy: GrantPolicy | None = None) -> NodeState:
    """A node whose GPUs are in mode mps and whose shares are delivered by CDI."""
    place = MpsPlace("/run/gpushare/mps", read_only=True)
    state = node(policy or GrantPolicy(mps=place, cdi=True, cdi_kind="nvidia.com/gpu"))
    gpus = tuple(replace(gpu, isolation=IsolationMode.MPS) for gpu in INVENTORY.gpus)
    state.equip(replace(INVENTORY, gpus=gpus))
    return state


async def test_the_plugin_wants_to_state_a_preference_and_no_call_before_a_start() -> None:
    """The options are those that the registration carries."""
    made = servicer(node())
    options = await made.GetDevicePluginOptions(api.Empty(), CONTEXT)
    assert options.get_preferred_allocation_available
    assert not options.pre_start_required
    request = api.PreStartContainerRequest()
    assert await made.PreStartContainer(request, CONTEXT) == api.PreStartContainerResponse()


async def test_devices_carry_health_and_where_wanted_the_numa_node() -> None:
    """GPU 0 is unhealthy; of GPU 2 the NUMA node is unknown."""
    state = node()
    first, second = INVENTORY.gpus
    third = replace(second, index=GpuIndex(2), uuid=GpuUuid("GPU-2"), numa=-1)
    gpus = (replace(first, healthy=False, numa=0), replace(second, numa=1), third)
    state.equip(replace(INVENTORY, gpus=gpus))
    found = servicer(state, Resource.GPU, numa_hints=True).devices().devices
    assert [each.ID for each in found] == [first.uuid, second.uuid, "GPU-2"]
    assert [each.health for each in found] == ["Unhealthy", "Healthy", "Healthy"]
    assert [[one.ID for one in each.topology.nodes] for each in found] == [[0], [1], []]
    assert [each.HasField("topology") for each in found] == [True, True, False]
    plain = servicer(state, Resource.GPU).devices().devices
    assert not any(each.HasField("topology") for each in plain)


async def test_a_list_as_long_as_kubelet_reads_is_offered_and_a_longer_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is offered, and the log has the size: kubelet would read nothing at all."""
    made = servicer(node())
    size = made.devices().ByteSize()
    monkeypatch.setattr("gpudeviceplugin.kubelet.servicer.MESSAGE_LIMIT", size)
    assert len(made.devices().devices) == 30
    monkeypatch.setattr("gpudeviceplugin.kubelet.servicer.MESSAGE_LIMIT", size - 1)
    with capture_logs() as logged:
        assert made.devices() == api.ListAndWatchResponse()
    (line,) = logged
    assert (line["log_level"], line["bytes"]) == ("error", size)
    assert line["event"] == "too many devices for kubelet; none is advertised"


async def test_the_number_of_devices_is_a_metric_of_the_resource() -> None:
    """It follows each list that is sent, the empty one of a withdrawal included."""
    state = node()
    made = servicer(state, Resource.CORE)
    resource = str(Resource.CORE)
    async with stream(made) as answers:
        await anext(answers)
        assert sample("devices", resource=resource) == 200
        made.withdraw()
        state.inventory_changed.fire()
        assert len((await anext(answers)).devices) == 0
        assert sample("devices", resource=resource) == 0


async def test_devices_count_as_listed_once_the_message_was_taken(clock: FakeClock) -> None:
    """Not while it is being sent, not for the server before a restart, and not forever."""
    made = servicer(node())
    began = clock.seconds
    assert not await made.listed(2.0)
    assert clock.seconds == began + 2.0
    async with stream(made) as answers:
        await anext(answers)
        assert not await made.listed(0.0)
        waiting = asyncio.ensure_future(anext(answers))
        assert await made.listed(2.0)
        assert clock.seconds == began + 2.0
        waiting.cancel()
        await asyncio.wait({waiting})
    made.begin()
    assert not await made.listed(0.0)


async def test_devices_count_as_unwatched_while_kubelet_has_no_stream(clock: FakeClock) -> None:
    """From the begin of the server on, and from the end of the last stream."""
    made = servicer(node())
    await asyncio.sleep(10)
    assert made.unwatched_seconds == 0
    made.begin()
    await asyncio.sleep(10)
    assert made.unwatched_seconds == 10
    async with stream(made) as first, stream(made) as second:
        await anext(first)
        await anext(second)
        await second.aclose()
        await asyncio.sleep(10)
        assert made.unwatched_seconds == 0
    await asyncio.sleep(5)
    assert made.unwatched_seconds == 5


async def test_a_server_that_begins_again_keeps_its_streams_open() -> None:
    """The end of the streams before was the end of those alone."""
    state = node()
    made = servicer(state)
    made.end()
    made.begin()
    async with stream(made) as answers:
        await anext(answers)
        waiting = asyncio.ensure_future(anext(answers))
        await asyncio.wait({waiting}, timeout=0.01)
        assert not waiting.done()
        state.equip(replace(INVENTORY, gpus=INVENTORY.gpus[:1]))
        assert len((await waiting).devices) == 15


async def test_streams_end_as_soon_as_they_are_stopped() -> None:
    """A stop of the server need not wait for kubelet."""
    made = servicer(node())
    async with stream(made) as answers:
        await anext(answers)
        waiting = asyncio.ensure_future(anext(answers))
        await asyncio.sleep(0)
        made.end()
        with pytest.raises(StopAsyncIteration):
            await waiting


async def test_a_preference_for_each_container_in_the_order_of_the_request() -> None:
    """Two containers of a pod: both on its GPU, each with its own amount."""
    state = node()
    before = sample("call_seconds_count", call="GetPreferredAllocation", resource="gpu-mem")
    answer = await servicer(state).GetPreferredAllocation(preferred(state, 3, 2), CONTEXT)
    assert [len(each.deviceIDs) for each in answer.container_responses] == [3, 2]
    after = sample("call_seconds_count", call="GetPreferredAllocation", resource="gpu-mem")
    assert after == before + 1


async def test_what_kubelet_must_include_decides_the_gpu() -> None:
    """An init container of the pod had ids of GPU 1: the container gets them, and more of GPU 1."""
    state = node()
    must = ids(state, 1, 2)
    request = preferred(state, 3)
    request.container_requests[0].must_include_deviceIDs.extend(must)
    (container,) = (
        await servicer(state).GetPreferredAllocation(request, CONTEXT)
    ).container_responses
    assert set(must) < set(container.deviceIDs)
    assert state.matcher.tables[Resource.MEM].per_device(container.deviceIDs) == {1: 3}


async def test_only_ids_that_kubelet_calls_available_are_preferred() -> None:
    """GPU 0 is the pod's plan, but kubelet has only ids of GPU 1 left."""
    state = node()
    state.on_replace((pod("p", {"gpu-mem": 3}, 0),))
    request = preferred(state, 3)
    del request.container_requests[0].available_deviceIDs[:]
    request.container_requests[0].available_deviceIDs.extend(ids(state, 1, 15))
    answer = await servicer(state).GetPreferredAllocation(request, CONTEXT)
    taken = answer.container_responses[0].deviceIDs
    assert state.matcher.tables[Resource.MEM].per_device(taken) == {1: 3}


async def test_a_refusal_shows_kubelet_no_other_pod_and_logs_them() -> None:
    """Kubelet writes the error into the status of the pod, which a tenant reads."""
    state = node()
    state.on_update(pod("secret", {"gpu-mem": 3}, 0), b"")
    ids = state.matcher.tables[Resource.MEM].ids
    await servicer(state).Allocate(allocation(list(ids[GpuIndex(0)][:3])), CONTEXT)
    whole = state.matcher.tables[Resource.GPU].ids[GpuIndex(0)]
    with capture_logs() as logged, pytest.raises(RefusedError) as refused:
        await servicer(state, Resource.GPU).Allocate(allocation(list(whole)), CONTEXT)
    assert str(refused.value) == "FAILED_PRECONDITION: GPU 0 is shared by one other pod"
    assert logged[-1]["pods"] == ("default/secret",)


async def test_a_preference_that_no_gpu_can_serve_is_refused_with_its_reason() -> None:
    """More than a GPU has: kubelet shows the sentence in the status of the pod."""
    state = node()
    with (
        capture_logs() as logged,
        pytest.raises(RefusedError, match=r"^FAILED_PRECONDITION: ."),
    ):
        await servicer(state).GetPreferredAllocation(preferred(state, 16), CONTEXT)
    refusal = logged[-1]
    assert (refusal["event"], refusal["log_level"]) == ("refused", "warning")
    assert (refusal["resource"], refusal["code"]) == ("gpu-mem", "NoGpuFits")
    assert refusal["why"]
    assert sample("refusals_total", resource="gpu-mem", code="NoGpuFits") > 0


async def test_other_pods_that_come_meanwhile_do_not_make_the_wait_longer(
    clock: FakeClock,
) -> None:
    """Kubelet admits no other pod while it waits; on a busy node a pod may change every moment."""
    state = node()
    began = clock.seconds

    async def busy() -> None:
        while True:
            await asyncio.sleep(0.1)
            state.pods_changed.fire()

    changing = asyncio.create_task(busy())
    async with asyncio.timeout(60):
        await servicer(state, patience_seconds=0.35).GetPreferredAllocation(
            preferred(state, 3), CONTEXT
        )
    assert clock.seconds == pytest.approx(began + 0.35)
    changing.cancel()


async def test_a_pod_that_is_not_known_is_waited_for_and_then_served(clock: FakeClock) -> None:
    """The wait is the setting, and the log has what was requested."""
    state = node()
    began = clock.seconds
    with capture_logs() as logged:
        answer = await servicer(state, patience_seconds=0.3).GetPreferredAllocation(
            preferred(state, 3), CONTEXT
        )
    assert clock.seconds == pytest.approx(began + 0.3)
    assert len(answer.container_responses[0].deviceIDs) == 3
    (line,) = logged
    assert line == {
        "event": "no known pod matches this call",
        "log_level": "info",
        "resource": Resource.MEM,
        "amount": 3,
    }


async def test_an_allocation_for_a_known_pod_names_it_in_log_and_metric() -> None:
    """Allocations of an unknown pod are counted apart."""
    state = node()
    state.on_replace((pod("p", {"gpu-mem": 3}, 1),))
    made = servicer(state)
    known = sample("allocations_total", resource="gpu-mem", known="true")
    unknown = sample("allocations_total", resource="gpu-mem", known="false")
    calls = sample("call_seconds_count", call="Allocate", resource="gpu-mem")
    with capture_logs() as logged:
        await made.Allocate(allocation(ids(state, 1, 3)), CONTEXT)
        assert sample("allocations_total", resource="gpu-mem", known="true") == known + 1
        assert sample("allocations_total", resource="gpu-mem", known="false") == unknown
        await made.Allocate(allocation(ids(state, 0, 2)), CONTEXT)
    assert [line["event"] for line in logged] == ["granted", "granted"]
    assert [line["pod"] for line in logged] == ["default/p", ""]
    assert [line["gpus"] for line in logged] == [{1: 3}, {0: 2}]
    assert {line["resource"] for line in logged} == {Resource.MEM}
    assert sample("allocations_total", resource="gpu-mem", known="true") == known + 1
    assert sample("allocations_total", resource="gpu-mem", known="false") == unknown + 1
    assert sample("call_seconds_count", call="Allocate", resource="gpu-mem") == calls + 2


async def test_an_answer_has_environment_mounts_and_cdi_devices_of_the_grant() -> None:
    """One answer for each container, in order; the directory of pipes is mounted read-only."""
    state = limited()
    answer = await servicer(state).Allocate(
        allocation(ids(state, 0, 3), ids(state, 1, 15)), CONTEXT
    )
    first, second = answer.container_responses
    uuids = [gpu.uuid for gpu in INVENTORY.gpus]
    threads = [
        each.envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] for each in answer.container_responses
    ]
    assert threads == ["20", "100"]
    pipe, shm = first.mounts
    place = f"/run/gpushare/mps/{uuids[0]}/pipe"
    assert (pipe.host_path, pipe.container_path, pipe.read_only) == (place, place, True)
    assert (shm.host_path, shm.container_path) == ("/run/gpushare/mps/shm", "/dev/shm")
    assert not shm.read_only
    share, gpu = (each.name for each in second.cdi_devices)
    assert share.startswith("gpushare.io/share=gpu-mem-")
    assert gpu == f"nvidia.com/gpu={uuids[1]}"


async def test_memory_beside_compute_leaves_the_threads_to_compute() -> None:
    """Of a pod that requests memory alone, memory sets the threads."""
    state = limited(GrantPolicy(mps=MpsPlace("/run/gpushare/mps")))
    state.on_replace((pod("p", {"gpu-mem": 3, "gpu-core.percentage": 40}, 1),))
    made = servicer(state)
    both = await made.Allocate(allocation(ids(state, 1, 3)), CONTEXT)
    alone = await made.Allocate(allocation(ids(state, 0, 6)), CONTEXT)
    threads = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    assert threads not in both.container_responses[0].envs
    assert alone.container_responses[0].envs[threads] == "40"


async def test_a_pod_that_may_borrow_is_not_held_to_its_share_by_the_toolkit() -> None:
    """The driver's limit of its cgroup is larger; a pod without a limit of its own has both."""
    state = node()
    gpus = tuple(replace(gpu, isolation=IsolationMode.DRIVER) for gpu in INVENTORY.gpus)
    state.equip(replace(INVENTORY, gpus=gpus))
    plain = pod("p", {"gpu-mem": 3}, 0)
    borrowing = pod("q", {"gpu-mem": 4}, 1)
    texts = {**borrowing.annotations, "gpushare/memory-limit": "9"}
    state.on_replace((plain, replace(borrowing, annotations=texts)))
    made = servicer(state)
    found = []
    for gpu, amount in ((0, 3), (1, 4)):
        answer = await made.Allocate(allocation(ids(state, gpu, amount)), CONTEXT)
        found.append("NVIDIA_GPU_MEMORY_LIMIT" in answer.container_responses[0].envs)
    assert found == [True, False]


@pytest.mark.parametrize(
    ("why", "code"),
    [
        ("the limit is not in force", "LimitMissing"),
        (f"{START_TURN_WORDS}: pod a/b is starting on the same GPU", "WaitsForTurn"),
    ],
)
async def test_a_refused_start_is_counted_and_names_its_reason(why: str, code: str) -> None:
    """Kubelet shows the sentence in an event on the pod; an allowed start counts nothing."""
    reasons = [why, ""]
    asked: list[tuple[str, ...]] = []

    async def check(found: tuple[str, ...]) -> str:
        asked.append(found)
        return reasons.pop(0)

    made = servicer(node(), before_start=check)
    assert made.options.pre_start_required
    request = api.PreStartContainerRequest(devicesIDs=["a", "b"])
    before = sample("refusals_total", resource="gpu-mem", code=code)
    with pytest.raises(RefusedError, match=rf"^FAILED_PRECONDITION: {why}$"):
        await made.PreStartContainer(request, CONTEXT)
    assert await made.PreStartContainer(request, CONTEXT) == api.PreStartContainerResponse()
    assert asked == [("a", "b")] * 2
    assert sample("refusals_total", resource="gpu-mem", code=code) == before + 1


@pytest.mark.parametrize("code", AllocationErrorCode)
def test_refusals_are_counted_from_zero(code: str) -> None:
    """Prometheus has no increase of a series that begins with a burst of refusals."""
    labels = {"resource": str(Resource.CORE), "code": code}
    servicer(node(), Resource.CORE)
    assert REGISTRY.get_sample_value("gpushare_plugin_refusals_total", labels) is not None


async def test_the_cdi_file_is_there_before_kubelet_is_answered() -> None:
    """The file is of the device that the answer names, and belongs to what is held by then."""
    state = limited()
    delivered: list[CdiDevice] = []

    def deliver(device: CdiDevice) -> None:
        assert state.in_use(INVENTORY.gpus[1].index)
        delivered.append(device)

    state.deliver = deliver
    answer = await servicer(state).Allocate(allocation(ids(state, 1, 3)), CONTEXT)
    (device,) = delivered
    assert answer.container_responses[0].cdi_devices[0].name == device.qualified_name


async def test_a_share_whose_cdi_file_cannot_be_written_is_refused() -> None:
    """A container without its limits would be worse than one that waits."""
    state = limited()

    def full(_: Any) -> None:
        raise OSError(28, "No space left on device")

    state.deliver = full
    before = sample("refusals_total", resource="gpu-mem", code="NoCdiFile")
    words = r"^FAILED_PRECONDITION: cannot write the CDI file that limits the container: .*No space"
    with pytest.raises(RefusedError, match=words):
        await servicer(state).Allocate(allocation(ids(state, 1, 3)), CONTEXT)
    assert sample("refusals_total", resource="gpu-mem", code="NoCdiFile") == before + 1


async def test_without_cdi_nothing_is_delivered() -> None:
    """An answer by environment alone writes no file."""
    state = limited(GrantPolicy(mps=MpsPlace("/run/gpushare/mps")))
    delivered: list[CdiDevice] = []
    state.deliver = delivered.append
    await servicer(state).Allocate(allocation(ids(state, 1, 3)), CONTEXT)
    assert delivered == []
