"""The page in a real Chromium, served by the real command.

Skipped where there is no Chromium; screenshots are kept in ``artifacts/``.
"""

import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from drawncluster import Card, FakeCluster

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
DEADLINE_MS = 15_000


def drawn() -> FakeCluster:
    """Three nodes of different kinds with pods of three sizes, and a pod that waits."""
    cluster = FakeCluster()
    cluster.node("gpu-t4-a", address="10.0.0.1", cards=[Card(15)] * 2)
    cluster.node("gpu-t4-b", cards=[Card(15), Card(15, healthy=False)], cordoned=True)
    cluster.node("gpu-a100", cards=[Card(39, "NVIDIA A100-PCIE-40GB", mode="mps")] * 4)
    for place, units in enumerate((3, 6, 4)):
        cluster.pod(f"web-{place}", units, node="gpu-t4-a", index=place % 2)
    cluster.pod("train", 39, node="gpu-a100", index=1, namespace="research")
    return cluster.pod("large", 64, phase="Pending", namespace="research")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser of this machine."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where ``gpushare dashboard`` serves a cluster that stays as it is."""
    path = tmp_path_factory.mktemp("dashboard") / "cluster.json"
    path.write_text(drawn().json())
    with serving(path) as url:
        yield url


@contextmanager
def serving(snapshot: Path) -> Iterator[str]:
    """The real command over a file that it reads again and again."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    line = [sys.executable, "-m", "gpuinspect", "dashboard", f"--port={port}", "--interval=0.2"]
    service = subprocess.Popen([*line, "--snapshot", str(snapshot)], stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(service, url)
        yield url
    finally:
        service.terminate()
        service.wait(15)


def wait_until_ready(service: subprocess.Popen[bytes], url: str) -> None:
    """Ask until the service has read the cluster; it fails or answers within the deadline."""
    for _ in range(DEADLINE_MS // 100):
        assert service.poll() is None, "the service has ended"
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=1) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        try:
            service.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    pytest.fail("the service did not become ready")


@pytest.fixture
def open_page(chromium: Any, address: str) -> Iterator[Callable[..., Any]]:
    """Opens a path in a window of its own; anything the browser complains of fails the test."""
    complaints: list[str] = []
    contexts: list[Any] = []

    def opened(path: str, *, width: int = 1200, scheme: str = "light", at: str = address) -> Any:
        size = {"width": width, "height": 800}
        context = chromium.new_context(viewport=size, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(DEADLINE_MS)
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else 0)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(at + path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def keep(request: pytest.FixtureRequest) -> Callable[[Any, str], None]:
    """Keeps a picture of a page."""
    folder = request.config.rootpath / "artifacts"

    def kept(page: Any, name: str) -> None:
        folder.mkdir(exist_ok=True)
        path = folder / f"dashboard-{name}.png"
        page.screenshot(path=path, full_page=True)
        assert path.stat().st_size > 5_000

    return kept


def test_the_map_changes_without_a_reload(
    open_page: Callable[..., Any], keep: Callable[..., None], tmp_path: Path
) -> None:
    """A pod that appears in the cluster appears on the page, which was loaded once."""
    snapshot, replaced = tmp_path / "cluster.json", tmp_path / "new.json"
    snapshot.write_text(drawn().json())
    with serving(snapshot) as url:
        page = open_page("/", at=url)
        page.get_by_text("Live").wait_for()
        assert page.get_by_text("GPU0 7/15").count() == 1
        keep(page, "light")
        page.evaluate("window.loadedOnce = true")
        replaced.write_text(drawn().pod("fresh", 5, node="gpu-t4-a", index=0).json())
        replaced.replace(snapshot)
        page.get_by_text("GPU0 12/15").wait_for()
        assert page.evaluate("window.loadedOnce") is True
        page.close()


def test_the_keyboard_reaches_pods(open_page: Callable[..., Any]) -> None:
    """Tab comes to the skip link first and to every pod; Enter opens its page."""
    page = open_page("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    for _ in range(40):
        page.keyboard.press("Tab")
        here = page.evaluate("document.activeElement.getAttribute('aria-label') || ''")
        if here.startswith("default/web-0"):
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/pods/default/web-0")
    assert "3 GiB on card 0 of node gpu-t4-a" in page.content()


@pytest.mark.parametrize("path", ["/", "/nodes/gpu-a100", "/pods", "/whatif?mem=20&replicas=3"])
def test_a_phone_shows_every_page(open_page: Callable[..., Any], path: str) -> None:
    """At 360 pixels nothing but tables scrolls sideways."""
    page = open_page(path, width=360)
    wider = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert wider == 0


def test_a_phone_in_the_dark(open_page: Callable[..., Any], keep: Callable[..., None]) -> None:
    """The dark scheme has a dark background and light text."""
    page = open_page("/", width=390, scheme="dark")
    colours = page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    back, text = (sum(map(int, c.strip("rgb()").split(","))) for c in colours)
    assert back < 150
    assert text > 600
    keep(page, "dark-phone")


def test_the_form_answers(open_page: Callable[..., Any], keep: Callable[..., None]) -> None:
    """A question typed into the form is answered on the same page."""
    page = open_page("/whatif")
    page.get_by_label("Units of memory").fill("15")
    page.get_by_label("How many pods").fill("9")
    page.get_by_role("button", name="Ask").click()
    page.get_by_role("heading", name="6 of 9 pods fit").wait_for()
    keep(page, "whatif")


def test_a_waiting_pod_is_explained(
    open_page: Callable[..., Any], keep: Callable[..., None]
) -> None:
    """From the map over the waiting pods to the reason of one."""
    page = open_page("/")
    page.get_by_role("link", name="Waiting pods").click()
    page.get_by_role("link", name="research/large").click()
    page.get_by_text("waiting: no node can take it now").wait_for()
    assert "no card is that large" in page.content()
    keep(page, "pod")
