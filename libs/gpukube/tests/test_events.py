"""The event recorder: best effort, aggregated, never in the way of what it reports."""

import asyncio
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest
import structlog

from gpukube import events
from gpukube.client import Body
from gpukube.errors import ConflictError, NotFoundError, UnreachableError
from gpukube.events import EventRecorder, EventSource, ObjectReference
from gpukube.rate_limiter import RateLimiter
from gpukube.testing.clock import FakeClock

POD = ObjectReference("Pod", "p", "default", "u")


@pytest.fixture(autouse=True)
def one_clock(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    """Events age in the time of the loop, which takes none."""
    monkeypatch.setattr(events, "monotonic", clock.now)


class FakeClient:
    """Takes events, or fails as configured."""

    def __init__(self) -> None:
        self.posted: list[Any] = []
        self.patched: list[Any] = []
        self.failures: list[Exception] = []

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> bytes:
        raise AssertionError(f"nothing is read: {path}")

    async def post(self, path: str, body: Body) -> bytes:
        self._fail()
        self.posted.append(json.loads(bytes(body)))
        return b"{}"

    async def patch(self, path: str, body: Body) -> bytes:
        self._fail()
        self.patched.append((path, json.loads(bytes(body))))
        return b"{}"

    async def delete(self, path: str) -> bytes:
        raise AssertionError(f"nothing is deleted: {path}")

    def watch(self, path: str, *, params: Mapping[str, str], silence: float) -> Any:
        raise AssertionError(f"nothing is watched: {path}")

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop()


def recorder_of(client: FakeClient, *, may_patch: bool = True) -> EventRecorder:
    """The recorder of a test."""
    return EventRecorder(client, EventSource("test", "replica", may_patch=may_patch))


async def written(recorder: EventRecorder) -> None:
    """Let the recorder write what was reported so far."""
    task = asyncio.create_task(recorder.run())
    await recorder.flush(seconds=45)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_is_recorded_again_later_is_counted_into_the_same_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One event a pod and reason: the second writing is a patch with the count."""
    monkeypatch.setattr(events, "QUIET_SECONDS", 0)
    api = FakeClient()
    recorder = recorder_of(api)
    recorder.record(POD, "Warning", "GpuPlacementFailed", "first")
    await written(recorder)
    recorder.record(POD, "Warning", "GpuPlacementFailed", "second")
    await written(recorder)
    [posted], [(path, patch)] = api.posted, api.patched
    assert (posted["count"], posted["type"], posted["message"]) == (1, "Warning", "first")
    assert path.endswith(posted["metadata"]["name"])
    assert (patch["count"], patch["message"]) == (2, "second")


async def test_what_is_repeated_without_the_right_to_patch_is_another_event_with_the_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """RBAC of the device plugin allows to create events and nothing else."""
    monkeypatch.setattr(events, "QUIET_SECONDS", 0)
    api = FakeClient()
    recorder = recorder_of(api, may_patch=False)
    for _ in range(2):
        recorder.record(POD, "Warning", "GpuPlacementFailed", "again")
        await written(recorder)
    assert [event["count"] for event in api.posted] == [1, 2]
    assert len({event["metadata"]["name"] for event in api.posted}) == 2


async def test_an_event_whose_reply_was_lost_is_written_again_under_another_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The API server may have stored it, and would refuse a second one of its name for ever."""
    monkeypatch.setattr(events, "QUIET_SECONDS", 0)
    api = FakeClient()
    recorder = recorder_of(api)
    sent: list[str] = []

    async def post(path: str, body: Body) -> bytes:
        name = json.loads(bytes(body))["metadata"]["name"]
        if name in sent:
            raise ConflictError("POST", status=409, message=f'events "{name}" already exists')
        sent.append(name)
        if len(sent) == 1:
            raise UnreachableError("no reply")
        return b"{}"

    monkeypatch.setattr(api, "post", post)
    for _ in range(3):
        recorder.record(POD, "Warning", "GpuPlacementFailed", "again")
        await written(recorder)
    assert len(sent) == 2
    [(path, patch)] = api.patched
    assert path.endswith(sent[1])
    assert patch["count"] == 3


@pytest.mark.parametrize("end", ["a", "-a", ".a"])
async def test_an_event_on_an_object_with_the_longest_name_has_a_valid_name(end: str) -> None:
    """The name of the object is cut: the API server takes no name of more than 253 characters."""
    api = FakeClient()
    recorder = recorder_of(api)
    name = "a" * (253 - 17 - len(end) + 1) + end
    recorder.record(ObjectReference("Pod", name.ljust(253, "a"), "n"), "Warning", "R", "m")
    await written(recorder)
    [posted] = api.posted
    found = posted["metadata"]["name"]
    assert len(found) <= 253
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", found)
    assert posted["involvedObject"]["name"] == name.ljust(253, "a")


async def test_repetitions_are_aggregated_by_topic() -> None:
    """One event for what is reported again at once, one for each topic of the same reason."""
    api = FakeClient()
    recorder = recorder_of(api)
    node = ObjectReference("Node", "n1", uid="n1")
    for gpu in (0, 1, 0, 1, 0):
        recorder.record(node, "Warning", "GpuUnhealthy", f"GPU {gpu}", topic=f"GPU {gpu}")
    await written(recorder)
    assert [event["message"] for event in api.posted] == ["GPU 0", "GPU 1"]
    assert api.posted[0]["metadata"]["namespace"] == "default"
    assert api.posted[0]["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "n1",
        "uid": "n1",
    }


async def test_an_event_that_expired_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server drops events after an hour; a patch of one that is gone becomes a new one."""
    monkeypatch.setattr(events, "QUIET_SECONDS", 0)
    api = FakeClient()
    recorder = recorder_of(api)
    recorder.record(POD, "Normal", "GpuPlaced", "first")
    await written(recorder)
    api.failures.append(NotFoundError("PATCH", status=404, message="gone"))
    recorder.record(POD, "Normal", "GpuPlaced", "second")
    await written(recorder)
    assert [event["message"] for event in api.posted] == ["first", "second"]


async def test_an_event_that_cannot_be_written_is_dropped_and_the_next_one_goes_on() -> None:
    """No caller waits for an event, and no request is retried."""
    api = FakeClient()
    api.failures.append(UnreachableError("down"))
    recorder = recorder_of(api)
    recorder.record(POD, "Normal", "GpuPlaced", "lost")
    recorder.record(POD, "Warning", "GpuPlacementFailed", "kept")
    await written(recorder)
    assert [event["message"] for event in api.posted] == ["kept"]


async def test_a_full_queue_drops_instead_of_growing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded however fast pods are bound."""
    monkeypatch.setattr(events, "QUEUE_LIMIT", 2)
    api = FakeClient()
    recorder = recorder_of(api)
    for number in range(5):
        recorder.record(POD, "Normal", f"Reason{number}", "m")
    await written(recorder)
    assert len(api.posted) == 2


async def test_messages_are_cut_to_what_the_api_server_takes() -> None:
    """Longer messages would be refused whole."""
    api = FakeClient()
    recorder = recorder_of(api)
    recorder.record(POD, "Normal", "GpuPlaced", "x" * 5000)
    await written(recorder)
    assert len(api.posted[0]["message"]) == 1024


def test_a_burst_goes_at_once_and_the_rest_in_step() -> None:
    """After a burst events are paced: slowly while pods are bound, quickly once it is quiet."""
    limiter = RateLimiter(burst=3, quiet=50, busy=5)
    limiter.arrived(100.0)
    assert [limiter.turn(100.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert limiter.turn(100.0) == pytest.approx(0.2)
    limiter.arrived(100.2)
    assert limiter.turn(100.2) == pytest.approx(0.2)
    assert limiter.turn(102.0) == 0.0
    turns = [limiter.turn(102.0) for _ in range(4)]
    assert turns == pytest.approx([0.0, 0.0, 0.02, 0.04])
    assert [limiter.turn(110.0) for _ in range(3)] == [0.0, 0.0, 0.0]


async def test_an_event_carries_what_kubectl_shows() -> None:
    """Source, times, the object and its namespace; a program of a node names the node."""
    api = FakeClient()
    recorder = EventRecorder(api, EventSource("test", "replica", host="n1"))
    recorder.record(POD, "Normal", "GpuPlaced", "m")
    await written(recorder)
    [event] = api.posted
    assert event["metadata"]["name"].startswith("p.")
    assert event.pop("metadata")["namespace"] == "default"
    assert event["firstTimestamp"] <= event["lastTimestamp"]
    for name in ("firstTimestamp", "lastTimestamp"):
        assert datetime.strptime(event.pop(name), "%Y-%m-%dT%H:%M:%S%z").tzinfo is not None
    about = {"kind": "Pod", "name": "p", "namespace": "default", "uid": "u"}
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {"apiVersion": "v1", **about},
        "type": "Normal",
        "reason": "GpuPlaced",
        "message": "m",
        "count": 1,
        "source": {"component": "test", "host": "n1"},
        "reportingComponent": "test",
        "reportingInstance": "replica",
    }


async def test_repetitions_are_written_again_after_the_quiet_time(clock: FakeClock) -> None:
    """Within it they are only counted; the next writing is a patch with all of them."""
    api, outcomes = FakeClient(), list[str]()
    recorder = EventRecorder(api, EventSource("test", "replica"), counted=outcomes.append)
    recorder.record(POD, "Warning", "R", "first")
    await written(recorder)
    clock.seconds += events.QUIET_SECONDS - 0.1
    recorder.record(POD, "Warning", "R", "second")
    await written(recorder)
    assert (len(api.posted), api.patched) == (1, [])
    clock.seconds += 0.1
    recorder.record(POD, "Warning", "R", "third")
    await written(recorder)
    [(path, patch)] = api.patched
    assert path == f"/api/v1/namespaces/default/events/{api.posted[0]['metadata']['name']}"
    assert (patch["count"], patch["message"]) == (3, "third")
    assert patch["lastTimestamp"].endswith("Z")
    assert outcomes == ["written", "aggregated", "written"]


async def test_what_becomes_of_each_event_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event without room in the queue, and one that the API server refuses, are dropped."""
    monkeypatch.setattr(events, "QUEUE_LIMIT", 1)
    api, outcomes = FakeClient(), list[str]()
    recorder = EventRecorder(api, EventSource("test", "replica"), counted=outcomes.append)
    recorder.record(POD, "Normal", "A", "m")
    recorder.record(POD, "Normal", "B", "m")
    assert outcomes == ["dropped"]
    api.failures.append(UnreachableError("down"))
    with structlog.testing.capture_logs() as logs:
        await written(recorder)
    assert outcomes == ["dropped", "dropped"]
    assert logs == [{"event": "event dropped", "error": "down", "log_level": "info"}]


async def test_an_event_that_expired_is_counted_on(clock: FakeClock) -> None:
    """It is created again with the whole count, and patched later."""
    api = FakeClient()
    recorder = recorder_of(api)
    for message in ("first", "second", "third"):
        if message == "second":
            api.failures.append(NotFoundError("PATCH", status=404, message="gone"))
        recorder.record(POD, "Normal", "R", message)
        await written(recorder)
        clock.seconds += events.QUIET_SECONDS
    assert [event["count"] for event in api.posted] == [1, 2]
    name = api.posted[1]["metadata"]["name"]
    assert [(path.rpartition("/")[2], patch["count"]) for path, patch in api.patched] == [(name, 3)]


async def test_only_so_many_events_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten: its repetition is an event of its own."""
    monkeypatch.setattr(events, "REMEMBERED", 2)
    api = FakeClient()
    recorder = recorder_of(api)
    for reason in ("A", "B", "C", "B", "A"):
        recorder.record(POD, "Normal", reason, "m")
    await written(recorder)
    assert [event["reason"] for event in api.posted] == ["A", "B", "C", "A"]


async def test_a_repetition_of_an_event_that_was_dropped_is_no_part_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where too many wait it is dropped as well, and written as soon as there is room."""
    monkeypatch.setattr(events, "QUEUE_LIMIT", 1)
    api, fates = FakeClient(), list[str]()
    recorder = EventRecorder(api, EventSource("test", "replica"), counted=fates.append)
    for reason in ("A", "B", "B"):
        recorder.record(POD, "Normal", reason, "m")
    assert fates == ["dropped", "dropped"]
    await written(recorder)
    recorder.record(POD, "Normal", "B", "m")
    await written(recorder)
    assert [(event["reason"], event["count"]) for event in api.posted] == [("A", 1), ("B", 3)]


async def test_events_are_paced_after_a_burst(clock: FakeClock) -> None:
    """Twenty at once, then five a second while new ones arrive and fifty once none do."""
    api = FakeClient()
    recorder = recorder_of(api)
    for number in range(40):
        recorder.record(POD, "Normal", f"R{number}", "m")
    began = clock.now()
    task = asyncio.create_task(recorder.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    assert len(api.posted) == 20
    await asyncio.sleep(0.8)
    assert 23 <= len(api.posted) <= 25
    await recorder.flush(seconds=45)
    assert len(api.posted) == 40
    assert clock.now() - began < 3
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_stop_waits_for_events_a_bounded_time(clock: FakeClock) -> None:
    """What is left unwritten is counted in the log."""
    recorder = recorder_of(FakeClient())
    recorder.record(POD, "Normal", "R", "m")
    began = clock.now()
    with structlog.testing.capture_logs() as logs:
        await recorder.flush(seconds=1)
    assert clock.now() - began == pytest.approx(1)
    assert logs == [{"event": "events not written", "count": 1, "log_level": "warning"}]
