"""What all pages have around them: navigation, the state of the feed, and the live part."""

from typing import Final

from gpuinspect.web.feed import Frame
from gpuinspect.web.markup import Child, Markup, el

_PLACES: Final = (("/", "Cluster"), ("/pods", "Waiting pods"), ("/whatif", "What if"))


def page(title: str, main: Child, *, frame: Frame | None, here: str, live: bool = True) -> str:
    """A whole document."""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{title} - gpushare"),
        el("link", rel="stylesheet", href="/static/style.css"),
        el("link", rel="icon", href="data:,"),
        el("script", src="/static/live.js", defer=True),
    )
    links = [
        el("a", text, href=href, aria_current="page" if href == here else None)
        for href, text in _PLACES
    ]
    body = el(
        "body",
        el("a", "Skip to content", href="#main", class_="skip"),
        el(
            "header",
            el("strong", "gpushare"),
            el("nav", links, aria_label="Pages"),
            el("span", "", id="connection", role="status"),
        ),
        el("main", content(main, frame), id="main", tabindex=-1, data_live=live),
    )
    return f"<!doctype html>\n{el('html', head, body, lang='en')}"


def content(main: Child, frame: Frame | None) -> Markup:
    """The part that is replaced when the cluster changes."""
    if frame is None:
        return el("div", main)
    old = el("p", f"Out of date: {frame.error}", class_="problem") if frame.error else None
    taken = frame.taken.strftime("%Y-%m-%d %H:%M:%S UTC")
    return el("div", old, main, el("p", "As of ", el("time", taken), class_="taken"))
