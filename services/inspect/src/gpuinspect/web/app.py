"""The routes of the page: all of them GET, none of which can change a cluster."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from gpuinspect.web.access import Gate, Reviewer
from gpuinspect.web.feed import Feed, Frame
from gpuinspect.web.headers import SecurityHeaders
from gpuinspect.web.hosts import LocalHosts
from gpuinspect.web.markup import Markup, el
from gpuinspect.web.pages import clusterpage, nodepage, podpages, whatifpage
from gpuinspect.web.pages.frame import content, page

STATIC: Final = Path(__file__).parent / "static"
HEARTBEAT: Final = 15.0
"""Seconds between two signs of life of an event stream, so that proxies keep it open."""

Job = Callable[[], Coroutine[None, None, None]]
Render = Callable[[Frame, Mapping[str, str]], Markup | None]


def make_app(
    feed: Feed,
    reviewer: Reviewer | None = None,
    *,
    local_only: bool = False,
    beside: Sequence[Job] = (),
) -> Starlette:
    """The page over ``feed``, which it runs while it is served.

    Args:
        feed: what is shown.
        reviewer: says who may look; ``None`` lets everybody look who can reach the page.
        local_only: answer only requests that name this machine as their host.
        beside: what else runs while it is served.
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

    routes = [
        Route("/", _shown(feed, "Cluster", clusterpage.cluster, here="/")),
        Route("/nodes/{node}", _shown(feed, "Node", _node, here="")),
        Route("/pods", _shown(feed, "Waiting pods", _waiting, here="/pods")),
        Route("/pods/{namespace}/{pod}", _shown(feed, "Pod", _pod, here="")),
        Route("/whatif", _shown(feed, "What if", whatifpage.whatif, here="/whatif", live=False)),
        Route("/events", _events(feed)),
        Route("/healthz", _healthz),
        Route("/readyz", _readyz(feed)),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    middleware = [Middleware(SecurityHeaders)]
    if local_only:
        middleware.append(Middleware(LocalHosts))
    if reviewer is not None:
        middleware.append(Middleware(Gate, reviewer))
    return Starlette(routes=routes, lifespan=lifespan, middleware=middleware)


def _shown(
    feed: Feed, title: str, render: Render, *, here: str, live: bool = True
) -> Callable[[Request], Response]:
    """A page from the newest frame; a plain function, so that it runs off the event loop."""

    def answer(request: Request) -> Response:
        frame = feed.frame
        if frame is None:
            problem = el("p", feed.error, class_="problem")
            text = page(title, problem, frame=None, here=here)
            return HTMLResponse(text, status_code=503)
        main = render(frame, {**request.query_params, **request.path_params})
        status = 200 if main is not None else 404
        name = "/".join(request.path_params.values()) or title
        main = main or el("p", "There is none of this name.", class_="problem")
        if request.headers.get("x-part") == "main":
            return HTMLResponse(content(main, frame), status_code=status)
        text = page(name, main, frame=frame, here=here, live=live)
        return HTMLResponse(text, status_code=status)

    return answer


def _node(frame: Frame, query: Mapping[str, str]) -> Markup | None:
    found = frame.node(query["node"])
    return None if found is None else nodepage.node(frame, found)


def _waiting(frame: Frame, query: Mapping[str, str]) -> Markup:
    del query  # the list has no choices
    return podpages.waiting(frame)


def _pod(frame: Frame, query: Mapping[str, str]) -> Markup | None:
    found = frame.pod(query["namespace"], query["pod"])
    return None if found is None else podpages.pod(frame.explain(found))


def _events(feed: Feed) -> Callable[[Request], object]:
    async def answer(request: Request) -> Response:
        del request  # every listener hears the same
        head = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(_versions(feed), media_type="text/event-stream", headers=head)

    return answer


async def _versions(feed: Feed) -> AsyncIterator[str]:
    version = feed.version
    yield f"data: {version}\n\n"
    while True:
        try:
            version = await asyncio.wait_for(feed.newer(version), HEARTBEAT)
            yield f"data: {version}\n\n"
        except TimeoutError:
            yield ": alive\n\n"


def _healthz(request: Request) -> Response:
    del request
    return PlainTextResponse("ok")


def _readyz(feed: Feed) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        del request
        return PlainTextResponse(feed.error or "ok", status_code=503 if feed.error else 200)

    return answer
