"""The page in a real Chromium over an API server that changes while it is looked at."""

import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from fakeapiserver import FakeApiServer

from gpuinspect.web.tokens import ACCESS_REVIEWS, TOKEN_REVIEWS

pytestmark = pytest.mark.slow

DEADLINE_SECONDS = 180
NODES, PODS, EVENTS = "/api/v1/nodes", "/api/v1/pods", "/api/v1/events"


def wait_for_text(address: str, text: str) -> None:
    """Until the page that the service makes has this text."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + DEADLINE_SECONDS
    while text not in direct.open(address, timeout=DEADLINE_SECONDS).read().decode():
        assert time.monotonic() < end, f"{text} did not appear"
        time.sleep(0.05)


def pod(name: str, units: int, index: int) -> dict[str, Any]:
    """A pod that holds a share of a GPU of ``n1``."""
    return FakeCluster().pod(name, units, node="n1", index=index).items[0]


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    """An API server with a node and a pod, which accepts any token."""
    nodes = FakeCluster().node("n1", gpus=[Gpu(15)] * 2).items
    with FakeApiServer({NODES: nodes, PODS: [pod("web", 6, 0)], EVENTS: []}).serving() as server:
        server.reviews = {
            TOKEN_REVIEWS: {"status": {"authenticated": True, "user": {"username": "ann"}}},
            ACCESS_REVIEWS: {"status": {"allowed": True}},
        }
        yield server


@pytest.fixture
def address(server: FakeApiServer, serving: Callable[..., Any], tmp_path: Path) -> Iterator[str]:
    """Where ``gpushare dashboard --require-token`` shows that cluster."""
    with serving(f"--kubeconfig={server.kubeconfig(tmp_path)}", "--require-token") as url:
        yield url


def test_log_in_and_watch(
    address: str, window: Callable[..., Any], server: FakeApiServer, keep: Callable[..., None]
) -> None:
    """A token opens the page, and a pod that comes appears on it without a reload.

    The keyboard's place is kept, and a failing API server is reported beside the last state.
    """
    page = window(address)
    keep(page, "login")
    page.get_by_label("Token").fill("a token")
    page.get_by_role("button", name="Log in").click()
    page.get_by_text("Live", exact=True).wait_for()
    page.evaluate("window.loadedOnce = true")
    page.locator("svg a").first.focus()
    server.lists[PODS] = [pod("web", 6, 0), pod("fresh", 5, 0)]
    page.get_by_text("GPU0 11/15").wait_for()
    focus = "document.activeElement.getAttribute('href')"
    assert page.evaluate(focus) == "/pods/default/web"
    server.statuses[PODS] = 503
    page.get_by_text("Stale data").wait_for()
    assert page.get_by_text("GPU0 11/15").count() == 1
    keep(page, "out-of-date")
    del server.statuses[PODS]
    page.get_by_text("Stale data").wait_for(state="detached")
    assert page.evaluate("window.loadedOnce") is True


@pytest.fixture
def open_address(
    server: FakeApiServer, serving: Callable[..., Any], tmp_path: Path
) -> Iterator[str]:
    """The address of a dashboard of that cluster, without authentication."""
    with serving(f"--kubeconfig={server.kubeconfig(tmp_path)}") as url:
        yield url


def test_ages_grow_while_the_page_is_open(open_address: str, window: Callable[..., Any]) -> None:
    """The script writes them anew, as the server does."""
    page = window(f"{open_address}/pods/default/web")
    age = page.locator("time.age")
    written = age.inner_text()
    assert written.endswith("d")
    age.evaluate("age => { age.textContent = 'old'; }")
    page.locator("time.age", has_text=written).wait_for()


def test_a_change_keeps_the_cell_that_has_the_focus(
    open_address: str, window: Callable[..., Any], server: FakeApiServer
) -> None:
    """The new cell of the same GPU has it, and is the tab stop of the map."""
    page = window(open_address)
    page.get_by_text("Live", exact=True).wait_for()
    page.locator('.cells button[value="n1/1"]').focus()
    server.lists[PODS] = [pod("web", 6, 0), pod("fresh", 5, 1)]
    page.get_by_text("GPU1 5/15").wait_for()
    assert page.evaluate("document.activeElement.value") == "n1/1"
    assert page.evaluate("document.activeElement.title").count("default/fresh 5 GiB") == 1
    stops = page.locator('.cells button[tabindex="0"]')
    assert [each.get_attribute("value") for each in stops.all()] == ["n1/1"]


def test_a_change_before_the_event_stream_opens(
    open_address: str, window: Callable[..., Any], server: FakeApiServer
) -> None:
    """The page is older than the first event of its stream: it shows the change all the same."""

    def change(route: Any) -> None:
        server.lists[PODS] = [pod("web", 6, 0), pod("fresh", 5, 0)]
        wait_for_text(open_address, "GPU0 11/15")
        route.continue_()

    window(open_address, routes={"**/events": change}).get_by_text("GPU0 11/15").wait_for()


def test_a_refresh_that_fails_is_repeated(
    open_address: str, window: Callable[..., Any], server: FakeApiServer
) -> None:
    """One answer of a failing proxy, and no further change: the page shows the cluster as it is."""
    refused: list[str] = []

    def refuse_once(route: Any) -> None:
        if "x-part" in route.request.headers and not refused:
            refused.append(route.request.url)
            route.fulfill(status=503, body="no backend")
        else:
            route.continue_()

    page = window(open_address, forgiving="503", routes={f"{open_address}/": refuse_once})
    page.get_by_text("Live", exact=True).wait_for()
    server.lists[PODS] = [pod("web", 6, 0), pod("fresh", 5, 0)]
    page.get_by_text("GPU0 11/15").wait_for()
    page.get_by_text("Live", exact=True).wait_for()
    assert refused


@pytest.fixture
def held_back(open_address: str, window: Callable[..., Any], server: FakeApiServer) -> Any:
    """A page with a change of the cluster that it does not show, because a field has the focus."""
    page = window(open_address)
    page.get_by_text("Live", exact=True).wait_for()
    page.locator("main input[name=q]").fill("web")
    server.lists[PODS] = [pod("web", 6, 0), pod("fresh", 5, 0)]
    page.get_by_text("Update waits for your input").wait_for()
    assert page.get_by_text("GPU0 6/15").count() == 1
    return page


def test_a_page_catches_up_once_a_field_loses_the_focus(held_back: Any) -> None:
    """An update that waited for a viewer who types is shown without a further change."""
    held_back.evaluate("document.activeElement.blur()")
    held_back.get_by_text("GPU0 11/15").wait_for()
    held_back.get_by_text("Live", exact=True).wait_for()


def test_a_slow_click_submits_a_form(held_back: Any) -> None:
    """The button that takes the focus from the field is not replaced while it is pressed."""
    held_back.get_by_role("button", name="Apply").hover()
    held_back.mouse.down()
    held_back.wait_for_timeout(250)
    held_back.mouse.up()
    held_back.wait_for_url("**q=web**")


def test_a_pod_that_goes(
    open_address: str, window: Callable[..., Any], server: FakeApiServer
) -> None:
    """The page of a pod that is deleted while it is looked at states that it is gone."""
    page = window(f"{open_address}/pods/default/web", forgiving="404")
    page.get_by_text("Live", exact=True).wait_for()
    revision = page.locator("main").get_attribute("data-revision")
    assert int(revision.partition("-")[0]) > 0, "revisions of a restarted program must differ"
    server.lists[PODS] = []
    page.get_by_text("This object does not exist.").wait_for()


def test_a_page_whose_server_is_busy_states_so_and_no_lost_connection(
    open_address: str, window: Callable[..., Any], server: FakeApiServer
) -> None:
    """The server refuses expensive pages (429) while too many wait; then the page catches up."""
    busy = True

    def refuse(route: Any) -> None:
        if "x-part" in route.request.headers and busy:
            route.fulfill(status=429, body="busy")
        else:
            route.continue_()

    page = window(open_address, forgiving="429", routes={f"{open_address}/": refuse})
    page.get_by_text("Live", exact=True).wait_for()
    server.lists[PODS] = [pod("web", 6, 0), pod("fresh", 5, 0)]
    page.get_by_text("Server busy, trying again").wait_for()
    assert page.locator("#offline").is_hidden()
    busy = False
    page.get_by_text("GPU0 11/15").wait_for()
    page.get_by_text("Live", exact=True).wait_for()
