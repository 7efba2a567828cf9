"""Pages that take seconds leave threads of the dashboard to the other pages."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from starlette.applications import Starlette
from starlette.testclient import TestClient

from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.cluster.snapshots import decode
from gpuinspect.queries.explain import explain
from gpuinspect.web import frames, turns
from gpuinspect.web.app import make_app
from gpuinspect.web.feed import Feed

SECONDS = 20
MOST = 4


class HeldExplanations:
    """Explanations that take until they are released; counts those at the same time."""

    def __init__(self, real: Any) -> None:
        self._real, self._lock = real, threading.Lock()
        self.started, self.released = threading.Event(), threading.Event()
        self.running = self.most = 0

    def __call__(self, *arguments: Any) -> Any:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.started.set()
        assert self.released.wait(SECONDS)
        with self._lock:
            self.running -= 1
        return self._real(*arguments)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> HeldExplanations:
    """Every explanation is held, and at most four pages may wait."""
    found = HeldExplanations(explain)
    monkeypatch.setattr(frames, "explain", found)
    monkeypatch.setattr(turns, "MOST", MOST)
    return found


def dashboard() -> Starlette:
    """The dashboard of a cluster with one node and one pending pod."""
    cluster = FakeCluster().node("n", gpus=[Gpu(15)]).pod("large", 16, phase="Pending")
    feed = Feed(lambda: decode(cluster.json().encode()), DEFAULT_NAMES, interval_seconds=3600)
    asyncio.run(feed.refresh())
    return make_app(feed)


def test_expensive_pages_of_one_client_leave_the_others_alone(held: HeldExplanations) -> None:
    """Two are computed at a time, those beyond the maximum get 429, and other pages do not wait."""
    with TestClient(dashboard()) as client, ThreadPoolExecutor(MOST + 1) as pool:
        asked = [pool.submit(client.get, "/pods/default/large") for _ in range(MOST + 1)]
        try:
            refused = next(as_completed(asked, SECONDS)).result()
            assert (refused.status_code, refused.headers["Retry-After"]) == (429, "5")
            assert client.get("/whatif").status_code == 429
            assert client.get("/").status_code == 200
        finally:
            held.released.set()
        codes = [each.result(SECONDS).status_code for each in asked]
        assert (codes.count(200), codes.count(429)) == (MOST, 1)
        assert held.most == 2
        assert client.get("/whatif").status_code == 200


def test_the_list_of_pending_pods_takes_turns_until_its_reasons_are_known(
    held: HeldExplanations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All viewers wait for one explanation, and need no thread for that; later lists are quick."""
    with TestClient(dashboard()) as client, ThreadPoolExecutor(MOST + 1) as pool:
        asked = [pool.submit(client.get, "/pods") for _ in range(MOST + 1)]
        try:
            assert next(as_completed(asked, SECONDS)).result().status_code == 429
            assert client.get("/health").status_code == 200
        finally:
            held.released.set()
        codes = [each.result(SECONDS).status_code for each in asked]
        assert (codes.count(200), codes.count(429)) == (MOST, 1)
        monkeypatch.setattr(turns, "MOST", 0)
        assert client.get("/pods").status_code == 200


PER_VIEWER = (
    "/?gib=4",
    "/usage",
    "/usage?label=team",
    "/sizes",
    "/whatif?mem=4",
    "/api/v1/gpus?gib=4",
    "/api/v1/sizes",
)
SHARED = ("/", "/?label=team", "/?gib=none", "/health", "/nodes/n", "/api/v1/gpus?by=pool")


def test_all_that_is_computed_for_each_viewer_takes_turns(
    held: HeldExplanations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where too many wait, such pages and documents are refused; those of the frame are shown."""
    monkeypatch.setattr(turns, "MOST", 1)
    with TestClient(dashboard()) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.get, "/pods/default/large")
        try:
            assert held.started.wait(SECONDS)
            assert {path: client.get(path).status_code for path in PER_VIEWER} == dict.fromkeys(
                PER_VIEWER, 429
            )
            assert {path: client.get(path).status_code for path in SHARED} == dict.fromkeys(
                SHARED, 200
            )
            assert "too many" in client.get("/api/v1/sizes").json()["error"]
        finally:
            held.released.set()
        assert first.result(SECONDS).status_code == 200
        assert [client.get(path).status_code for path in PER_VIEWER] == [200] * len(PER_VIEWER)
