"""The page, through its real routes."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from drawncluster import FakeCluster, Gpu
from starlette.testclient import TestClient

from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.cluster.snapshots import Snapshot, decode
from gpuinspect.queries.memory_in_use import MemoryInUse
from gpuinspect.web.app import _versions, make_app
from gpuinspect.web.feed import PAUSE, Feed, pause
from gpuinspect.web.pages import whatifpage
from gpukube.errors import InvalidReplyError

pytestmark = pytest.mark.slow

ROW = '<section class="node">'


@dataclass
class FakeReader:
    """Reads a cluster that tests change; ``down`` makes it fail."""

    cluster: FakeCluster
    down: str = ""
    reads: int = 0
    read: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> Snapshot:
        self.reads += 1
        if self.down:
            raise InvalidReplyError(self.down)
        return decode(self.cluster.json().encode())


@pytest.fixture
def cluster() -> FakeCluster:
    """A node with two GPUs, one held in part, and a pod that waits."""
    cluster = FakeCluster().node("n1", address="10.0.0.1", gpus=[Gpu(15), Gpu(15, mode="mps")])
    cluster.pod("web", 6, node="n1", index=0)
    return cluster.pod("large", 16, phase="Pending", namespace="team")


@pytest.fixture
def reader(cluster: FakeCluster) -> FakeReader:
    """Reads that cluster."""
    return FakeReader(cluster)


@pytest.fixture
def feed(reader: FakeReader) -> Feed:
    """A feed that reads when it is instructed to."""
    return Feed(reader, DEFAULT_NAMES, interval_seconds=3600, began=1.0)


@pytest.fixture
def browser(feed: Feed) -> Iterator[TestClient]:
    """Requests to the page, once it has read the cluster."""
    asyncio.run(feed.refresh())
    client = TestClient(make_app(feed))
    yield client
    client.close()


def test_cluster_page(browser: TestClient) -> None:
    """Totals, a bar a GPU with figures in words, links to pods, the number of pending pods."""
    text = browser.get("/").text
    assert "6/30 GiB (20%)" in text
    assert "GPU0 6/15" in text
    assert 'href="/pods/default/web"' in text
    assert '<a href="/pods">1</a>' in text
    assert '<span class="mark mps">mps</span>' in text


def test_node_page(browser: TestClient) -> None:
    """GPUs with model and UUID, and the pods with what they hold."""
    text = browser.get("/nodes/n1").text
    assert "Tesla T4" in text
    assert "GPU-n1-1" in text
    assert "6 on GPU0" in text


def test_pod_page(browser: TestClient) -> None:
    """The explanation of a pod that waits."""
    text = browser.get("/pods/team/large").text
    assert "pending: it fits no node now" in text
    assert "largest GPU 15 GiB, requested 16" in text


def test_a_pod_page_links_to_the_page_of_its_node_where_there_is_one(
    browser: TestClient, feed: Feed, cluster: FakeCluster
) -> None:
    """A node without GPUs has none, nor has one that is gone."""
    cluster.node("cpu", resources={"cpu": "4"}).pod("proxy", node="cpu").pod("lost", 2, node="gone")
    asyncio.run(feed.refresh())
    for pod, node, linked in (
        ("web", "n1", True),
        ("proxy", "cpu", False),
        ("lost", "gone", False),
    ):
        text = browser.get(f"/pods/default/{pod}").text
        assert node in text
        assert (f'href="/nodes/{node}"' in text) is linked
        assert (browser.get(f"/nodes/{node}").status_code == 200) is linked


def test_waiting_page(browser: TestClient) -> None:
    """Pods that wait, each with its reason."""
    text = browser.get("/pods").text
    assert "team/large" in text
    assert "1 node: largest GPU 15 GiB, requested 16" in text


def test_pods_with_one_request_and_other_constraints(
    browser: TestClient, feed: Feed, cluster: FakeCluster
) -> None:
    """Each has its own reason: a nodeSelector, a scheduling gate, or none at all."""
    cluster.pod("picky", 4, phase="Pending", spec={"nodeSelector": {"disktype": "ssd"}})
    gates = {"schedulingGates": [{"name": "example.com/quota"}]}
    cluster.pod("gated", 4, phase="Pending", spec=gates)
    cluster.pod("next", 4, phase="Pending")
    asyncio.run(feed.refresh())
    text = browser.get("/pods").text
    assert "1 node: nodeSelector disktype=ssd" in text
    assert "its scheduling gate example.com/quota keeps every scheduler away" in text
    assert "n1 can take it now" in text
    assert "n1 has enough GPU memory" in browser.get("/pods/default/picky").text


def test_a_pod_that_fits_and_that_no_scheduler_handles(
    browser: TestClient, feed: Feed, cluster: FakeCluster
) -> None:
    """Both pages name the scheduler that should run; a pod that was tried has its message."""
    cluster.pod("lost", 4, phase="Pending", spec={"schedulerName": "volcano"})
    said = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}
    cluster.pod("tried", 4, phase="Pending", status={"conditions": [said]})
    about = {"kind": "Pod", "namespace": "default", "name": "web"}
    cluster.add({"kind": "Event", "metadata": {"name": "e"}, "involvedObject": about})
    asyncio.run(feed.refresh())
    text = browser.get("/pods").text
    assert (
        "n1 can take it now; no scheduler has recorded an attempt: "
        "check that a scheduler named volcano runs"
    ) in text
    assert "n1 can take it now; the scheduler reported: 0/1 nodes are available" in text
    lost, tried = (browser.get(f"/pods/default/{pod}").text for pod in ("lost", "tried"))
    assert "volcano, which has not handled it: check that this scheduler runs" in lost
    assert "gpushare-scheduler, which has tried to place it" in tried


def test_what_if_without_a_request_states_that(browser: TestClient) -> None:
    """The form as it is first shown has no result; submitted so, it has a reason for that."""
    nothing = "The pods request nothing: enter memory, compute or exclusive GPUs."
    assert nothing not in browser.get("/whatif").text
    assert nothing in browser.get("/whatif", params={"mem": "0", "replicas": "1"}).text


def test_usage_has_the_exclusive_gpus_of_pending_pods(
    browser: TestClient, feed: Feed, cluster: FakeCluster
) -> None:
    """A namespace whose pods wait for whole GPUs requests no GiB."""
    limits = {"aliyun.com/gpu": "2"}
    cluster.pod("whole", limits=limits, phase="Pending", namespace="exclusive")
    asyncio.run(feed.refresh())
    text = browser.get("/usage").text
    row = text.partition("exclusive")[2].partition("</tr>")[0]
    assert '<td data-head="Pending GPUs">2</td>' in row


def test_the_policy_is_on_the_pages(browser: TestClient, feed: Feed, cluster: FakeCluster) -> None:
    """What if and a pod are answered with the policy of the cluster's extender, and name it."""
    labels = {"app.kubernetes.io/component": "scheduler"}
    box = {"name": "extender", "args": ["--policy=spread"]}
    cluster.pod("e", namespace="g", metadata={"labels": labels}, spec={"containers": [box]})
    asyncio.run(feed.refresh())
    text = browser.get("/whatif", params={"mem": "2"}).text
    assert "Policy: spread, topology best-effort (set on pod g/e)" in text
    assert "2 GiB on GPU 1" in text
    assert "spread, topology best-effort" in browser.get("/pods/default/web").text


