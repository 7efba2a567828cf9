"""The Binding writer: what it sends, when it sends it again, and what it reports at its end."""

import asyncio
import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from decoded import a_node, a_pod, assume, state_of
from objects import pod

from gpucore.units import NodeName, PodUid
from gpucore.wire.names import DEFAULT_NAMES, EXCLUSIVE
from gpuextender import metrics
from gpuextender.scheduling import binding
from gpuextender.scheduling.binding import BindBatches, BindingWriter, Recorder, WriteResult
from gpukube.errors import UnreachableError
from gpukube.testing.clock import FakeClock
from gpukube.testing.scripted import Reply, ScriptedClient, failure, no_reply

POD = a_pod(pod("p", 2, uid="u", namespace="team"))
NODE = NodeName("n")
DEADLINE = 10.0
LOST = UnreachableError("connection reset")


@pytest.fixture(autouse=True)
def one_clock(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    """The deadline is counted in the time of the loop."""
    monkeypatch.setattr(binding, "monotonic", clock.now)


async def write(api: ScriptedClient, deadline: float = DEADLINE) -> WriteResult:
    """Write a Binding with one annotation."""
    batches = BindBatches(lambda: 0, lambda: 0)
    writer = BindingWriter(api, deadline=deadline, batches=batches)
    return await writer.write(POD, NODE, {"key": "value"})


def pauses(api: ScriptedClient) -> list[float]:
    """Seconds between one request and the next."""
    return [later.at - earlier.at for earlier, later in pairwise(api.requests)]


async def test_the_binding_names_pod_uid_node_and_annotations() -> None:
    """One request carries the UID precondition, the node and every annotation."""
    api = ScriptedClient(b"{}")
    assert await write(api) == WriteResult(written=True)
    [request] = api.requests
    assert (request.method, request.path) == ("POST", "/api/v1/namespaces/team/pods/p/binding")
    assert request.body == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "p",
            "namespace": "team",
            "uid": "u",
            "annotations": {"key": "value"},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
    }


@pytest.mark.parametrize("error", [failure(429), failure(500), failure(503), LOST])
async def test_a_failure_that_may_pass_is_retried_after_a_pause(error: Exception) -> None:
    """429, 5xx and a lost connection lead to the same request again, which is counted."""
    before = metrics.BIND_WRITES._value.get()
    api = ScriptedClient(error, error, b"{}")
    assert await write(api) == WriteResult(written=True)
    assert len({str(request[:3]) for request in api.requests}) == 1
    first, second = pauses(api)
    assert 0.025 <= first <= 0.05
    assert 0.05 <= second <= 0.1
    assert metrics.BIND_WRITES._value.get() == before + 3


async def test_pauses_grow_to_one_second() -> None:
    """A long outage is not answered by ever longer pauses: the deadline is short."""
    api = ScriptedClient(*[failure(429)] * 12, b"{}")
    assert (await write(api, 60.0)).written
    assert all(0.5 <= pause <= 1.0 for pause in pauses(api)[6:])
    assert max(pauses(api)) > 0.5


async def test_retry_after_of_the_server_is_waited_for() -> None:
    """The server's own figure counts where it is longer than the pause."""
    api = ScriptedClient(failure(429, retry_after="3"), b"{}")
    assert (await write(api)).written
    assert pauses(api) == [pytest.approx(3.0)]


@pytest.mark.parametrize("seconds", [10, 60])
async def test_a_retry_that_would_begin_at_the_deadline_or_later_is_not_waited_for(
    clock: FakeClock, seconds: int
) -> None:
    """The scheduler gets the error at once instead of after a wait that helps nobody."""
    api = ScriptedClient(failure(429, "busy", retry_after=str(seconds)))
    began = clock.now()
    assert await write(api) == WriteResult(error="REQUEST: 429 busy")
    assert clock.now() == began


@pytest.mark.parametrize(
    ("first", "silent"), [(failure(500, "lost"), True), (LOST, True), (failure(429), False)]
)
async def test_a_write_that_may_have_been_done_stays_silent_whatever_follows(
    clock: FakeClock, first: Reply, *, silent: bool
) -> None:
    """A 500 may hide a Binding that was stored; the 429s after it do not change that."""
    api = ScriptedClient(first, *[failure(429, "busy")] * 30)
    began = clock.now()
    found = await write(api)
    assert found == WriteResult(silent=silent, error="REQUEST: 429 busy")
    assert len(api.requests) > 5
    assert DEADLINE - 1.0 <= clock.now() - began < DEADLINE


async def test_a_request_without_a_reply_is_given_up_at_the_deadline(clock: FakeClock) -> None:
    """The Binding may have been stored; the error states what happened."""
    began = clock.now()
    found = await write(ScriptedClient(no_reply))
    assert found == WriteResult(silent=True, error="the API server is silent")
    assert clock.now() - began == pytest.approx(DEADLINE)


