"""Pages that take seconds leave threads of the dashboard to the other pages."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
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
        self.released = threading.Event()
        self.running = self.most = 0

    def __call__(self, *arguments: Any) -> Any:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
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


def test_expensive_pages_of_one_client_leave_the_others_alone(held: HeldExplanations) -> None:
    """Two are computed at a time, those beyond the maximum get 429, and other pages do not wait."""
    cluster = FakeCluster().node("n", gpus=[Gpu(15)]).pod("large", 16, phase="Pending")
    feed = Feed(lambda: decode(cluster.json().encode()), DEFAULT_NAMES, interval_seconds=3600)
    asyncio.run(feed.refresh())
    with TestClient(make_app(feed)) as client, ThreadPoolExecutor(MOST + 1) as pool:
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
        assert held.most == turns.AT_ONCE
        assert client.get("/whatif").status_code == 200
