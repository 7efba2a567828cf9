"""Events of the device plugin, which may create and not change them; counted lists."""

import asyncio
import json
from typing import Any

import pytest
from prometheus_client import REGISTRY

from gpudeviceplugin.cluster.events import WARNING, Events, Subject
from gpudeviceplugin.cluster.informers import Relists, node_named, pods_of
from gpukube.testing.clock import FakeClock


@pytest.fixture
def one_clock(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    """The recorder reads the time of the test."""
    monkeypatch.setattr("gpukube.events.monotonic", clock.now)


POD = Subject("Pod", "p", "team", "uid-p")


class Api:
    """An API server that takes events."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    async def post(self, path: str, body: bytes) -> bytes:
        """Create an event."""
        assert path == "/api/v1/namespaces/team/events"
        self.written.append(json.loads(body))
        return body


@pytest.mark.usefixtures("one_clock")
async def test_two_messages_about_one_object_are_two_events() -> None:
    """A pod can use too much of two GPUs; the second would be counted into the first."""
    api: Any = Api()
    events = Events(api, "n1")
    running = asyncio.create_task(events.run())
    for message in ("GPU 0", "GPU 1", "GPU 0"):
        await events.event(POD, "GpuMemoryOverused", message, kind=WARNING)
    await asyncio.sleep(60)
    assert [each["message"] for each in api.written] == ["GPU 0", "GPU 1"]
    assert {(each["type"], each["source"]["host"]) for each in api.written} == {("Warning", "n1")}
    running.cancel()
    await asyncio.wait({running})


@pytest.mark.usefixtures("one_clock")
async def test_a_repeated_event_is_created_anew() -> None:
    """The role of the plugin has no right to patch events."""
    api: Any = Api()
    events = Events(api, "n1")
    running = asyncio.create_task(events.run())
    for _ in range(2):
        await events.event(POD, "GpuUnhealthy", "GPU 0 is unhealthy")
        await asyncio.sleep(7200)
    assert [each["count"] for each in api.written] == [1, 2]
    assert len({each["metadata"]["name"] for each in api.written}) == 2
    running.cancel()
    await asyncio.wait({running})


def test_complete_lists_are_counted_by_kind() -> None:
    """Many of them are the sign of an API server that is overloaded."""
    labels = {"kind": "nodes"}
    before = REGISTRY.get_sample_value("gpushare_plugin_relists_total", labels) or 0
    Relists().listed("nodes")
    assert REGISTRY.get_sample_value("gpushare_plugin_relists_total", labels) == before + 1


def test_only_this_node_and_its_pods_are_watched() -> None:
    """On a large cluster anything else would be thousands of objects on every node."""
    assert pods_of("n1").params == {"fieldSelector": "spec.nodeName=n1"}
    assert node_named("n1").params == {"fieldSelector": "metadata.name=n1"}
    assert node_named("n1").version_name == "n1"


def test_pages_of_a_list_are_shown_before_their_pods() -> None:
    """A restarted plugin finds in them which containers start."""
    seen: list[bytes] = []
    page = b'{"metadata": {"resourceVersion": "7"}, "items": []}'
    assert not pods_of("n1", seen.append).page_of(page).items
    assert seen == [page]