async def test_the_deadline_is_that_of_all_requests_together(clock: FakeClock) -> None:
    """A later request gets only the seconds that are left."""
    began = clock.now()
    api = ScriptedClient(failure(429, retry_after="4"), no_reply)
    assert (await write(api)).silent
    assert len(api.requests) == 2
    assert clock.now() - began == pytest.approx(DEADLINE)


async def test_no_binding_is_sent_after_the_deadline(clock: FakeClock) -> None:
    """A process that stood still: another one may have given the GPUs to other pods meanwhile."""

    def stand_still() -> None:
        clock.seconds += 2 * DEADLINE

    asyncio.get_running_loop().call_later(0.01, stand_still)
    api = ScriptedClient(failure(429, "busy"), b"{}")
    assert await write(api) == WriteResult(error="REQUEST: 429 busy")
    assert len(api.requests) == 1


async def test_a_bind_that_is_late_before_its_first_request_sends_none() -> None:
    """What is reserved for it is free at once: nothing was sent."""
    api = ScriptedClient(b"{}")
    found = await write(api, deadline=0.0)
    assert found == WriteResult(error="the deadline passed before the Binding was sent")
    assert api.requests == []


@pytest.mark.parametrize("code", [400, 403, 404, 409, 410])
@pytest.mark.parametrize("before", [(), (failure(500),)])
async def test_a_refusal_is_final(code: int, before: tuple[Reply, ...]) -> None:
    """A 4xx ends the attempt, and does not count as silence: the pod reports what happened."""
    api = ScriptedClient(*before, failure(code, "no"))
    assert await write(api) == WriteResult(error=f"REQUEST: {code} no")


def test_a_claim_becomes_annotations_only_where_the_node_has_an_inventory() -> None:
    """The annotations name the GPU and the time of the reservation."""
    state = state_of(a_node("n", 8, 15))
    assume(state, POD, "n", now_ns=77)
    allocation = state.ledger.allocation(PodUid("u"))
    node_info = state.ledger.node(NODE)
    pod_request = state.saw(POD).pod_request
    assert allocation is not None
    assert node_info is not None
    assert pod_request is not None
    found = binding.annotations(allocation, pod_request, DEFAULT_NAMES, node_info)
    assert found["ALIYUN_COM_GPU_MEM_IDX"] == "0"
    assert found["ALIYUN_COM_GPU_MEM_POD"] == "2"
    assert found["ALIYUN_COM_GPU_MEM_ASSUME_TIME"] == "77"
    state.node_gone(NODE)
    ghost = state.ledger.node(NODE)
    assert ghost is not None
    with pytest.raises(ValueError, match="an allocation on n, which has no GPUs"):
        binding.annotations(allocation, pod_request, DEFAULT_NAMES, ghost)


@pytest.mark.parametrize("exclusive", [True, False])
def test_the_annotations_state_whether_the_reserved_share_has_its_gpu_to_itself(
    *, exclusive: bool
) -> None:
    """A restart reads it. The label of the pod may have changed since: the reservation counts."""
    state = state_of(a_node("n", 8, 15))
    assume(state, POD, "n", now_ns=77)
    allocation, node_info = state.ledger.allocation(POD.uid), state.ledger.node(NODE)
    assert allocation is not None
    assert node_info is not None
    allocation = msgspec.structs.replace(allocation, exclusive=exclusive)
    labels = {} if exclusive else {"ack.gpushare.placement": "require-whole-device"}
    pod_request = state.saw(a_pod(pod("p", 2, uid="u", labels=labels))).pod_request
    assert pod_request is not None
    assert pod_request.whole_device is not exclusive
    found = binding.annotations(allocation, pod_request, DEFAULT_NAMES, node_info)
    assert found[EXCLUSIVE] == str(exclusive).lower()


def _event(body: Any) -> dict[str, Any]:
    return body if isinstance(body, dict) else json.loads(bytes(body))


async def test_events_name_the_pod_the_component_and_the_replica() -> None:
    """A warning is one by its type; what was sent is counted."""
    api = ScriptedClient(b"{}", b"{}")
    before = metrics.EVENTS.labels("written")._value.get()
    recorder = Recorder(api, instance="replica-1")
    recorder.note(POD, "GpuPlaced", "Placed: GPU 0")
    recorder.warn(POD, "GpuPlacementFailed", "no GPU")
    task = asyncio.create_task(recorder.run())
    await recorder.flush(seconds=45)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    found = [_event(one.body) for one in api.requests]
    described = {(one["type"], one["reason"], one["message"]) for one in found}
    assert described == {
        ("Normal", "GpuPlaced", "Placed: GPU 0"),
        ("Warning", "GpuPlacementFailed", "no GPU"),
    }
    for one in found:
        involved = one["involvedObject"]
        names = [involved[key] for key in ("kind", "namespace", "name", "uid")]
        assert names == ["Pod", "team", "p", "u"]
        assert one["reportingComponent"] == "gpushare-extender"
        assert one["reportingInstance"] == "replica-1"
    assert metrics.EVENTS.labels("written")._value.get() == before + 2
