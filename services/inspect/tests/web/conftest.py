"""A real browser, the real command behind it, and pictures of what it shows.

Without a browser these tests are skipped, but where ``CI`` is set they fail. Pictures are kept in
``artifacts/`` of the repository, which git ignores.
"""

import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import chromium as browsers
from servedpage import SECONDS, served
from visits import NETWORK_CHANGED, visited

from host.testing.lacking import lacking

DEADLINE_MS = 180_000
"""For everything that is waited for; a machine with thirty programs to run needs some of it."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser of this machine; while it is open, no test beside it can run an event loop."""
    path = browsers.installed()
    if path is None:
        how = f"install {browsers.PACKAGE}, or be root on Debian"
        lacking("no Chromium", FileNotFoundError(how))
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - slow, and only needed here

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def serving() -> Callable[..., Any]:
    """Runs ``gpushare dashboard`` with some flags until a block ends, and states where."""
    return _serving


@contextmanager
def _serving(*flags: str) -> Iterator[str]:
    with served("--interval=0.2", *flags) as place:
        url = f"http://{place}"
        _wait_until_ready(url)
        yield url


def _wait_until_ready(url: str) -> None:
    """Send requests until the service has read the cluster."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            with direct.open(f"{url}/readyz", timeout=SECONDS) as answer:
                if answer.status == 200:
                    return
        except OSError:  # it is there, but has not read the cluster
            time.sleep(0.05)
    pytest.fail("the service did not become ready")


def _page(context: Any, routes: Mapping[str, Callable[[Any], None]]) -> Any:
    """An empty page whose requests these handle."""
    page = context.new_page()
    page.set_default_timeout(DEADLINE_MS)
    for pattern, handle in routes.items():
        page.route(pattern, handle)
    return page


@pytest.fixture
def window(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens an address in a window of its own.

    An error of the browser fails the test, unless ``forgiving`` is part of it. A page that a change
    of the machine's network interrupted is opened again, in a new tab. Request this fixture after
    the address, so that windows close before the service ends. ``routes`` handle requests of the
    page.
    """
    complaints: list[str] = []
    interruptions: list[str] = []
    contexts: list[Any] = []

    def opened(
        address: str,
        *,
        width: int = 1200,
        scheme: str = "light",
        forgiving: str = "\n",
        zone: str = "UTC",
        routes: Mapping[str, Callable[[Any], None]] = MappingProxyType({}),
    ) -> Any:
        def complain(text: str) -> None:
            if NETWORK_CHANGED in text:
                interruptions.append(text)
            elif forgiving not in text:
                complaints.append(text)

        size = {"width": width, "height": 800}
        context = chromium.new_context(
            viewport=size, color_scheme=scheme, timezone_id=zone, locale="en-GB"
        )
        contexts.append(context)

        def empty() -> Any:
            page = _page(context, routes)
            page.on(
                "console",
                lambda message: complain(message.text) if message.type == "error" else None,
            )
            page.on("pageerror", lambda error: complain(str(error)))
            return page

        return visited(empty, address, interruptions)

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
