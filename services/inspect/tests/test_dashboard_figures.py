"""The dashboard's pages of health and usage, and memory in use from Prometheus."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from drawncluster import FakeCluster, Gpu
from starlette.testclient import TestClient

from gpucore.wire.names import DEFAULT_NAMES, VERIFIED
from gpucore.workload.history import FEWEST_PODS
from gpuinspect.cluster.snapshots import decode
from gpuinspect.errors import PrometheusError
from gpuinspect.queries.memory_in_use import Figures, MemoryInUse
from gpuinspect.web.app import make_app
from gpuinspect.web.feed import Feed
from gpuinspect.web.frames import MOST_REPORTS, Frame
from gpukube.testing.plugin_pods import plugin_pod

pytestmark = pytest.mark.slow

GIB = 1 << 30
Open = Callable[..., TestClient]


def event(message: str, *, when: str = "2026-01-02T03:04:05Z", namespace: str = "default") -> dict:
    """An event of the device plugin on node ``n1``."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": namespace},
        "involvedObject": {"kind": "Node", "name": "n1"},
        "reason": "GpuUnhealthy",
        "message": message,
        "lastTimestamp": when,
    }


@pytest.fixture
def cluster() -> FakeCluster:
    """Two nodes of different models, one GPU unhealthy."""
    cluster = FakeCluster().node("n1", gpus=[Gpu(15), Gpu(15, healthy=False)])
    cluster.node("n2", gpus=[Gpu(39, "NVIDIA A100-PCIE-40GB")])
    cluster.pod("web", 6, node="n1", index=1, metadata={"labels": {"team": "search"}})
    return cluster.pod("large", 64, phase="Pending", namespace="research")


@pytest.fixture
def opened(cluster: FakeCluster) -> Open:
    """The dashboard after two reads, two minutes apart."""

    def open_with(measure: Callable[[], Figures] | None = None) -> TestClient:
        times = iter((1000.0, 1120.0))
        feed = Feed(
            lambda: decode(cluster.json().encode()),
            DEFAULT_NAMES,
            interval_seconds=3600,
            measure=None if measure is None else lambda _: MemoryInUse(measure()),
            clock=lambda: next(times),
        )
        asyncio.run(feed.refresh())
        asyncio.run(feed.refresh())
        return TestClient(make_app(feed))

    return open_with


def test_claims_that_cannot_be_read_are_named(cluster: FakeCluster) -> None:
    """Their GPUs seem free on every page."""
    found = decode(cluster.json().encode())
    unread = msgspec.structs.replace(found, missing={"ResourceClaim": "403"})
    feed = Feed(lambda: unread, DEFAULT_NAMES, interval_seconds=3600)
    asyncio.run(feed.refresh())
    text = TestClient(make_app(feed)).get("/").text
    assert "ResourceClaims cannot be read, so what claims hold is missing: 403" in text


def test_an_unhealthy_gpu_has_the_reason_of_the_last_event(
    opened: Open, cluster: FakeCluster
) -> None:
    """With the node, the time and the pods on it."""
    cluster.add(event("GPU 1 (GPU-n1-1) is unhealthy: XID 79", when="2026-01-02T03:05:00Z"))
    cluster.add(event("GPU 1 (GPU-n1-1) is unhealthy: older", when="2026-01-02T03:04:00Z"))
    text = opened().get("/health").text
    assert "1 of 3 GPUs is unhealthy" in text
    assert "XID 79" in text
    assert "older" not in text
    assert 'datetime="2026-01-02T03:05:00Z"' in text
    assert "default/web" in text
    assert "XID 79" in opened().get("/nodes/n1").text


def test_a_node_with_exclusive_gpus_alone_is_shown(opened: Open, cluster: FakeCluster) -> None:
    """Its GPUs count, its unhealthy GPU is listed, and the links to its page lead somewhere."""
    cluster.items.clear()
    cluster.node("whole", gpus=[Gpu(15), Gpu(15, healthy=False)], resources={"aliyun.com/gpu": "2"})
    group = {"ALIYUN_COM_GPU_GROUP": "0"}
    cluster.pod("train", node="whole", limits={"aliyun.com/gpu": "1"}, annotations=group)
    browser = opened()
    assert "1 of 2 GPUs is unhealthy" in browser.get("/health").text
    assert "1 node, 2 GPUs" in browser.get("/").text
    assert "15/30 GiB" in browser.get("/").text
    for page in ("/pods/default/train", "/usage?by=node", "/health"):
        assert 'href="/nodes/whole"' in browser.get(page).text
    assert "default/train" in browser.get("/nodes/whole").text


