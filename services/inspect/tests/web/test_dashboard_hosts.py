"""Pages on this machine answer to this machine's names."""

import asyncio

import pytest
from drawncluster import FakeCluster, Gpu
from starlette.testclient import TestClient

from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.cluster.snapshots import decode
from gpuinspect.web.app import make_app
from gpuinspect.web.feed import Feed
from gpuinspect.web.hosts import is_local, url_host

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8080",
        "LOCALHOST:80",
        "127.0.0.1",
        "127.0.0.1:8080",
        "127.8.8.8:1",
        "::1",
        "[::1]",
        "[::1]:8080",
    ],
)
def test_this_machine(host: str) -> None:
    """Every spelling of the loopback address is local."""
    assert is_local(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "0.0.0.0",
        "::",
        "example.com",
        "localhost.example.com",
        "10.0.0.1:80",
        "[",
        "127.0.0.1@x",
    ],
)
def test_other_machines(host: str) -> None:
    """Anything else is not, odd text included."""
    assert not is_local(host)


@pytest.mark.parametrize(
    ("host", "shown"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("::", "[::]"), ("", "localhost")],
)
def test_an_address_is_printed_as_a_browser_takes_it(host: str, shown: str) -> None:
    """IPv6 needs brackets, and all addresses are no address."""
    assert url_host(host) == shown


@pytest.mark.parametrize(("host", "status"), [("localhost:8080", 200), ("evil.example:8080", 421)])
def test_a_web_site_cannot_pass_for_the_visitor(host: str, status: int) -> None:
    """A foreign host name that resolves to this machine is refused on every path."""
    raw = FakeCluster().node("n", gpus=[Gpu(15)]).json().encode()
    feed = Feed(lambda: decode(raw), DEFAULT_NAMES, interval_seconds=3600)
    asyncio.run(feed.refresh())
    with TestClient(make_app(feed, local_only=True)) as browser:
        answers = [browser.get(path, headers={"Host": host}) for path in ("/", "/pods", "/healthz")]
    assert [answer.status_code for answer in answers] == [status] * 3
