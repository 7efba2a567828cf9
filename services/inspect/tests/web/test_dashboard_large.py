"""The page of a large cluster: what is sent and requested stays small."""

import asyncio
from collections.abc import Iterator

import pytest
from drawncluster import FakeCluster, Gpu
from starlette.testclient import TestClient

from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.cluster.snapshots import decode
from gpuinspect.web.app import make_app
from gpuinspect.web.feed import Feed

pytestmark = pytest.mark.slow

NODES = 1000


@pytest.fixture(scope="module")
def browser() -> Iterator[TestClient]:
    """Requests to the page of a thousand nodes of eight GPUs with a pod each."""
    cluster = FakeCluster()
    for i in range(NODES):
        cluster.node(f"n{i:04}", gpus=[Gpu(40)] * 8)
        cluster.pod(f"web-{i:04}", 30, node=f"n{i:04}", index=i % 8)
    for i in range(300):
        cluster.pod(f"wait-{i}", 50, phase="Pending")
    feed = Feed(lambda: decode(cluster.json().encode()), DEFAULT_NAMES, interval_seconds=3600)
    asyncio.run(feed.refresh())
    client = TestClient(make_app(feed))
    yield client
    client.close()


@pytest.mark.parametrize("path", ["/", "/?page=20", "/?sort=free", "/nodes/n0500", "/pods"])
def test_pages_stay_small(browser: TestClient, path: str) -> None:
    """No page grows with the cluster beyond 200 KiB."""
    answer = browser.get(path)
    assert answer.status_code == 200
    assert len(answer.content) < 200 << 10


def test_a_pod_is_found_by_name(browser: TestClient) -> None:
    """The filter of the map finds the node of a pod."""
    text = browser.get("/", params={"q": "default/web-0123"}).text
    assert text.count('<section class="node">') == 1
    assert "n0123" in text


def test_a_long_list_of_waiting_pods_is_counted(browser: TestClient) -> None:
    """Two hundred pods are listed, the oldest; the others are a number."""
    text = browser.get("/pods").text
    assert text.count('href="/pods/default/wait-') == 200
    assert "and 100 more" in text


def test_a_large_question_is_cut_and_marked(browser: TestClient) -> None:
    """Placing many pods on many nodes takes long, so the page simulates some of them."""
    text = browser.get("/whatif", params={"mem": "20", "replicas": "100"}).text
    assert "20 of 20 pods fit" in text
    assert "Simulated 20 of 100 pods: the cluster has 1000 nodes" in text
