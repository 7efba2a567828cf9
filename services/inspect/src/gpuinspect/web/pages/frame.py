"""The frame of all pages: navigation, the state of the feed, and the live part."""

from typing import Any, Final

from gpuinspect.web.frames import Frame
from gpuinspect.web.rendering import View, render

_PLACES: Final = (
    ("/", "Cluster"),
    ("/pods", "Pending pods"),
    ("/health", "GPU health"),
    ("/usage", "Usage"),
    ("/sizes", "Sizes"),
    ("/whatif", "What if"),
)


def page(title: str, main: View, *, frame: Frame | None, here: str, revision: str) -> str:
    """A whole document; with ``revision`` it follows the cluster, which it shows as of then."""
    around = {"title": title, "here": here, "revision": revision, "places": _PLACES}
    return render(View("page.html", main.values), **around, **_state(main, frame))


def content(main: View, frame: Frame | None) -> str:
    """The part that is replaced when the cluster changes."""
    return render(View("content.html", main.values), **_state(main, frame))


def sentence(text: str) -> View:
    """A page that shows only a sentence."""
    return View("sentence.html", {"sentence": text})


def _state(main: View, frame: Frame | None) -> dict[str, Any]:
    return {
        "template": main.template,
        "problem": frame.error if frame else "",
        "note": frame.note if frame else "",
        "taken": frame.taken.strftime("%Y-%m-%dT%H:%M:%SZ") if frame else "",
        "of_file": frame.of_file if frame else False,
    }
