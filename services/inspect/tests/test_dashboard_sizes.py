"""The page of used against requested memory, and how its figures are read."""

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from fakeapiserver import FakeApiServer
from fakeprometheus import serving
from invoking import Run
from measuredworkloads import history
from recordedseries import RecordedPod, RecordedSeries
from starlette.testclient import TestClient
from test_memory_in_use import plugin

from gpucore.sizing.history_documents import encode_histories
from gpucore.sizing.usage_history import UsageHistory
from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.cluster.snapshots import Snapshot, decode
from gpuinspect.cluster.usage_histories import ReadHistories, of_snapshot
from gpuinspect.commands.admin import dashboard as command
from gpuinspect.queries.sizes import read_histories, sizes_of
from gpuinspect.web import sizing
from gpuinspect.web.app import _versions, make_app
from gpuinspect.web.feed import Feed
from gpuinspect.web.pages.sizespage import SHOWN
from gpuinspect.web.sizing import CACHE_SECONDS, CachedSizes
from gpukube.blocking import BlockingClient
from gpukube.errors import InvalidReplyError

pytestmark = pytest.mark.slow

ROWS = re.compile(r'<th scope="row" data-head="Workload">([^<]*)</th>')


class FakeHistories:
    """Histories that a test changes; a read that is held back ends once it is released."""

    def __init__(self, *items: UsageHistory) -> None:
        self.items = items
        self.unread: tuple[tuple[str, str], ...] = ()
        self.forbidden = self.error = ""
        self.reads = 0
        self.released = threading.Event()
        self.released.set()

    def __call__(self, snapshot: Snapshot) -> ReadHistories:
        del snapshot
        self.reads += 1
        assert self.released.wait(60)
        if self.error:
            raise InvalidReplyError(self.error)
        return ReadHistories(self.items, self.unread, self.forbidden)


