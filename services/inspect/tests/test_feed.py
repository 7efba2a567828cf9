"""The reads of the dashboard, the notification of listeners, and the responses of its routes."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from starlette.applications import Starlette
from starlette.testclient import TestClient

from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.cluster.snapshots import Snapshot, decode
from gpuinspect.web import app as web_app
from gpuinspect.web.app import _versions, make_app
from gpuinspect.web.feed import Feed, pause
from gpuinspect.web.hosts import is_local
from gpuinspect.web.listening import LIMITS
from gpuinspect.web.streams import EACH, MOST
from gpukube.errors import InvalidReplyError


class Reader:
    """Reads a cluster that a test changes."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.error = ""
        self.reads = 0

    def __call__(self) -> Snapshot:
        self.reads += 1
        if self.error:
            raise InvalidReplyError(self.error)
        return decode(self.cluster.json().encode())


@pytest.fixture
def cluster() -> FakeCluster:
    """A node with a GPU, and a pod that waits for a larger one."""
    cluster = FakeCluster().node("n", gpus=[Gpu(15)])
    return cluster.pod("large", 16, phase="Pending")


@pytest.fixture
def reader(cluster: FakeCluster) -> Reader:
    """Reads that cluster."""
    return Reader(cluster)


@pytest.fixture
def feed(reader: Reader) -> Feed:
    """Reads when the test specifies it."""
    return Feed(reader, DEFAULT_NAMES, interval_seconds=3600, began=1.0)


@pytest.mark.parametrize(
    ("interval", "took", "expected"), [(5.0, 0.0, 5.0), (5.0, 0.5, 5.0), (5.0, 1.0, 9.0)]
)
def test_at_most_a_tenth_of_the_time_is_spent_reading(
    interval: float, took: float, expected: float
) -> None:
    """The interval holds for short reads; a long one is followed by nine times its length."""
    assert pause(interval, after=took) == expected


async def test_errors_are_news_once(feed: Feed, reader: Reader) -> None:
    """Each error that is new, and the end of it; the frame before stays and has the reason."""
    versions = []
    for error in ("", "", "down", "down", "forbidden", "", ""):
        reader.error = error
        await feed.refresh()
        assert feed.frame is not None
        assert (feed.error, feed.frame.error) == (error, error)
        versions.append(feed.version)
    assert versions == [1, 1, 2, 2, 3, 4, 4]


