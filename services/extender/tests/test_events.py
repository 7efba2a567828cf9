"""Events on pods: best effort, aggregated, never in the way of a bind."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from objects import pod

from gpucore.wire.pods import decode_pod
from gpuextender import events
from gpuextender.events import Recorder
from gpuextender.pace import Pace
from gpukube.errors import NotFoundError, UnreachableError

POD = decode_pod(json.dumps(pod("p", 2, uid="u")).encode())


class FakeApi:
    """Takes events, or fails as it is told."""

    def __init__(self) -> None:
        self.posted: list[Any] = []
        self.patched: list[Any] = []
        self.failures: list[Exception] = []

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> bytes:
        raise AssertionError(f"nothing is read: {path}")

    async def post(self, path: str, body: bytes) -> bytes:
        self._fail()
        self.posted.append(json.loads(body))
        return body

    async def patch(self, path: str, body: bytes) -> bytes:
        self._fail()
        self.patched.append((path, json.loads(body)))
        return body

    def watch(self, path: str, *, params: Mapping[str, str], silence: float) -> Any:
        raise AssertionError(f"nothing is watched: {path}")

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop()


async def written(recorder: Recorder) -> None:
    """Let the recorder write what was said so far."""
    task = asyncio.create_task(recorder.run())
    await recorder.flush(seconds=45)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_is_said_again_later_is_counted_into_the_same_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One event a pod and reason: the second writing is a patch with the count."""
    monkeypatch.setattr(events, "QUIET_SECONDS", 0)
    api = FakeApi()
    recorder = Recorder(api, instance="test")
    recorder.warn(POD, "GpuPlacementFailed", "first")
    await written(recorder)
    recorder.warn(POD, "GpuPlacementFailed", "second")
    await written(recorder)
    [posted], [(path, patch)] = api.posted, api.patched
    assert (posted["count"], posted["type"], posted["message"]) == (1, "Warning", "first")
    assert path.endswith(posted["metadata"]["name"])
    assert (patch["count"], patch["message"]) == (2, "second")


async def test_an_event_that_expired_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server drops events after an hour; a patch of one that is gone becomes a new one."""
    monkeypatch.setattr(events, "QUIET_SECONDS", 0)
    api = FakeApi()
    recorder = Recorder(api, instance="test")
    recorder.note(POD, "GpuPlaced", "first")
    await written(recorder)
    api.failures.append(NotFoundError("PATCH", status=404, message="gone"))
    recorder.note(POD, "GpuPlaced", "second")
    await written(recorder)
    assert [event["message"] for event in api.posted] == ["first", "second"]


async def test_an_event_that_cannot_be_written_is_dropped_and_the_next_one_goes_on() -> None:
    """Nobody waits for an event, and nothing is retried."""
    api = FakeApi()
    api.failures.append(UnreachableError("down"))
    recorder = Recorder(api, instance="test")
    recorder.note(POD, "GpuPlaced", "lost")
    recorder.warn(POD, "GpuPlacementFailed", "kept")
    await written(recorder)
    assert [event["message"] for event in api.posted] == ["kept"]


async def test_a_full_queue_drops_instead_of_growing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded however fast pods are bound."""
    monkeypatch.setattr(events, "QUEUE_LIMIT", 2)
    api = FakeApi()
    recorder = Recorder(api, instance="test")
    for number in range(5):
        recorder.note(POD, f"Reason{number}", "m")
    await written(recorder)
    assert len(api.posted) == 2


async def test_messages_are_cut_to_what_the_api_server_takes() -> None:
    """Longer messages would be refused whole."""
    api = FakeApi()
    recorder = Recorder(api, instance="test")
    recorder.note(POD, "GpuPlaced", "x" * 5000)
    await written(recorder)
    assert len(api.posted[0]["message"]) == 1024


def test_a_burst_goes_at_once_and_the_rest_in_step() -> None:
    """After a burst events are paced: slowly while pods are bound, quickly once it is quiet."""
    pace = Pace(burst=3, quiet=50, busy=5)
    pace.said(100.0)
    assert [pace.turn(100.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert pace.turn(100.0) == pytest.approx(0.2)
    pace.said(100.2)
    assert pace.turn(100.2) == pytest.approx(0.2)
    assert pace.turn(102.0) == 0.0
    turns = [pace.turn(102.0) for _ in range(4)]
    assert turns == pytest.approx([0.0, 0.0, 0.02, 0.04])
    assert [pace.turn(110.0) for _ in range(3)] == [0.0, 0.0, 0.0]
