"""A page that a change of the machine's network interrupts is opened again."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Error
from visits import VISITS, visited

REFUSED = "Page.goto: net::ERR_CONNECTION_REFUSED at http://127.0.0.1:1/"
DROPPED = "Page.goto: net::ERR_NETWORK_CHANGED at http://127.0.0.1:1/"
REPLACED = (
    'Page.goto: Navigation to "http://127.0.0.1:1/" is interrupted by another navigation to '
    '"chrome-error://chromewebdata/"'
)


class FakeTab:
    """A tab whose one visit fails with a text, or not."""

    def __init__(self, failure: str | None) -> None:
        self.failure = failure
        self.closed = False

    def goto(self, address: str) -> None:
        """Fail as told."""
        if self.failure is not None:
            raise Error(self.failure)

    def close(self) -> None:
        """Remember it."""
        self.closed = True


def tabs(*failures: str | None) -> tuple[list[FakeTab], Callable[[], FakeTab]]:
    """Tabs with these failures, and what opens one after the other."""
    made = [FakeTab(failure) for failure in failures]
    return made, iter(made).__next__


@pytest.mark.parametrize("failure", [DROPPED, REPLACED])
def test_an_interrupted_visit_is_made_again_in_a_new_tab(failure: str) -> None:
    """The old tab is closed: its late error page could interrupt the next visit too."""
    made, empty = tabs(failure, failure, None)
    assert visited(empty, "http://127.0.0.1:1/", []) is made[2]
    assert [tab.closed for tab in made] == [True, True, False]


def test_a_request_of_the_page_that_was_dropped_counts() -> None:
    """The page is there, but something it loads is not."""
    made, empty = tabs(None, None)
    noted: list[str] = []

    def opened() -> FakeTab:
        tab = empty()
        if tab is made[0]:
            noted.append(DROPPED)
        return tab

    assert visited(opened, "http://127.0.0.1:1/", noted) is made[1]


def test_other_failures_are_not_repeated() -> None:
    """A service that is not there is an error at once."""
    with pytest.raises(Error, match="CONNECTION_REFUSED"):
        visited(tabs(REFUSED)[1], "http://127.0.0.1:1/", [])


def test_visits_are_bounded() -> None:
    """The last interruption is in the message."""
    with pytest.raises(AssertionError, match=f"interrupted {VISITS} times.*NETWORK_CHANGED"):
        visited(tabs(*[DROPPED] * VISITS)[1], "http://127.0.0.1:1/", [])
