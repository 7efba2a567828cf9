"""A picture of the dashboard for the README: the real program on docs/examples/teams.json.

``python docs/generators/screenshot.py`` writes docs/images/dashboard.png; it needs a Chromium.
"""
# ruff: noqa: INP001 - a script beside the pictures, no package

import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
PATH: Final = ROOT / "docs" / "images" / "dashboard.png"
SNAPSHOT: Final = ROOT / "docs" / "examples" / "teams.json"
SIZE: Final = {"width": 1000, "height": 900}


def taken(browser: Any, url: str) -> bytes:
    """The first page of a dashboard as PNG, in light colours."""
    page = browser.new_page(viewport=SIZE, color_scheme="light")
    try:
        page.goto(url)
        page.get_by_text("t4-b").first.wait_for()
        image: bytes = page.screenshot()
    finally:
        page.close()
    return image


def main() -> int:
    """Write the file, or say what is missing."""
    sys.path[:0] = [str(ROOT / "services/inspect/tests"), str(ROOT / "services/inspect/tests/web")]
    chromium, servedpage = import_module("chromium"), import_module("servedpage")  # of the tests
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - slow

    program = chromium.installed()
    if program is None:
        print("no Chromium", file=sys.stderr)
        return 1
    with (
        sync_playwright() as driver,
        driver.chromium.launch(executable_path=program, args=["--no-sandbox"]) as browser,
        servedpage.served(f"--snapshot={SNAPSHOT}") as place,
    ):
        PATH.write_bytes(taken(browser, f"http://{place}/"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
