"""What the pages of a built site point at: links, anchors, and what a browser would fetch."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

FETCHED: Final = {"script": "src", "img": "src", "source": "src", "iframe": "src", "link": "href"}
"""Tags whose target a browser fetches by itself, and the attribute that names it."""
NO_FETCH: Final = frozenset({"canonical", "next", "prev", "alternate"})
"""Relations of a `link` that point without fetching."""


@dataclass
class Page:
    """Anchors of a page, what its reader may follow and what the browser fetches."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {key: value or "" for key, value in attrs}
        if "id" in has:
            self.page.anchors.add(has["id"])
        if tag == "a" and "href" in has:
            self.page.links.append(has["href"])
        target = has.get(FETCHED.get(tag, ""))
        if target and not NO_FETCH & set(has.get("rel", "").split()):
            self.page.fetched.append(target)


def read(path: Path) -> Page:
    """One page of the site."""
    reader = _Reader()
    reader.feed(path.read_text())
    return reader.page