class Clock:
    """Seconds that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def running(count: int, workload: str, units: int) -> FakeCluster:
    """A node whose pods belong to a Deployment."""
    cluster = FakeCluster().node("n1", gpus=[Gpu(80)] * 2)
    owner = {"kind": "ReplicaSet", "name": f"{workload}-7f8d", "controller": True}
    labels = {"pod-template-hash": "7f8d"}
    for number in range(count):
        metadata = {"ownerReferences": [owner], "labels": labels}
        cluster.pod(f"{workload}-7f8d-{number}", units, node="n1", index=0, metadata=metadata)
    return cluster


def feed_of(
    read: Callable[[Snapshot], ReadHistories],
    cluster: FakeCluster | None = None,
    *,
    clock: Callable[[], float] | None = None,
) -> Feed:
    """A feed of a cluster; ``read`` gives the histories."""
    raw = (cluster or FakeCluster().node("n1", gpus=[Gpu(80)])).json().encode()
    sizes = CachedSizes(sizes_of(read), clock=clock or Clock())
    return Feed(lambda: decode(raw), DEFAULT_NAMES, interval_seconds=3600, sizes=sizes)


def opened(feed: Feed) -> TestClient:
    """The dashboard once the feed has read."""
    asyncio.run(feed.refresh())
    return TestClient(make_app(feed))


def cells(text: str, head: str) -> list[str]:
    """The texts of a column."""
    return re.findall(rf'data-head="{head}">([^<]*)<', text)


def test_a_row_has_what_was_requested_used_and_recommended() -> None:
    """The figures of ``gpushare recommend``, in GiB, and the waste of all pods that run."""
    read = FakeHistories(history("web", 2, 3, 6))
    text = opened(feed_of(read, running(3, "web", 16))).get("/sizes").text
    assert ROWS.findall(text) == ["default/deployment/web"]
    assert cells(text, "Requested") == ["16"]
    assert cells(text, "Used p50 / p95 / max") == ["3.2 / 6.0 / 6.0"]
    assert cells(text, "Recommended") == ["7"]
    assert cells(text, "Pods") == ["3"]
    assert cells(text, "Waste of a pod") == ["10.0"]
    assert cells(text, "Waste") == ["30.0"]
    assert "it used at most 6.0 GiB, with a margin of 15 %" in text
    assert "30.0 of 48.0 GiB that running pods request were never used (62 %)." in text


def test_amounts_are_in_gib_where_nodes_count_in_mib() -> None:
    """Recommended sizes too."""
    cluster = FakeCluster().node("n1", gpus=[Gpu(81920)], unit="MiB")
    text = opened(feed_of(FakeHistories(history("web", 2, 3, 6)), cluster)).get("/sizes").text
    assert cells(text, "Requested") == ["16"]
    assert cells(text, "Recommended") == ["6.9"]
    assert cells(text, "Waste of a pod") == ["10.0"]


def test_rows_are_sorted_by_waste_and_as_chosen() -> None:
    """Waste counts the pods that run; without a choice it decides."""
    read = FakeHistories(
        history("web", 6, requested=16),
        history("idle", 1, requested=40),
        history("w-10", 2, requested=10),
        history("w-2", 2, requested=60),
    )
    client = opened(feed_of(read, running(2, "web", 16)))
    for sort, expected in {
        "": ["web", "w-2", "idle", "w-10"],
        "waste of a pod": ["w-2", "idle", "web", "w-10"],
        "requested": ["w-2", "idle", "web", "w-10"],
        "name": ["idle", "w-2", "w-10", "web"],
        "nonsense": ["web", "w-2", "idle", "w-10"],
    }.items():
        found = ROWS.findall(client.get("/sizes", params={"sort": sort}).text)
        assert [name.rpartition("/")[2] for name in found] == expected, sort


def test_rows_are_filtered_and_bounded() -> None:
    """By a part of namespace, kind or name; beyond the bound they are counted."""
    many = [history(f"w-{number}", 2) for number in range(SHOWN + 7)]
    client = opened(feed_of(FakeHistories(history("odd", 2, namespace="team"), *many)))
    text = client.get("/sizes").text
    assert len(ROWS.findall(text)) == SHOWN
    assert "and 8 more" in text
    assert ROWS.findall(client.get("/sizes?q=team/dep").text) == ["team/deployment/odd"]
    assert "No workload matches the filter." in client.get("/sizes?q=none").text


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "No memory was measured: no device plugin of this version runs."),
        (
            {"forbidden": "gpushare", "unread": (("n1", "forbidden"),)},
            "No memory was measured: the right to get pods/proxy in namespace gpushare is missing.",
        ),
        (
            {"unread": (("n1", "it was not read in time"),)},
            "Nothing was read of 1 node, such as n1: it was not read in time.",
        ),
        ({"error": "down"}, "The memory of workloads cannot be read: down."),
    ],
)
def test_the_reason_for_an_empty_page_is_a_sentence(change: dict[str, Any], expected: str) -> None:
    """Without figures there is no table and no form."""
    read = FakeHistories()
    for name, value in change.items():
        setattr(read, name, value)
    text = opened(feed_of(read)).get("/sizes").text
    assert f'<p class="problem">{expected}</p>' in text
    assert "<table" not in text
    assert "<form" not in text


def test_plugins_that_measured_nothing_yet_are_the_reason() -> None:
    """They run, and have no history."""
    text = opened(feed_of(FakeHistories(), FakeCluster().add(plugin("n1")))).get("/sizes").text
    assert "No memory was measured yet: the device plugin measures the pods of its node" in text


def test_a_snapshot_without_histories_says_so() -> None:
    """It has none but those that were added."""
    sizes = CachedSizes(sizes_of(of_snapshot, of_file=True))
    raw = FakeCluster().node("n1", gpus=[Gpu(80)]).json().encode()
    feed = Feed(lambda: decode(raw), DEFAULT_NAMES, interval_seconds=3600, sizes=sizes)
    text = opened(feed).get("/sizes").text
    assert "the snapshot has no histories of workloads (kind UsageHistoryList)" in text


def test_figures_are_read_once_a_minute() -> None:
    """However many viewers ask; a failure keeps the last figures, with the reason."""
    read, clock = FakeHistories(history("web", 2)), Clock()
    client = opened(feed_of(read, clock=clock))
    for _ in range(3):
        client.get("/sizes")
    assert read.reads == 1
    clock.now = CACHE_SECONDS
    read.error = "the API server is away"
    client.get("/sizes")
    texts = (client.get("/sizes").text for _ in range(10_000))
    text = next(text for text in texts if "the API server is away" in text)
    assert ROWS.findall(text) == ["default/deployment/web"]
    assert read.reads == 2


@pytest.fixture
def held_back() -> Iterator[FakeHistories]:
    """Histories whose read ends once a test releases it, or has ended."""
    read = FakeHistories(history("web", 2))
    read.released.clear()
    yield read
    read.released.set()


async def test_slow_plugins_hold_up_neither_the_feed_nor_the_page(
    monkeypatch: pytest.MonkeyPatch, held_back: FakeHistories
) -> None:
    """The page says that they are being read, and viewers are notified of the figures."""
    monkeypatch.setattr(sizing, "WAIT_SECONDS", 0.01)
    feed = feed_of(held_back)
    running_feed = asyncio.create_task(feed.run())
    listener = _versions(feed)
    await anext(listener)
    await asyncio.wait_for(anext(listener), 60)
    client = TestClient(make_app(feed))
    page = await asyncio.wait_for(asyncio.to_thread(client.get, "/sizes"), 30)
    assert "are being read; the page shows them once they are there" in page.text
    await asyncio.wait_for(asyncio.to_thread(client.get, "/sizes"), 30)
    await asyncio.wait_for(feed.refresh(), 60)
    news = asyncio.ensure_future(anext(listener))
    held_back.released.set()
    assert "data: " in await asyncio.wait_for(news, 60)
    page = await asyncio.to_thread(client.get, "/sizes")
    assert ROWS.findall(page.text) == ["default/deployment/web"]
    assert held_back.reads == 1
    running_feed.cancel()
    await asyncio.gather(running_feed, return_exceptions=True)


def with_prometheus(run: Run, monkeypatch: pytest.MonkeyPatch, series: RecordedSeries) -> str:
    """The page of sizes of a dashboard with the address of a Prometheus."""
    made: list[Feed] = []

    def keep(*args: Any, **more: Any) -> Feed:
        made.append(Feed(*args, **more))
        return made[0]

    monkeypatch.setattr(command, "Feed", keep)
    monkeypatch.setattr(command, "listen", lambda *_: asyncio.run(made[0].refresh()))
    with serving({}, respond=series.respond) as url:
        run("dashboard", "--prometheus", url, on=running(2, "web", 10))
        return TestClient(make_app(made[0])).get("/sizes").text


def test_the_histories_are_those_of_prometheus_where_it_is_given(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a snapshot: the address was given, and no plugin is read."""
    series = RecordedSeries(RecordedPod("web-7f8d-0", [2, 3, 2, 3], peak=6))
    text = with_prometheus(run, monkeypatch, series)
    assert ROWS.findall(text) == ["default/deployment/web"]
    assert "no memory was measured" not in text


