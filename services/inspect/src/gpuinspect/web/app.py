"""The routes of the dashboard: all of them GET, none of which can change a cluster."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpuinspect.web.access import AuthMiddleware, session_of
from gpuinspect.web.feed import Feed
from gpuinspect.web.frames import Frame
from gpuinspect.web.hosts import LocalHosts
from gpuinspect.web.pages import (
    clusterpage,
    healthpage,
    nodepage,
    podpages,
    sizespage,
    usagepage,
    whatifpage,
)
from gpuinspect.web.pages.frame import content, page, sentence
from gpuinspect.web.readapi import api_routes, failed, marks_places
from gpuinspect.web.rendering import View
from gpuinspect.web.streams import EventStreams
from gpuinspect.web.tokens import TokenReviewer
from gpuinspect.web.turns import PageTurns

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self';"
        " img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Vary": "X-Part, Accept-Encoding",
}
_CACHING: Final = ("Cache-Control", "no-cache")
"""Of answers without another; browsers use a script without it for a tenth of its age."""
STATIC: Final = Path(__file__).parent / "static"
HEARTBEAT_SECONDS: Final = 15.0
"""Seconds between two events of a stream at most, by which a page notices that it is dead."""
REVISION: Final = "X-Revision"
"""Header of a part of a page: the revision that it shows."""
Job = Callable[[], Coroutine[None, None, None]]
Render = Callable[[Frame, Mapping[str, str]], View | None]


def make_app(
    feed: Feed,
    reviewer: TokenReviewer | None = None,
    *,
    local_only: bool = False,
    beside: Sequence[Job] = (),
) -> Starlette:
    """The dashboard for ``feed``, which runs while the application does.

    Args:
        feed: the data to show.
        reviewer: checks tokens; ``None``: every client that reaches the port has access.
        local_only: accept only requests whose Host is this machine.
        beside: runs while the application does.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(job()) for job in (feed.run, *beside)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    turns = PageTurns()
    cluster = _shown(feed, "Cluster", clusterpage.cluster, here="/")
    usage = _shown(feed, "Usage", usagepage.usage, here="/usage")
    sizes = _shown(feed, "Used against requested", sizespage.sizes, here="/sizes")
    pod = _shown(feed, "Pod", _pod, here="")
    pending = _shown(feed, "Pending pods", _waiting, here="/pods")
    what_if = _shown(feed, "What if", whatifpage.whatif, here="/whatif", live=False)
    routes = [
        Route("/", turns.of(cluster, _refused, marks_places)),
        Route("/nodes/{node}", _shown(feed, "Node", _node, here="")),
        Route("/pods", turns.of(pending, _refused, lambda _: _unexplained(feed.frame))),
        Route("/health", _shown(feed, "GPU health", _health, here="/health")),
        Route("/usage", turns.of(usage, _refused)),
        Route("/sizes", turns.of(sizes, _refused)),
        Route("/pods/{namespace}/{pod}", turns.of(pod, _refused)),
        Route("/whatif", turns.of(what_if, _refused)),
        *api_routes(feed, turns),
        Route("/events", _events(feed)),
        Route("/healthz", _probe(lambda: "")),
        Route("/readyz", _probe(lambda: _unready(feed))),
        Route("/freshz", _probe(lambda: feed.error)),  # fails while the cluster cannot be read
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    middleware = [Middleware(SecurityHeaders), Middleware(GZipMiddleware, compresslevel=4)]
    if local_only:
        middleware.append(Middleware(LocalHosts))
    if reviewer is not None:
        middleware.append(Middleware(AuthMiddleware, reviewer))
    handlers = {404: _not_found}
    return Starlette(
        routes=routes, lifespan=lifespan, middleware=middleware, exception_handlers=handlers
    )


def _shown(
    feed: Feed, title: str, render: Render, *, here: str, live: bool = True
) -> Callable[[Request], Response]:
    """A page from the newest frame; a plain function, so that it runs off the event loop."""

    def render_page(request: Request) -> Response:
        revision = feed.revision  # before the frame: a change between the two is shown again
        frame = feed.frame
        name = "/".join(request.path_params.values()) or title
        if frame is None:
            status, main = 503, sentence(feed.error)
        else:
            found = render(frame, {**request.query_params, **request.path_params})
            status = 200 if found is not None else 404
            main = found or sentence("This object does not exist.")
        if request.headers.get("x-part") == "main":
            head = {REVISION: revision}
            return HTMLResponse(content(main, frame), status_code=status, headers=head)
        shown = revision if live or frame is None else ""
        text = page(name, main, frame=frame, here=here, revision=shown)
        return HTMLResponse(text, status_code=status)

    return render_page


async def _not_found(request: Request, error: Exception) -> Response:
    """A page for browsers, JSON below ``/api/``, and text for other programs."""
    del error
    if request.url.path.startswith("/api/"):
        return failed("there is no such path; see /api/v1/gpus and /api/v1/sizes", 404)
    if "text/html" not in request.headers.get("accept", ""):
        return PlainTextResponse("Not Found", status_code=404)
    text = page("Not found", View("notfound.html", {}), frame=None, here="", revision="")
    return HTMLResponse(text, status_code=404)


def _refused(text: str) -> Response:
    return PlainTextResponse(text, status_code=429)


def _node(frame: Frame, query: Mapping[str, str]) -> View | None:
    found = frame.node(query["node"])
    return None if found is None else nodepage.node(frame, found)


def _waiting(frame: Frame, query: Mapping[str, str]) -> View:
    del query  # the list has no choices
    view = podpages.waiting(frame)
    frame.reasons_known = True
    return view


def _unexplained(frame: Frame | None) -> bool:
    """The first list of pending pods of a frame takes seconds, in which others wait for it."""
    return frame is not None and not frame.reasons_known


def _health(frame: Frame, query: Mapping[str, str]) -> View:
    del query
    return healthpage.health(frame)


def _pod(frame: Frame, query: Mapping[str, str]) -> View | None:
    found = frame.pod(query["namespace"], query["pod"])
    return None if found is None else podpages.pod(frame, frame.explain(found))


def _events(feed: Feed) -> Callable[[Request], object]:
    streams = EventStreams()

    async def stream_versions(request: Request) -> Response:
        return streams.respond(session_of(request), _versions(feed))

    return stream_versions


async def _versions(feed: Feed) -> AsyncIterator[str]:
    """The revision at first, after each change, and as a sign of life; its id is the time."""
    version = feed.version
    while True:
        yield f"id: {1000 * time.time():.0f}\ndata: {feed.revision}\n\n"
        with suppress(TimeoutError):
            version = await asyncio.wait_for(feed.newer(version), HEARTBEAT_SECONDS)


def _probe(problem: Callable[[], str]) -> Callable[[Request], Coroutine[None, None, Response]]:
    """Answers on the event loop, for all threads may be waiting for the API server."""

    async def answer(request: Request) -> Response:
        del request
        found = problem()
        return PlainTextResponse(found or "ok", status_code=503 if found else 200)

    return answer


def _unready(feed: Feed) -> str:
    """Ready once there is something to show: stale pages are better than none."""
    return feed.error if feed.frame is None else ""


class SecurityHeaders:
    """Adds the headers to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault(*_CACHING)
            await send(message)

        await self._app(scope, receive, with_headers)
