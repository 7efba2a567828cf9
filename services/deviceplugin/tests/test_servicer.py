"""The device plugin protocol, call by call: state in, call, answer and state out."""

import asyncio

import pytest
from fakedriver import t4
from moduletime import Clock
from msgspec.structs import replace
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

from gpucore.model import IsolationMode
from gpucore.node.allocation.allocation_error import AllocationError, AllocationErrorCode
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.grant import GrantPolicy
from gpucore.node.isolation.mps_grant import MpsPlace
from gpucore.units import GIB
from gpudeviceplugin.gpus.devices import NodeHardware
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.proto import deviceplugin_pb2 as api
from gpudeviceplugin.state import NodeState

SECONDS = 60.0


def well(answer: api.ListAndWatchResponse) -> int:
    """How many devices are healthy."""
    return sum(each.health == "Healthy" for each in answer.devices)


async def test_a_change_while_a_list_is_being_sent_is_sent_next() -> None:
    """The send of the first list takes a while; what happens meanwhile is not lost."""
    state = node()
    async with stream(servicer(state)) as answers:
        assert well(await anext(answers)) == 30
        first, second = INVENTORY.gpus
        state.equip(replace(INVENTORY, gpus=(replace(first, healthy=False), second)))
        assert well(await anext(answers)) == 15


async def test_a_list_is_not_sent_again_when_nothing_of_it_changed() -> None:
    """Another mode of a GPU is no news for kubelet; the change after it is."""
    state = node()
    async with stream(servicer(state)) as answers:
        await anext(answers)
        waiting = asyncio.ensure_future(anext(answers))
        first, second = INVENTORY.gpus
        state.equip(replace(INVENTORY, gpus=(replace(first, isolation=IsolationMode.MPS), second)))
        await asyncio.wait({waiting}, timeout=0.05)
        assert not waiting.done()
        state.equip(replace(INVENTORY, gpus=(first,)))
        assert len((await waiting).devices) == 15


async def test_a_withdrawn_resource_offers_nothing_and_its_stream_ends() -> None:
    """The last list of a resource that the node no longer carries is empty."""
    state = node()
    made = servicer(state)
    async with stream(made) as answers:
        await anext(answers)
        made.withdraw()
        made.end()
        assert len((await anext(answers)).devices) == 0
        with pytest.raises(StopAsyncIteration):
            await anext(answers)


async def test_waiting_for_a_pod_is_bounded_on_a_busy_node() -> None:
    """Other pods come and go all the while; kubelet's question is answered in time."""
    state = node()
    busy = asyncio.create_task(_fire(state))
    try:
        async with asyncio.timeout(SECONDS):
            made = servicer(state, patience_seconds=0.1)
            answer = await made.GetPreferredAllocation(preferred(state, 3), CONTEXT)
    finally:
        busy.cancel()
    (container,) = answer.container_responses
    assert len(container.deviceIDs) == 3


async def _fire(state: NodeState) -> None:
    while True:
        await asyncio.sleep(0.001)
        state.pods_changed.fire()


async def test_a_pod_that_arrives_while_kubelet_waits_gets_its_planned_gpu() -> None:
    """The watch is a moment behind kubelet."""
    state = node()
    made = servicer(state, patience_seconds=SECONDS)
    asking = asyncio.ensure_future(made.GetPreferredAllocation(preferred(state, 3), CONTEXT))
    await asyncio.sleep(0)
    state.on_replace((pod("p", {"gpu-mem": 3}, 1),))
    async with asyncio.timeout(SECONDS):
        (container,) = (await asking).container_responses
    assert state.matcher.tables[Resource.MEM].per_device(container.deviceIDs) == {1: 3}


async def test_what_is_allocated_is_held_before_kubelet_is_answered() -> None:
    """The ids count as taken from the next call on, and the reconciler is woken."""
    state = node()
    state.on_replace((pod("p", {"gpu-mem": 3}, 1),))
    seen = state.grant_made.count
    taken = ids(state, 1, 3)
    answer = await servicer(state).Allocate(allocation(taken), CONTEXT)
    assert state.matcher.gpus_held("default", "p") == {1}
    assert state.grant_made.count == seen + 1
    (container,) = answer.container_responses
    assert container.envs["ALIYUN_COM_GPU_MEM_IDX"] == "1"


async def test_a_refusal_takes_nothing_and_has_a_reason() -> None:
    """Ids of two GPUs for a share of one: an error with a sentence, and no holder."""
    state = node()
    both = [*ids(state, 0, 1), *ids(state, 1, 1)]
    with pytest.raises(RefusedError, match=r"FAILED_PRECONDITION: .*GPUs 0 and 1"):
        await servicer(state).Allocate(allocation(both), CONTEXT)
    assert not state.in_use(INVENTORY.gpus[0].index)
    assert state.grant_made.count == 0


async def test_memory_and_compute_under_mps_do_not_contradict_each_other() -> None:
    """Kubelet merges both answers for one container: the threads are those of the compute."""
    state = node(GrantPolicy(mps=MpsPlace("/run/gpushare/mps")))
    gpus = tuple(replace(gpu, isolation=IsolationMode.MPS) for gpu in INVENTORY.gpus)
    state.equip(replace(INVENTORY, gpus=gpus))
    state.on_replace((pod("p", {"gpu-mem": 3, "gpu-core.percentage": 40}, 1),))
    merged: dict[str, str] = {}
    for resource, count in ((Resource.MEM, 3), (Resource.CORE, 40)):
        taken = ids(state, 1, count, resource)
        made = servicer(state, resource)
        answer = await made.Allocate(allocation(taken), CONTEXT)
        for key, value in answer.container_responses[0].envs.items():
            assert merged.setdefault(key, value) == value
    assert merged["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "40"
    assert merged["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=3072M"


def test_a_lost_gpu_and_an_exchanged_one_leave_no_device_behind() -> None:
    """A GPU is exchanged at run time: its ids are unknown from then on."""
    state = node()
    old = ids(state, 1, 1)
    new = inventory_of(NodeHardware("535.1", (t4(0), t4(7))), GIB)
    state.equip(new)
    denial = state.grant(Resource.MEM, tuple(old))
    assert isinstance(denial, AllocationError)
    assert denial.code is AllocationErrorCode.UNKNOWN_DEVICE


async def test_a_call_for_an_unknown_pod_hurries_the_watch_of_pods() -> None:
    """Kubelet has the pod from the API server, so the API server answers again."""
    state = node()
    hurried: list[bool] = []
    state.on_unknown_pod = lambda: hurried.append(True)
    await servicer(state).GetPreferredAllocation(preferred(state, 3), CONTEXT)
    assert hurried


async def test_a_grant_that_waited_for_a_sweep_stands_until_kubelet_has_noted_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One large file keeps a sweep for seconds, in which kubelet's allocations are read."""
    clock, state = Clock(), node()
    clock.rule(monkeypatch, "gpudeviceplugin.state")

    async def sweep_ends() -> None:
        clock.now += 60
        state.sync_from_kubelet([], requested_at=state.settled_turn())

    state.stop_sweep = sweep_ends
    await servicer(state).Allocate(allocation(ids(state, 0, 2)), CONTEXT)
    assert not state.sync_from_kubelet([], requested_at=state.settled_turn())
    whole = state.grant(Resource.GPU, tuple(ids(state, 0, 1, Resource.GPU)))
    assert isinstance(whole, AllocationError)
    assert whole.code == AllocationErrorCode.SHARED_GPU