def test_a_prometheus_without_series_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what must be set, and no missing right that nobody needs."""
    text = with_prometheus(run, monkeypatch, RecordedSeries())
    assert "Prometheus has no series gpushare_recorded_bytes of any namespace in 7 days" in text
    assert "monitoring.enabled" in text


def test_the_histories_are_those_of_the_plugins_of_the_cluster(tmp_path: Path) -> None:
    """Over the proxy of the API server; a missing right has its namespace."""
    nodes = FakeCluster().node("n1", gpus=[Gpu(80)]).items
    lists = {"/api/v1/nodes": nodes, "/api/v1/pods": [plugin("n1")]}
    where = "/api/v1/namespaces/gpushare/pods/plugin-n1%3A9395/proxy/usage-history"
    snapshot = decode(FakeCluster().add(plugin("n1")).json().encode())
    with FakeApiServer(lists).serving() as server:
        server.objects[where] = json.loads(encode_histories("n1", [history("web", 2)]))
        config = server.kubeconfig(tmp_path)
        with BlockingClient.connect(config, user_agent="test", seconds=60) as kube:
            found = read_histories(kube, snapshot)
            server.objects.pop(where)
            server.statuses[where] = 403
            refused = read_histories(kube, snapshot)
    assert [each.key.name for each in found.items] == ["web"]
    assert (refused.items, refused.forbidden) == ((), "gpushare")
