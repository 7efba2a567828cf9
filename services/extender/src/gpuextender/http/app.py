"""The HTTP application: every route with its OpenAPI document, probes and metrics.

Probes and metrics are served on the port of the scheduler, and on a port of their own where one is
set: beside a scheduler the extender listens on localhost, where no Prometheus and no kubelet of
another network reaches it. Everybody may read them, because nothing can be done with them.
"""

import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.types import ASGIApp

from gpucore import VERSION
from gpuextender import metrics
from gpuextender.health import Readiness
from gpuextender.http import readapi
from gpuextender.http.errors import ErrorView, add_errors
from gpuextender.http.openapi import PREFIXES, SHARE_PREFIX, answers, complete
from gpuextender.http.readapi import ReadApi, answered
from gpuextender.http.turns import Turns
from gpuextender.http.views import (
    Inspection,
    TopologyInspection,
    TopologyInspector,
    inspect_all,
    inspect_node,
)
from gpuextender.metrics import LedgerMetrics
from gpuextender.scheduling.messages import KINDS
from gpuextender.state import State
from gpukube.server.direct import JSON, DirectRoutes, Handler
from gpukube.server.scrapes import SharedScrape
from gpukube.server.time_slices import TimeSlices, encoded

PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})


def probes_app(health: Readiness, gauges: LedgerMetrics | None = None) -> FastAPI:
    """An application that answers nothing else.

    Args:
        gauges: of the whole cluster; ``None`` in a process that does not follow all pods.
    """
    app = FastAPI(title="gpushare probes", version=VERSION, openapi_url=None)
    add_errors(app)
    add_probes(app, health)
    add_metrics(app, health, gauges)
    return app


def add_probes(app: FastAPI, health: Readiness) -> None:
    """``/healthz`` and ``/readyz``."""
    text: dict[str, Any] = {"tags": ["probes"], "response_class": PlainTextResponse}
    why = {"description": "Why it is not.", "content": {"text/plain": {}}}

    @app.get("/healthz", **text)
    async def healthz() -> Response:
        """Alive: this process answers."""
        return PlainTextResponse("ok")

    @app.get("/readyz", **text, responses={503: why})
    async def readyz() -> Response:
        """Ready: decisions may be taken."""
        why_not = health.unready()
        return PlainTextResponse(why_not or "ok", status_code=503 if why_not else 200)


def add_metrics(app: FastAPI, health: Readiness, gauges: LedgerMetrics | None) -> None:
    """``/metrics``."""

    async def render() -> bytes:
        health.measure()
        ledger = b"" if gauges is None else await gauges.render()
        return generate_latest(metrics.REGISTRY) + ledger

    shared = SharedScrape(render)

    @app.get("/metrics", tags=["probes"], response_class=PlainTextResponse)
    async def scrape() -> Response:
        """Metrics in the Prometheus text format, made at most once a second."""
        text = await shared.text()
        length = {"Content-Length": str(len(text))}
        return StreamingResponse(
            shared.pieces(text), media_type=CONTENT_TYPE_LATEST, headers=length
        )


TRACING: Final = "FASTAPI_OTEL_AUTO_CONFIGURE"
Endpoint = Callable[..., Coroutine[Any, Any, Response]]
Detail = Annotated[bool, Query(description="links, type and configured sets of each node")]
_NO_PROFILES: Final = (
    "This extender is not written in Go and serves no pprof profiles. /metrics has the time of each"
    " endpoint, of garbage collection and of the process.\n"
)


def make_app(
    *,
    state: State,
    health: Readiness,
    gauges: LedgerMetrics,
    scheduler: APIRouter,
    read: ReadApi,
    topology: TopologyInspector,
) -> FastAPI:
    """Put the routes together; ``scheduler`` has those of kube-scheduler."""
    app = FastAPI(
        title="gpushare extender",
        version=VERSION,
        telemetry={"exclude": lambda scope: scope.get("path") in PATHS},
    )
    add_errors(app)
    app.include_router(scheduler)
    app.include_router(read.router())
    add_probes(app, health)
    add_metrics(app, health, gauges)
    _add_version(app)
    _add_inspection(app, state, read.lists)
    _add_topology(app, topology, read.lists)
    _add_profiles(app)
    complete(app, (*readapi.KINDS, *KINDS, Inspection, TopologyInspection), ErrorView)
    return app


def traced() -> bool:
    """Tracing of requests by FastAPI is on; it needs every request to pass through it."""
    return os.environ.get(TRACING, "").lower() == "true"


def direct(handlers: Mapping[str, Handler], app: ASGIApp) -> ASGIApp:
    """The application with some paths answered by their handlers; requests are traced within it."""
    return app if traced() else DirectRoutes(handlers, app)


def _add_version(app: FastAPI) -> None:
    @app.get("/version", tags=["probes"], response_class=PlainTextResponse)
    async def version() -> Response:
        """The version, as text."""
        return PlainTextResponse(VERSION)


def _add_inspection(app: FastAPI, state: State, lists: Turns) -> None:
    async def everything(request: Request) -> Response:
        """All nodes with their GPUs and pods, as the original answered."""
        return await _list(request, lists, lambda slices: inspect_all(state.ledger, slices))

    async def one(node: str) -> Response:
        """One node; an unknown one is named in ``error``."""
        return await _json(inspect_node(state.ledger, node), TimeSlices())

    _add_get(app, SHARE_PREFIX, "inspect", everything, Inspection)
    _add_get(app, SHARE_PREFIX, "inspect/{node}", one, Inspection)


def _add_topology(app: FastAPI, inspector: TopologyInspector, lists: Turns) -> None:
    async def everything(request: Request, *, detail: Detail = False) -> Response:
        """All nodes with exclusive GPUs, as the topology extender answered."""
        return await _list(
            request, lists, lambda slices: inspector.everything(slices, detail=detail)
        )

    async def one(node: str, *, detail: Detail = False) -> Response:
        """One node with exclusive GPUs; an unknown one is named in ``error``."""
        return await _json(inspector.one(node, detail=detail), TimeSlices())

    for prefix in PREFIXES:
        if prefix != SHARE_PREFIX:
            _add_get(app, prefix, "inspect", everything, TopologyInspection)
            _add_get(app, prefix, "inspect/{node}", one, TopologyInspection)


def _add_get(app: FastAPI, prefix: str, path: str, handler: Endpoint, kind: type) -> None:
    one = "{" in path
    responses = answers({200: kind} if one else {200: kind, 503: ErrorView})
    app.add_api_route(f"{prefix}/{path}", handler, tags=["inspect"], responses=responses)


def _add_profiles(app: FastAPI) -> None:
    @app.get(
        "/debug/pprof/{profile:path}",
        include_in_schema=False,  # a sentence for a tool of the originals, and nothing to build on
        response_class=PlainTextResponse,
    )
    async def profiles(profile: str) -> Response:  # noqa: ARG001 - all are answered alike
        """The original served Go profiles; this process replies 404 and names /metrics."""
        return PlainTextResponse(_NO_PROFILES, status_code=404)


async def _list(
    request: Request,
    lists: Turns,
    view: Callable[[TimeSlices], Awaitable[Inspection | TopologyInspection]],
) -> Response:
    """The reply with all nodes, in its turn."""

    async def reply() -> Response:
        async with lists.turn():
            slices = TimeSlices()
            return await _json(await view(slices), slices)

    return await answered(request, reply())


async def _json(inspection: Inspection | TopologyInspection, slices: TimeSlices) -> Response:
    return Response(await encoded(inspection, slices), media_type=JSON)