async def test_an_unexpected_error_ends_no_reader(
    feed: Feed, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of the program is logged once with its traceback, and pages show stale data."""
    await feed.refresh()
    feed._read = lambda: dict[str, Snapshot]()["absent"]
    await feed.refresh()
    await feed.refresh()
    reason = "unexpected error in a read (KeyError: 'absent'); see the log of the dashboard"
    assert feed.frame is not None
    assert (feed.error, feed.frame.error, feed.version) == (reason, reason, 2)
    (record,) = caplog.records
    assert record.exc_info is not None
    feed._read = reader
    await feed.refresh()
    assert (feed.error, feed.version) == ("", 3)


async def test_each_new_error_before_the_first_frame_is_news(feed: Feed, reader: Reader) -> None:
    """Pages have nothing to show but the reason."""
    assert feed.error == "the cluster has not been read yet"
    for error, version in (("down", 1), ("down", 1), ("forbidden", 2)):
        reader.error = error
        await feed.refresh()
        assert (feed.version, feed.error, feed.frame) == (version, error, None)


@pytest.mark.parametrize("change", ["pod waits", "pod runs", "node", "nothing"])
async def test_what_pages_show_is_what_makes_news(
    feed: Feed, cluster: FakeCluster, change: str
) -> None:
    """A waiting pod is on no node, and still on a page."""
    await feed.refresh()
    if change == "pod waits":
        cluster.pod("other", 20, phase="Pending")
    elif change == "pod runs":
        cluster.pod("other", 2, node="n", index=0)
    elif change == "node":
        cluster.node("m", gpus=[Gpu(15)])
    await feed.refresh()
    assert feed.version == (1 if change == "nothing" else 2)


async def test_pods_that_wait_are_those_without_a_node(feed: Feed, cluster: FakeCluster) -> None:
    """Oldest first; those that ended, run, or request nothing of ours are none of them."""
    cluster.pod("ended", 1, phase="Failed").pod("plain", 0, phase="Pending")
    cluster.pod("running", 1, node="n", index=0)
    early = {"metadata": {"creationTimestamp": "2025-01-01T00:00:00Z"}}
    cluster.pod("early", 1, phase="Pending", **early)
    await feed.refresh()
    assert feed.frame is not None
    assert [pod.name for pod, _ in feed.frame.waiting] == ["early", "large"]


async def test_a_listener_gets_each_version_once(feed: Feed) -> None:
    """The number at first, then every newer one."""
    await feed.refresh()
    waiting = asyncio.ensure_future(feed.newer(feed.version))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert await feed.newer(0) == 1
    feed.version = 1
    feed._read = lambda: decode(FakeCluster().node("m", gpus=[Gpu(1)]).json().encode())
    await feed.refresh()
    assert await asyncio.wait_for(waiting, 60) == 2


async def test_a_quiet_stream_shows_that_it_lives(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the revision again: pages notice a dead connection, and have the time of the server."""
    monkeypatch.setattr(web_app, "HEARTBEAT_SECONDS", 0.01)
    stream: AsyncIterator[str] = _versions(feed)
    found = [await anext(stream) for _ in range(3)]
    times, revisions = zip(*(event.split("\n", 1) for event in found), strict=True)
    assert revisions == ("data: 1000-0\n\n",) * 3
    sent = [int(line.removeprefix("id: ")) / 1000 for line in times]
    assert sent == pytest.approx([time.time()] * 3, abs=600)
    await feed.refresh()
    assert (await anext(stream)).endswith("\ndata: 1000-1\n\n")


def test_jobs_run_for_as_long_as_the_page_is_served(feed: Feed, reader: Reader) -> None:
    """The feed and what else was given; all end with it."""
    states: list[str] = []

    async def job() -> None:
        states.append("began")
        try:
            await asyncio.Event().wait()
        finally:
            states.append("ended")

    with TestClient(make_app(feed, beside=[job])) as browser:
        for _ in range(1000):
            if browser.get("/readyz").status_code == 200:
                break
        assert browser.get("/readyz").text == "ok"
        assert states == ["began"]
    assert states == ["began", "ended"]
    assert reader.reads == 1


def test_a_stream_is_neither_kept_nor_buffered(feed: Feed) -> None:
    """Else a proxy would hold news back until it has enough of them."""
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/events", "headers": [], "query_string": b""}
    asyncio.run(make_app(feed)({**scope, "asgi": {"version": "3.0"}}, receive, send))
    head = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    assert (head["cache-control"], head["x-accel-buffering"]) == ("no-store", "no")
    assert head["content-type"].startswith("text/event-stream")


class Viewer:
    """A request for the stream of events, which stays open until the viewer leaves."""

    def __init__(self, app: Starlette, header: tuple[str, str] = ("", "")) -> None:
        self._left = asyncio.Event()
        self._replied: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        name, value = header
        headers = [(name.encode(), value.encode())] if name else []
        scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/events"}
        scope |= {"query_string": b"", "headers": headers, "asgi": {"version": "3.0"}}
        self._request = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._replied.set_result(message["status"])

    async def status(self) -> int:
        """Status of the reply."""
        return await self._replied

    async def leave(self) -> None:
        """Close the page."""
        self._left.set()
        await self._request


async def _leave(viewers: list[Viewer]) -> None:
    await asyncio.gather(*(viewer.leave() for viewer in viewers))


@pytest.mark.parametrize(
    ("header", "another"),
    [
        (("cookie", "gpushare_session=a"), ("cookie", "gpushare_session=b")),
        (("authorization", "Bearer a"), ("authorization", "Bearer b")),
    ],
)
def test_one_user_has_a_limited_number_of_streams(
    feed: Feed, header: tuple[str, str], another: tuple[str, str]
) -> None:
    """Else one user could hold all connections; a closed page makes place for another."""

    async def check() -> None:
        app = make_app(feed)
        viewers = [Viewer(app, header) for _ in range(EACH)]
        assert {await viewer.status() for viewer in viewers} == {200}
        beyond, other = Viewer(app, header), Viewer(app, another)
        assert (await beyond.status(), await other.status()) == (429, 200)
        await viewers.pop().leave()
        later = Viewer(app, header)
        assert await later.status() == 200
        await _leave([*viewers, beyond, other, later])

    asyncio.run(asyncio.wait_for(check(), 60.0))


def test_streams_leave_connections_for_pages(feed: Feed) -> None:
    """Also where nobody logs in, or one user in many sessions."""

    async def check() -> None:
        app = make_app(feed)
        viewers = [Viewer(app) for _ in range(MOST)]
        assert {await viewer.status() for viewer in viewers} == {200}
        beyond = Viewer(app)
        assert await beyond.status() == 429
        await _leave([*viewers, beyond])

    assert LIMITS.connections > MOST
    asyncio.run(asyncio.wait_for(check(), 60.0))


@pytest.mark.parametrize(("local", "status"), [(True, 421), (False, 200)])
def test_only_a_local_page_insists_on_its_name(feed: Feed, local: bool, status: int) -> None:
    """A page in the cluster is reached by whatever name its Service or ingress has."""
    asyncio.run(feed.refresh())
    browser = TestClient(make_app(feed, local_only=local))
    assert browser.get("/", headers={"Host": "evil.example"}).status_code == status
    assert browser.get("/", headers={"Host": "localhost:8080"}).status_code == 200


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("localhost:8080", True),
        ("127.0.0.1", True),
        ("127.9.9.9:80", True),
        ("[::1]:8080", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("", False),
        ("localhost.evil.example", False),
        ("evil-localhost", False),
        ("evil.localhost:80", False),
        ("10.0.0.1", False),
        ("[::1", False),
    ],
)
def test_names_of_this_machine(host: str, local: bool) -> None:
    """The loopback addresses and localhost, with or without a port."""
    assert is_local(host) is local


POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self';"
    " img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


@pytest.mark.parametrize("path", ["/", "/healthz", "/static/style.css", "/none"])
def test_every_answer_has_the_headers(feed: Feed, path: str) -> None:
    """No frame, no foreign script, no guess at a type, and no name of a pod to another site."""
    asyncio.run(feed.refresh())
    head = TestClient(make_app(feed)).get(path).headers
    assert head["content-security-policy"] == POLICY
    assert head["x-content-type-options"] == "nosniff"
    assert head["referrer-policy"] == "no-referrer"
    assert head["vary"] == "X-Part, Accept-Encoding"
