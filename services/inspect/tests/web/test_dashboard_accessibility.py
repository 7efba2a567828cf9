"""Every page of the dashboard without serious findings of axe-core, and by keyboard alone."""

from collections.abc import Callable, Iterator
from typing import Any

import axecore
import pytest
from drawncluster import FakeCluster, Gpu

from host.testing.lacking import lacking

pytestmark = pytest.mark.slow

PAGES = (
    "/",
    "/?by=rack&show=waste&gib=7&at=gpu-a/0",
    "/?show=namespace&group=Tesla%20T4",
    "/?show=health&rows=all",
    "/sizes",
    "/health",
    "/usage",
    "/usage?by=model",
    "/pods",
    "/pods/research/large",
    "/pods/default/web-0",
    "/nodes/gpu-b",
    "/whatif?mem=12&replicas=3",
)


def drawn() -> FakeCluster:
    """Two nodes, an unhealthy GPU, running and pending pods."""
    cluster = FakeCluster().node("gpu-a", gpus=[Gpu(15)] * 2)
    cluster.node("gpu-b", gpus=[Gpu(15), Gpu(15, healthy=False)], cordoned=True)
    cluster.pod("web-0", 6, node="gpu-a", index=0)
    cluster.pod("web-1", 9, node="gpu-b", index=1)
    return cluster.pod("large", 64, phase="Pending", namespace="research")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, serving: Callable[..., Any]) -> Iterator[str]:
    """Where ``gpushare dashboard --snapshot`` serves."""
    path = tmp_path_factory.mktemp("page") / "cluster.json"
    path.write_text(drawn().json())
    with serving("--snapshot", str(path)) as url:
        yield url


@pytest.fixture(scope="module")
def axe() -> str:
    """The text of axe-core."""
    text = axecore.script()
    if text is None:
        lacking("no axe-core", FileNotFoundError(f"npm cannot install {axecore.VERSION}"))
    return text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    window: Callable[..., Any], address: str, axe: str, keep: Callable[..., None], scheme: str
) -> None:
    """On every page, in both colour schemes, with the legend open."""
    found = {}
    for path in PAGES:
        page = window(address + path, scheme=scheme)
        page.get_by_role("heading", level=1).wait_for()
        for summary in page.locator("summary").all():
            summary.click()
        page.evaluate(axe)
        found[path] = [f for f in page.evaluate(axecore.RUN) if f["impact"] in axecore.SERIOUS]
        keep(page, f"{scheme}{path.split('?')[0].replace('/', '-')}")
    assert found == {path: [] for path in PAGES}


def test_axe_would_find_a_fault(window: Callable[..., Any], address: str, axe: str) -> None:
    """A field without a label is a serious finding."""
    page = window(address)
    page.evaluate("document.querySelector('input').replaceWith(document.createElement('input'))")
    page.evaluate("document.querySelectorAll('label').forEach((l) => l.replaceWith(...l.children))")
    page.evaluate(axe)
    assert "label" in {each["id"] for each in page.evaluate(axecore.RUN)}


def test_the_keyboard_reaches_every_page(window: Callable[..., Any], address: str) -> None:
    """Each entry of the navigation by Tab and Enter; the current one is marked."""
    page = window(address)
    for place in range(6):
        page.locator("body").evaluate("body => { body.tabIndex = -1; body.focus(); }")
        for _ in range(place + 2):  # the skip link is the first
            page.keyboard.press("Tab")
        href = page.evaluate("document.activeElement.getAttribute('href')")
        page.keyboard.press("Enter")
        page.wait_for_url(f"**{href}")
        assert page.locator("[aria-current=page]").get_attribute("href") == href


def test_the_keyboard_opens_the_legend(window: Callable[..., Any], address: str) -> None:
    """Its summary takes the focus and opens with Enter."""
    page = window(address)
    page.locator("summary").focus()
    page.keyboard.press("Enter")
    page.get_by_text("one GPU; each segment is the memory allocated to one pod").wait_for()


def test_times_are_local_with_utc_on_hover(window: Callable[..., Any], address: str) -> None:
    """The browser's time zone in the text, UTC as the title."""
    page = window(f"{address}/pods", zone="Asia/Tokyo")
    time = page.locator("td time:not(.age)")
    assert time.get_attribute("title") == "2026-01-02 03:04:05 UTC"
    assert "12:04:05" in time.inner_text()


def test_a_dashboard_that_ends_is_announced(
    window: Callable[..., Any], serving: Callable[..., Any], tmp_path: Any
) -> None:
    """A banner in the role of an alert, at the top of the page."""
    path = tmp_path / "cluster.json"
    path.write_text(drawn().json())
    with serving("--snapshot", str(path)) as url:
        page = window(url, forgiving="ERR_")
        page.get_by_role("status").get_by_text("Snapshot of").wait_for()
        assert page.get_by_role("alert").count() == 0
    page.get_by_role("alert").get_by_text("Not connected").wait_for()
