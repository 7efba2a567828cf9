"""Times, order and units of the dashboard's pages."""

import asyncio
from datetime import UTC, datetime

import pytest
from drawncluster import FakeCluster, Gpu
from starlette.testclient import TestClient

from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.cluster.snapshots import decode
from gpuinspect.errors import SnapshotError
from gpuinspect.queries.memory_in_use import Figures, MemoryInUse
from gpuinspect.web.app import make_app
from gpuinspect.web.feed import Feed

pytestmark = pytest.mark.slow

HOURS_LATER = datetime(2026, 1, 2, 8, 4, 5, tzinfo=UTC).timestamp()
"""Five hours after the pods of :class:`FakeCluster` were created."""
GIB = 1 << 30


def feed_of(cluster: FakeCluster, *, of_file: bool = False, used: float = 0) -> Feed:
    """A feed that reads five hours after the pods were created."""
    figures = Figures(gpus={"GPU-n1-0": used * GIB}) if used else None
    return Feed(
        lambda: decode(cluster.json().encode()),
        DEFAULT_NAMES,
        interval_seconds=3600,
        measure=lambda _: MemoryInUse(figures),
        clock=lambda: HOURS_LATER,
        of_file=of_file,
    )


def opened(feed: Feed) -> TestClient:
    """The dashboard once the feed has read."""
    asyncio.run(feed.refresh())
    return TestClient(make_app(feed))


@pytest.fixture
def cluster() -> FakeCluster:
    """Pods whose names end in numbers, on a node and pending."""
    cluster = FakeCluster().node("n1", gpus=[Gpu(40)])
    for number in (10, 2, 1):
        cluster.pod(f"web-{number}", 4, node="n1", index=0)
        cluster.pod(f"wait-{number}", 64, phase="Pending")
    return cluster


@pytest.mark.parametrize("path", ["/", "/pods", "/whatif"])
def test_a_snapshot_is_called_one_with_its_time(cluster: FakeCluster, path: str) -> None:
    """In the head of the page, where a cluster has "Live", and at its end."""
    time = '<time datetime="2026-01-02T08:04:05Z" title="2026-01-02T08:04:05Z">'
    text = opened(feed_of(cluster, of_file=True)).get(path).text
    assert f'role="status">Snapshot of {time}' in text
    assert f'<p class="taken" data-snapshot>Snapshot of {time}' in text
    live = opened(feed_of(cluster)).get(path).text
    assert "Snapshot of" not in live
    assert f'<p class="taken">As of {time}' in live


def test_a_snapshot_that_cannot_be_read_again_says_so(cluster: FakeCluster) -> None:
    """It is not a cluster that did not respond."""
    feed = feed_of(cluster, of_file=True)
    client = opened(feed)

    def fail() -> None:
        raise SnapshotError("cannot read the snapshot x.json: No such file")

    feed._read = fail  # type: ignore[assignment]
    asyncio.run(feed.refresh())
    text = client.get("/").text
    assert "The page shows the snapshot of <time" in text
    assert "Reason: cannot read the snapshot x.json" in text
    assert "successful read of the cluster" not in text


def test_a_snapshot_that_is_written_again_is_news(cluster: FakeCluster) -> None:
    """Its time changes on the pages even where nothing else did."""
    feed = feed_of(cluster, of_file=True)
    asyncio.run(feed.refresh())
    before = feed.version
    asyncio.run(feed.refresh())
    assert feed.version == before
    feed._clock = lambda: HOURS_LATER + 60
    asyncio.run(feed.refresh())
    assert feed.version == before + 1


def test_a_snapshot_has_no_chart(cluster: FakeCluster) -> None:
    """However often its file is read, it has one moment and no history."""
    feed = feed_of(cluster, of_file=True)
    client = opened(feed)
    asyncio.run(feed.refresh())
    assert "<figure" not in client.get("/").text
    assert "<figure" not in client.get("/nodes/n1").text


