"""Opening a page while interfaces of the machine, as those of containers, come and go."""

from collections.abc import Callable
from typing import Any, Final

NETWORK_CHANGED: Final = "net::ERR_NETWORK_CHANGED"
"""Chromium drops its requests when an interface of the machine changes."""
ERROR_PAGE: Final = "chrome-error://"
"""The page it shows instead, late: its navigation can interrupt the next one of the same tab."""
VISITS: Final = 10


def visited(empty: Callable[[], Any], address: str, interruptions: list[str]) -> Any:
    """A page at an address, in the first tab that no change of the network interrupted.

    Args:
        empty: makes a tab.
        address: what the tab opens.
        interruptions: where the tab's own requests note theirs; emptied before each visit.

    Raises:
        AssertionError: every visit was interrupted.
    """
    from playwright.sync_api import Error  # noqa: PLC0415 - slow, and only needed here

    for _ in range(VISITS):
        interruptions.clear()
        page = empty()
        try:
            page.goto(address)
        except Error as error:
            if not _is_interruption(str(error)):
                raise
            interruptions.append(str(error))
        if not interruptions:
            return page
        page.close()
    raise AssertionError(f"interrupted {VISITS} times, last by: {interruptions}")


def _is_interruption(text: str) -> bool:
    return NETWORK_CHANGED in text or ERROR_PAGE in text