def test_what_if_page(browser: TestClient) -> None:
    """The form answers with the core's placement and keeps its values."""
    text = browser.get("/whatif", params={"mem": "9", "replicas": "3"}).text
    assert "2 of 3 pods fit" in text
    assert "9 GiB on GPU 0 of node n1" in text
    assert 'value="9"' in text
    added = browser.get("/whatif", params={"mem": "9", "replicas": "3", "add": "1", "like": "n1"})
    assert "3 of 3 pods fit" in added.text


def test_any_node_can_be_copied(browser: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one beyond the names that the form suggests; it stays in the form."""
    monkeypatch.setattr(whatifpage, "SUGGESTED", 1)
    assert 'name="like" list="like" value="n1"' in browser.get("/whatif").text
    text = browser.get("/whatif", params={"mem": "1", "add": "1", "like": "n2"}).text
    assert '<option value="n2">' not in text
    assert 'name="like" list="like" value="n2"' in text
    unknown = browser.get("/whatif", params={"mem": "1", "add": "1", "like": "none"}).text
    assert "nodes &#34;none&#34; not found" in unknown


@pytest.mark.parametrize("query", [{"mem": "x"}, {"mem": "-1"}, {"mem": "9" * 50}, {"add": "1"}])
def test_nonsense_in_the_form(browser: TestClient, query: dict[str, str]) -> None:
    """Text that is no amount is taken for none, and nothing breaks."""
    assert browser.get("/whatif", params=query).status_code == 200


@pytest.mark.parametrize("path", ["/nodes/none", "/pods/default/none", "/none"])
def test_what_is_not_there(browser: TestClient, path: str) -> None:
    """Unknown names are 404."""
    assert browser.get(path).status_code == 404


def test_an_unknown_address_has_a_page_for_browsers(browser: TestClient) -> None:
    """With the navigation and a link to the cluster page; programs get JSON or text."""
    answer = browser.get("/none", headers={"accept": "text/html,*/*;q=0.8"})
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert '<a href="/">Cluster page</a>' in answer.text
    assert '<nav aria-label="Pages">' in answer.text
    for path in ("/api/v1/none", "/api/none"):
        unknown = browser.get(path, headers={"accept": "text/html"})
        assert unknown.status_code == 404
        assert "/api/v1/gpus" in unknown.json()["error"]
    assert browser.get("/none").text == "Not Found"


def test_a_gap_is_no_error(cluster: FakeCluster) -> None:
    """That memory in use is unknown is a note on each page, and not in the colours of errors."""
    note = "memory in use is unknown"
    feed = Feed(
        lambda: decode(cluster.json().encode()),
        DEFAULT_NAMES,
        interval_seconds=3600,
        measure=lambda _: MemoryInUse(note=note),
    )
    asyncio.run(feed.refresh())
    text = TestClient(make_app(feed)).get("/usage").text
    assert f'<p class="note">{note}</p>' in text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(browser: TestClient, method: str) -> None:
    """No route takes anything but GET."""
    assert browser.request(method, "/whatif").status_code == 405


def test_text_is_never_markup(browser: TestClient, feed: Feed, cluster: FakeCluster) -> None:
    """Texts of a cluster or an address are escaped."""
    text = "<script>alert(1)</script>"
    cluster.pod("odd", 1, phase="Pending", spec={"schedulerName": text})
    asyncio.run(feed.refresh())
    pages = [browser.get("/pods/default/odd"), browser.get("/", params={"q": text})]
    assert all("<script>alert" not in page.text for page in pages)
    assert "&lt;script&gt;alert" in pages[0].text


def test_headers_forbid_what_the_page_does_not_need(browser: TestClient) -> None:
    """No inline scripts or styles, no frames, no sniffing; and the page has none."""
    answer = browser.get("/")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert " style=" not in answer.text
    assert "<script>" not in answer.text


def test_the_live_part_alone(browser: TestClient) -> None:
    """What the script requests is the content without what is around it."""
    text = browser.get("/", headers={"X-Part": "main"}).text
    assert text.startswith("<div>")
    assert "<nav aria-label" not in text


def test_large_clusters_are_paged() -> None:
    """Fifty nodes a page, with links to the others that keep the filter."""
    cluster = FakeCluster()
    for i in range(120):
        cluster.node(f"n{i:03}", gpus=[Gpu(15)])
    feed = Feed(FakeReader(cluster), DEFAULT_NAMES, interval_seconds=3600)
    asyncio.run(feed.refresh())
    browser = TestClient(make_app(feed))
    pages = [browser.get("/", params={"rows": "all", "page": n}).text for n in ("1", "3")]
    assert [page.count(ROW) for page in pages] == [50, 20]
    assert "page 1 of 3" in pages[0]
    assert browser.get("/", params={"q": "n11"}).text.count(ROW) == 10


def test_before_the_first_read(reader: FakeReader) -> None:
    """A page before the cluster was read reports it, and the service is not ready."""
    browser = TestClient(make_app(Feed(reader, DEFAULT_NAMES, interval_seconds=3600)))
    assert browser.get("/").status_code == 503
    assert browser.get("/readyz").status_code == 503
    assert browser.get("/freshz").status_code == 503
    assert browser.get("/healthz").status_code == 200


def test_a_cluster_that_stops_answering(
    browser: TestClient, feed: Feed, reader: FakeReader
) -> None:
    """The last state stays on the page, marked with the reason: the service stays ready."""
    reader.down = "the API server does not respond"
    asyncio.run(feed.refresh())
    text = browser.get("/").text
    assert 'class="stale" role="alert"' in text
    assert "Reason: the API server does not respond" in text
    assert "6/30 GiB" in browser.get("/").text
    assert browser.get("/readyz").status_code == 200
    assert browser.get("/freshz").status_code == 503
    assert browser.get("/freshz").text == "the API server does not respond"
    reader.down = ""
    asyncio.run(feed.refresh())
    assert browser.get("/freshz").status_code == 200


@pytest.mark.parametrize(("took", "expected"), [(0.1, 5.0), (2.0, 2.0 * PAUSE)])
def test_slow_reads_are_rare(took: float, expected: float) -> None:
    """A large cluster is not read again before it had nine times as long to itself."""
    assert pause(5.0, after=took) == expected


def test_what_is_gone_is_reported_to_the_script(browser: TestClient) -> None:
    """The part of a page that is no more is a sentence with status 404, not an empty answer."""
    answer = browser.get("/pods/default/none", headers={"X-Part": "main"})
    assert answer.status_code == 404
    assert "This object does not exist." in answer.text


def test_the_window_is_named_after_what_it_shows(browser: TestClient) -> None:
    """Tabs of several nodes and pods can be distinguished."""
    assert "<title>n1 - gpushare</title>" in browser.get("/nodes/n1").text
    assert "<title>team/large - gpushare</title>" in browser.get("/pods/team/large").text


@pytest.mark.parametrize("path", ["/static/live.js", "/static/style.css", "/", "/none"])
def test_a_browser_uses_nothing_of_an_earlier_version(browser: TestClient, path: str) -> None:
    """It revalidates its copy; otherwise it would use an old script for days."""
    assert browser.get(path).headers["cache-control"] == "no-cache"


def test_names_are_found_as_a_phone_writes_them(browser: TestClient) -> None:
    """With a capital first letter, and the space after a completed word."""
    text = browser.get("/", params={"q": "Default/Web "}).text
    assert text.count(ROW) == 1


def test_what_if_shows_what_it_simulates(browser: TestClient) -> None:
    """Amounts of an address beyond the limits of the form are those that it computes with."""
    text = browser.get("/whatif", params={"mem": "4000000", "replicas": "500"}).text
    assert 'max="1048576" value="1048576"' in text
    assert 'max="100" value="100"' in text


def test_a_tenant_cannot_make_the_list_of_pending_pods_long(
    browser: TestClient, feed: Feed, cluster: FakeCluster
) -> None:
    """The name of a scheduler may have a megabyte; the page of the pod has all of it."""
    cluster.pod("odd", 1, phase="Pending", spec={"schedulerName": "x" * 100_000 + "end"})
    asyncio.run(feed.refresh())
    listed = browser.get("/pods").text
    assert len(listed) < 10_000
    assert "… (the page of the pod has all of it)" in listed
    assert "xend" in browser.get("/pods/default/odd").text


def test_a_bound_pod_without_a_known_gpu_is_pending(
    browser: TestClient, feed: Feed, cluster: FakeCluster
) -> None:
    """As ``gpushare pending`` lists it: a scheduler that does not call the extender bound it."""
    cluster.pod("lost", 2, node="n1")
    asyncio.run(feed.refresh())
    assert '<a href="/pods">2</a>' in browser.get("/").text
    text = browser.get("/pods").text
    assert "default/lost" in text
    assert "bound to n1, but on no known GPU" in text


async def test_only_changes_are_news(feed: Feed, cluster: FakeCluster) -> None:
    """An unchanged read wakes no listener; a new pod wakes every listener once."""
    await feed.refresh()
    listener = _versions(feed)
    assert (await anext(listener)).endswith("\ndata: 1000-1\n\n")
    waiting = asyncio.ensure_future(anext(listener))
    await feed.refresh()
    assert not waiting.done()
    cluster.pod("new", 1, node="n1", index=1)
    await feed.refresh()
    assert (await asyncio.wait_for(waiting, 60)).endswith("\ndata: 1000-2\n\n")
    await listener.aclose()