@pytest.mark.parametrize(
    ("path", "name"), [("/pods", "wait"), ("/nodes/n1", "web"), ("/?at=n1/0", "web")]
)
def test_pods_are_in_natural_order(cluster: FakeCluster, path: str, name: str) -> None:
    """``wait-2`` before ``wait-10``."""
    text = opened(feed_of(cluster)).get(path).text
    places = [text.index(f'href="/pods/default/{name}-{number}"') for number in (1, 2, 10)]
    assert places == sorted(places)


def test_nodes_and_groups_of_usage_are_in_natural_order() -> None:
    """On the cluster page, and by node on the page of usage."""
    cluster = FakeCluster()
    for number in (10, 2):
        cluster.node(f"gpu-{number}", gpus=[Gpu(15)])
    client = opened(feed_of(cluster))
    for path in ("/", "/usage?by=node"):
        text = client.get(path).text
        assert text.index('href="/nodes/gpu-2"') < text.index('href="/nodes/gpu-10"')
    text = client.get("/").text
    assert text.index('value="gpu-2/0"') < text.index('value="gpu-10/0"')


@pytest.mark.parametrize("path", ["/pods", "/nodes/n1", "/pods/default/web-1"])
def test_pods_have_their_age(cluster: FakeCluster, path: str) -> None:
    """As kubectl writes it, at the time of the page, with the moment as tooltip."""
    text = opened(feed_of(cluster, of_file=True)).get(path).text
    moment = "2026-01-02T03:04:05Z"
    assert f'<time class="age" datetime="{moment}" title="{moment}">5h</time>' in text


def test_a_pod_without_a_time_has_an_unknown_age(cluster: FakeCluster) -> None:
    """As objects that were written by hand."""
    cluster.pod("odd", 1, node="n1", index=0, metadata={"creationTimestamp": None})
    text = opened(feed_of(cluster)).get("/nodes/n1").text
    assert '<td data-head="Age">unknown</td>' in text


@pytest.mark.parametrize(
    ("unit", "size", "share"), [("MiB", 40960, 1536), ("256MiB", 160, 6), ("512MiB", 80, 3)]
)
def test_amounts_are_in_gib_whatever_the_nodes_count_in(unit: str, size: int, share: int) -> None:
    """In totals, rows, bars, tables, the chart and usage."""
    cluster = FakeCluster().node("n1", gpus=[Gpu(size)], unit=unit)
    cluster.pod("web", share, node="n1", index=0)
    feed = feed_of(cluster, used=1)
    times = iter((HOURS_LATER, HOURS_LATER + 120))
    feed._clock = lambda: next(times)
    asyncio.run(feed.refresh())
    client = opened(feed)
    text = client.get("/").text
    assert "1.5/40 GiB (3%)" in text
    assert "GPU0 1.5/40, 1.0 in use" in text
    assert "default/web: 1.5 GiB" in text
    assert "Allocated (solid line) now 1.5 GiB, at most 1.5" in text
    assert "upper edge: 40 GiB" in text
    assert 'y="70%" height="30%" width="2.50%"' in text
    node = client.get("/nodes/n1").text
    assert f"unit {unit}; 1.5 of 40 GiB allocated, 0 GiB pending" in node
    assert '<td data-head="Memory (GiB)">1.5/40</td>' in node
    assert "1.5 on GPU0" in node
    assert '<td data-head="Allocated (GiB)">1.5</td>' in client.get("/usage").text
    assert '<td data-head="Total (GiB)">40</td>' in client.get("/usage?by=model").text


def test_requests_without_a_known_unit_are_unknown() -> None:
    """A pod that waits where nodes use GiB and MiB has no known amount of memory."""
    cluster = FakeCluster().node("a", gpus=[Gpu(15)]).node("b", gpus=[Gpu(15360)], unit="MiB")
    text = opened(feed_of(cluster.pod("w", 5, phase="Pending"))).get("/usage").text
    assert '<td data-head="Pending (GiB)">unknown</td>' in text


def test_units_are_units_where_their_size_is_unknown() -> None:
    """Pods on a cluster whose nodes publish no GPU."""
    text = opened(feed_of(FakeCluster().pod("web", 6, phase="Pending"))).get("/usage").text
    assert "Pending (units)" in text
