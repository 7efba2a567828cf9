"""``/api/v1`` of the dashboard: what its pages show, as the documents of the command."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gpucore.wire.documents import API_VERSION
from gpuinspect.documents.gpumap import GpuMapDoc
from gpuinspect.documents.recommend import WorkloadSizeList, workload_size_list
from gpuinspect.queries.gpumap import GROUPS
from gpuinspect.web.feed import Feed
from gpuinspect.web.frames import Frame
from gpuinspect.web.pages.choices import MOST_GIB, choices_of
from gpuinspect.web.turns import PageTurns

PREFIX: Final = "/api/v1/"
_JSON: Final = "application/json"


def api_routes(feed: Feed, turns: PageTurns) -> list[Route]:
    """The routes, all of them GET."""
    gpus, sizes = _served(feed, _gpus, _fault), _served(feed, _sizes)
    return [
        Route(f"{PREFIX}gpus", turns.of(gpus, _refused, marks_places)),
        Route(f"{PREFIX}sizes", turns.of(sizes, _refused)),
    ]


def marks_places(request: Request) -> bool:
    """The map marks where a share fits, for which every GPU is evaluated."""
    return choices_of(request.query_params).gib > 0


def _refused(text: str) -> Response:
    return failed(text, 429)


def failed(text: str, status: int) -> Response:
    """An error as JSON."""
    return Response(msgspec.json.encode({"error": text}), status, media_type=_JSON)


def _fault(query: Mapping[str, str]) -> str:
    """What is wrong with the choices of the map; empty where nothing is."""
    if query.get("by", "") not in {"", *GROUPS}:
        return f"by is one of {', '.join(GROUPS)}; label=KEY groups by a label of the nodes"
    if query.get("gib", "") not in {"", str(choices_of(query).gib)}:
        return f"gib is a whole number of GiB from 0 to {MOST_GIB}"
    return ""


def _served(
    feed: Feed,
    document: Callable[[Frame, Mapping[str, str]], msgspec.Struct],
    fault: Callable[[Mapping[str, str]], str] = lambda _: "",
) -> Callable[[Request], Response]:
    """A document of the newest frame; a plain function, so that it runs off the event loop.

    Args:
        fault: what is wrong with a query; a person who types it into a page gets the default.
    """

    def render(request: Request) -> Response:
        wrong = fault(request.query_params)
        if wrong:
            return failed(wrong, 400)
        frame = feed.frame
        if frame is None:
            return failed(feed.error, 503)
        body = msgspec.json.encode(document(frame, request.query_params))
        return Response(body, media_type=_JSON, headers={"Cache-Control": "no-store"})

    return render


def _gpus(frame: Frame, query: Mapping[str, str]) -> GpuMapDoc:
    """As the map, with its choices ``by``, ``label`` and ``gib``."""
    choices = choices_of(query)
    nodes = {node.name for node in frame.view.nodes}
    groups = frame.groups(choices.grouping, nodes, choices.gib)
    taken = frame.taken.strftime("%Y-%m-%dT%H:%M:%SZ")
    return GpuMapDoc(
        API_VERSION, "GpuMap", taken, frame.error, choices.grouping, choices.gib, groups
    )


def _sizes(frame: Frame, query: Mapping[str, str]) -> WorkloadSizeList:
    del query  # the list has no choices
    return workload_size_list(frame.sizes(), str(frame.view.unit), error=frame.error)