def test_events_of_other_namespaces_give_no_reason(opened: Open, cluster: FakeCluster) -> None:
    """The API server accepts events on Nodes in namespace default only; others are a tenant's."""
    cluster.add(event("GPU 1 (GPU-n1-1) is unhealthy: forged", namespace="tenant"))
    text = opened().get("/health").text
    assert "forged" not in text
    assert "no event has the reason" in text


def plugin(name: str, document: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A pod of the device plugin with results of ``gpushare verify``."""
    made = plugin_pod(name, "n1", **fields)
    made["metadata"]["annotations"] = {VERIFIED: json.dumps(document)}
    return made


@pytest.mark.parametrize("at", [1_790_000_000, -1, 10**15, 10**30])
def test_results_of_verify_are_those_of_the_plugins(
    opened: Open, cluster: FakeCluster, at: int
) -> None:
    """A tenant's pod states none of a node of others, and no time of it breaks the page."""
    cluster.add(plugin("plugin", {"at": 1_790_000_000, "gpus": {"0": {"memory": "fail"}}}))
    forged = {"at": at, "gpus": {"0": {"isolation": "pass"}}}
    cluster.add(plugin("x", forged, namespace="tenant", kubelet=""))
    found = opened().get("/health")
    assert found.status_code == 200
    assert "memory" in found.text
    assert 'datetime="2026-09-21T14:13:20Z"' in found.text
    assert "isolation" not in found.text
    cluster.add(plugin("y", forged))
    assert opened().get("/health").status_code == 200


def test_results_of_verify_are_shown_with_the_index_that_their_gpu_has_now(
    opened: Open, cluster: FakeCluster
) -> None:
    """The indexes of the others change when a GPU is taken out, and its results go with it."""
    gpus = {"GPU-n1-1": {"memory": "fail"}, "GPU-gone": {"share": "fail"}}
    cluster.add(plugin("plugin", {"at": 1_790_000_000, "gpus": gpus}))
    text = opened().get("/health").text
    assert '<td data-head="GPU">GPU1</td>' in text
    assert text.count('<td data-head="Result">fail</td>') == 1


def test_the_page_of_health_names_some_and_counts_the_others(
    opened: Open, cluster: FakeCluster
) -> None:
    """A driver that fails on all nodes, and results of all nodes: failed rows are among those."""
    cluster.items.clear()
    cluster.node("n1", gpus=[Gpu(15, healthy=False)] * 203)
    passed = {str(gpu): {f"row{row}": "pass" for row in range(10)} for gpu in range(20)}
    gpus = passed | {"20": {"share": "fail"}}
    cluster.add(plugin("plugin", {"at": 1_790_000_000, "gpus": gpus}))
    text = opened().get("/health").text
    assert "203 of 203 GPUs are unhealthy" in text
    assert text.count("no event has the reason") == 200
    assert "<p>and 3 more</p>" in text
    results = [text.count(f'<td data-head="Result">{each}</td>') for each in ("fail", "pass")]
    assert results == [1, 199]
    assert "<p>and 1 more</p>" in text


def test_the_page_of_usage_has_the_largest_groups(opened: Open, cluster: FakeCluster) -> None:
    """A label may have as many values as there are pods."""
    for number in range(1002):
        metadata = {"labels": {"job": f"j{number}"}}
        units = 9 if number == 1001 else 1
        cluster.pod(f"p{number}", units, node="n2", namespace="team", metadata=metadata)
    text = opened().get("/usage", params={"label": "job"}).text
    assert text.count('<th scope="row"') == 1000
    assert ">j1001</th>" in text
    assert "<p>and 3 more</p>" in text


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ("GPU memory by namespace", "research", "default")),
        ({"by": "model"}, ("Tesla T4", "NVIDIA A100-PCIE-40GB")),
        ({"by": "node"}, ('href="/nodes/n2"',)),
        ({"label": "team"}, ("GPU memory by team", "search")),
        ({"by": "nonsense"}, ("GPU memory by namespace",)),
    ],
)
def test_usage_in_groups(opened: Open, query: dict[str, str], expected: tuple[str, ...]) -> None:
    """By namespace, model, node or a label of the pods."""
    text = opened().get("/usage", params=query).text
    assert all(each in text for each in expected)


