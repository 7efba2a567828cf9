"""Open pages whose connection fails, ends unnoticed, or is one of many, in a real Chromium."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from fakeapiserver import FakeApiServer
from servedpage import served

pytestmark = pytest.mark.slow

NODES, PODS, EVENTS = "/api/v1/nodes", "/api/v1/pods", "/api/v1/events"
MORE_TABS_THAN_CONNECTIONS = 8
"""A browser opens six connections to a server, for all tabs."""
HIDDEN = """
let hidden = false;
Object.defineProperty(document, "hidden", { get: () => hidden });
window.hide = (value) => { hidden = value; document.dispatchEvent(new Event("visibilitychange")); };
"""
"""Headless tabs are all visible, so that a script has to hide them."""


def pod(name: str, units: int, *, created: float = 0.0) -> dict[str, Any]:
    """A pod that holds a share of the first GPU of ``n1``."""
    found = FakeCluster().pod(name, units, node="n1", index=0).items[0]
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(created))
    found["metadata"]["creationTimestamp"] = moment
    return found


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    """An API server with a node and a pod that is two minutes old."""
    nodes = FakeCluster().node("n1", gpus=[Gpu(15)] * 2).items
    pods = [pod("web", 6, created=time.time() - 130)]
    with FakeApiServer({NODES: nodes, PODS: pods, EVENTS: []}).serving() as server:
        yield server


@pytest.fixture
def address(server: FakeApiServer, serving: Callable[..., Any], tmp_path: Path) -> Iterator[str]:
    """Where ``gpushare dashboard`` shows that cluster."""
    with serving(f"--kubeconfig={server.kubeconfig(tmp_path)}") as url:
        yield url


def live(page: Any) -> Any:
    """The page, once it is connected."""
    page.get_by_text("Live", exact=True).wait_for()
    return page


def test_hidden_tabs_leave_connections_to_others(
    address: str, window: Callable[..., Any], server: FakeApiServer
) -> None:
    """More tabs open than a browser has connections; a tab that is shown again catches up."""
    context = live(window(address)).context
    context.add_init_script(HIDDEN)
    tabs = []
    for _ in range(MORE_TABS_THAN_CONNECTIONS):
        tabs.append(context.new_page())
        tabs[-1].goto(address)
        live(tabs[-1]).evaluate("hide(true)")
    server.lists[PODS] = [pod("web", 6), pod("fresh", 5)]
    context.pages[0].get_by_text("GPU0 11/15").wait_for()
    assert tabs[0].get_by_text("GPU0 6/15").count() == 1
    tabs[0].evaluate("hide(false)")
    tabs[0].get_by_text("GPU0 11/15").wait_for()
    live(tabs[0])


def test_a_stream_that_ends_unnoticed(address: str, window: Callable[..., Any]) -> None:
    """A dead connection has no error: a page without an event for long is not called live."""
    streams: list[Any] = []

    def first_only(route: Any) -> None:
        streams.append(route)
        route.continue_() if len(streams) <= 2 else route.abort()

    page = live(window(address, forgiving="ERR_FAILED", routes={"**/events": first_only}))
    page.clock.install()
    page.reload()
    live(page)
    page.clock.fast_forward(60_000)
    page.get_by_text("Connection lost, trying again").wait_for()
    assert "Last contact: " in page.locator("#offline").inner_text()


def test_a_stream_that_is_refused_once(
    address: str, window: Callable[..., Any], server: FakeApiServer
) -> None:
    """A proxy without a backend refuses it, and the browser gives up: the page does not."""
    refused: list[Any] = []

    def refuse_first(route: Any) -> None:
        refused.append(route)
        route.continue_() if len(refused) > 2 else route.fulfill(status=503, body="no backend")

    page = window(address, forgiving="503", routes={"**/events": refuse_first})
    live(page)
    assert page.locator("#offline").is_hidden()
    page.clock.install()
    page.reload()
    live(page)
    page.clock.fast_forward(15_000)
    server.lists[PODS] = [pod("web", 6), pod("fresh", 5)]
    page.get_by_text("GPU0 11/15").wait_for()
    assert len(refused) > 2


def test_ages_are_by_the_clock_of_the_server(address: str, window: Callable[..., Any]) -> None:
    """The clock of the browser is five hours ahead, and the pod two minutes old."""
    page = live(window(f"{address}/pods/default/web"))
    page.context.add_init_script("{ const now = Date.now; Date.now = () => now() + 5 * 3600e3; }")
    page.clock.install()
    page.reload()
    live(page)
    age = page.locator("time.age")
    age.evaluate("age => { age.textContent = 'old'; }")
    page.clock.run_for(10_000)
    written = age.inner_text()
    assert written.endswith(("m", "s")), written
    assert written != "0s"


def test_a_page_of_a_proxy_is_not_shown_as_part_of_the_dashboard(
    address: str, window: Callable[..., Any], server: FakeApiServer
) -> None:
    """As its log-in after a session has ended: the page is loaded again, which leads there."""

    def log_in(route: Any) -> None:
        if "x-part" in route.request.headers:
            route.fulfill(status=200, body="<h1>Proxy</h1>", content_type="text/html")
        else:
            route.continue_()

    page = live(window(address, routes={f"{address}/": log_in}))
    server.lists[PODS] = [pod("web", 6), pod("fresh", 5)]
    page.get_by_text("GPU0 11/15").wait_for()
    assert page.get_by_text("Proxy").count() == 0


def test_a_change_keeps_the_table_that_has_the_focus(
    address: str, window: Callable[..., Any], server: FakeApiServer
) -> None:
    """Who scrolls a table with the keyboard stays there."""
    page = live(window(f"{address}/nodes/n1"))
    page.get_by_role("region", name="Pods").focus()
    server.lists[PODS] = [pod("web", 6), pod("fresh", 5)]
    page.get_by_text("GPU0 11/15").wait_for()
    assert page.evaluate("document.activeElement.ariaLabel") == "Pods"


def test_a_page_from_before_the_first_read_shows_why_it_fails(
    server: FakeApiServer, window: Callable[..., Any], tmp_path: Path
) -> None:
    """A page without any state of the cluster has each new reason without a reload, and then it."""
    server.statuses[NODES] = 403
    with served("--interval=0.2", f"--kubeconfig={server.kubeconfig(tmp_path)}") as place:
        page = window(f"http://{place}", forgiving="503")
        page.get_by_text("403 the fake refuses").wait_for()
        server.statuses[NODES] = 500
        page.get_by_text("500 the fake refuses").wait_for()
        assert page.locator("#offline").is_hidden()
        del server.statuses[NODES]
        page.get_by_text("GPU0 6/15").wait_for()
        page.context.close()