class Emptied(dict[str, Any]):
    """Another thread empties it as soon as something is stored."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self.clear()


def test_a_grouping_that_another_viewer_displaces_is_shown(cluster: FakeCluster) -> None:
    """Pages are made in several threads, and one that finds the store full empties it."""
    frame = Frame(decode(cluster.json().encode()), DEFAULT_NAMES, taken=datetime.now(UTC))
    frame._reports = Emptied()
    assert frame.report("model").groups


def test_viewers_cannot_fill_the_memory_with_groupings(cluster: FakeCluster) -> None:
    """A frame caches a bounded number of them."""
    feed = Feed(lambda: decode(cluster.json().encode()), DEFAULT_NAMES, interval_seconds=3600)
    asyncio.run(feed.refresh())
    assert feed.frame is not None
    for i in range(2 * MOST_REPORTS):
        feed.frame.report(f"label:l{i}")
    assert len(feed.frame._reports) <= MOST_REPORTS


def test_memory_in_use_is_beside_what_is_allocated(opened: Open) -> None:
    """In the totals, on the bar, in the chart, and for namespaces."""
    figures = Figures(pods={"default/web": 3 * GIB}, gpus={"GPU-n1-1": 3.5 * GIB})
    browser = opened(lambda: figures)
    text = browser.get("/").text
    assert "3.5 GiB" in text
    assert "GPU1 6/15, 3.5 in use" in text
    assert 'class="used"' in text
    assert "In use (dashed line) now at least 3.5 GiB, highest 3.5" in text
    assert "In use (dashed line) now at least 3.5 GiB" in browser.get("/nodes/n1").text
    assert "3.0" in browser.get("/usage").text


def test_memory_in_use_of_some_gpus_is_a_lower_bound(opened: Open) -> None:
    """One of three GPUs is measured: the cluster page states it, as the page of usage does."""
    browser = opened(lambda: Figures(gpus={"GPU-n1-0": 2.5 * GIB}))
    text = browser.get("/", params={"by": "pool"}).text
    assert "<dd>at least 2.5 GiB</dd>" in text
    assert "In use (dashed line) now at least 2.5 GiB" in text
    assert "In use (dashed line) now at least 2.5 GiB" in browser.get("/nodes/n1").text
    assert "at least 2.5" in browser.get("/usage", params={"by": "node"}).text
    every = {"GPU-n1-0": 2.5 * GIB, "GPU-n1-1": 0.0, "GPU-n2-0": 0.0}
    assert "<dd>2.5 GiB</dd>" in opened(lambda: Figures(gpus=every)).get("/").text


def test_without_prometheus_memory_in_use_is_unknown(opened: Open) -> None:
    """The page names the option."""
    browser = opened()
    assert "Memory in use is unknown" in browser.get("/").text
    assert "--prometheus URL" in browser.get("/usage").text


def test_a_prometheus_that_does_not_respond_stops_nothing(opened: Open) -> None:
    """The cluster is shown, with a note; the service is ready."""

    def fail() -> Figures:
        raise PrometheusError("Prometheus at http://p does not respond")

    browser = opened(fail)
    text = browser.get("/").text
    assert "memory in use is unknown: Prometheus at http://p does not respond" in text
    assert "6/69 GiB" in text
    assert browser.get("/readyz").status_code == 200


def test_times_are_machine_readable(opened: Open) -> None:
    """The script shows them in the browser's time zone; without it they are in UTC."""
    text = opened().get("/pods").text
    assert '<time datetime="2026-01-02T03:04:05Z" title="2026-01-02T03:04:05Z">' in text
    assert '<time datetime="1970-01-01T00:18:40Z"' in text


def test_fragments_are_what_the_learned_pods_cannot_use() -> None:
    """Pods of 60 of 100 units leave 40 free on each GPU, which the guess would count as usable."""
    cluster = FakeCluster().node("n", gpus=[Gpu(100)] * 4)
    for number in range(FEWEST_PODS):
        placed = {"node": "n", "index": number} if number < 4 else {"phase": "Pending"}
        cluster.pod(f"p{number}", 60, **placed)
    snapshot = decode(cluster.json().encode())
    frame = Frame(snapshot, DEFAULT_NAMES, taken=datetime.fromtimestamp(1000.0, UTC))
    assert frame.fragments == pytest.approx((1.6, 1.6))
