"""The HTTP application: every route, and nothing that decides."""

import os
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final

from fastapi import FastAPI, Query, Response
from fastapi.responses import PlainTextResponse
from starlette.types import ASGIApp

from gpuextender import VERSION, api, probes, schemas
from gpuextender.api import ReadApi
from gpuextender.front import JSON, Front
from gpuextender.gauges import LedgerGauges
from gpuextender.health import Health
from gpuextender.inspection import Inspection, inspect_all, inspect_node
from gpuextender.slices import Slices, encoded
from gpuextender.state import State
from gpuextender.topologyinspection import TopologyInspection, TopologyInspector
from gpuextender.verbs import KINDS, PREFIXES, SHARE_PREFIX, Verbs

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
    health: Health,
    gauges: LedgerGauges,
    verbs: Verbs,
    read: ReadApi,
    topology: TopologyInspector,
) -> ASGIApp:
    """Put the routes together; the verbs in front, unless requests are to be traced."""
    app = _framework(health, gauges, verbs, read)
    _add_inspection(app, state)
    _add_topology(app, topology)
    _add_profiles(app)
    schemas.complete(app, (*api.KINDS, *KINDS, Inspection, TopologyInspection))
    return app if traced() else Front(verbs.handlers(), app)


def traced() -> bool:
    """FastAPI was asked to trace requests, which it can only where it sees them."""
    return os.environ.get(TRACING, "").lower() == "true"


def _framework(health: Health, gauges: LedgerGauges, verbs: Verbs, read: ReadApi) -> FastAPI:
    app = FastAPI(
        title="gpushare extender",
        version=VERSION,
        telemetry={"exclude": lambda scope: scope.get("path") in probes.PATHS},
    )
    app.include_router(verbs.router())
    app.include_router(read.router())
    probes.add_probes(app, health)
    probes.add_metrics(app, health, gauges)
    _add_version(app)
    return app


def _add_version(app: FastAPI) -> None:
    @app.get("/version", tags=["probes"], response_class=PlainTextResponse)
    async def version() -> Response:
        """The version, as text."""
        return PlainTextResponse(VERSION)


def _add_inspection(app: FastAPI, state: State) -> None:
    async def everything() -> Response:
        """All nodes with their cards and pods, as the original answered."""
        slices = Slices()
        return await _json(await inspect_all(state.ledger, slices), slices)

    async def one(node: str) -> Response:
        """One node; an unknown one is named in ``error``."""
        return await _json(inspect_node(state.ledger, node), Slices())

    _add_get(app, SHARE_PREFIX, "inspect", everything, Inspection)
    _add_get(app, SHARE_PREFIX, "inspect/{node}", one, Inspection)


def _add_topology(app: FastAPI, inspector: TopologyInspector) -> None:
    async def everything(*, detail: Detail = False) -> Response:
        """All nodes with whole GPUs, as the topology extender answered."""
        slices = Slices()
        return await _json(await inspector.everything(slices, detail=detail), slices)

    async def one(node: str, *, detail: Detail = False) -> Response:
        """One node with whole GPUs; an unknown one is named in ``error``."""
        return await _json(inspector.one(node, detail=detail), Slices())

    for prefix in PREFIXES:
        if prefix != SHARE_PREFIX:
            _add_get(app, prefix, "inspect", everything, TopologyInspection)
            _add_get(app, prefix, "inspect/{node}", one, TopologyInspection)


def _add_get(app: FastAPI, prefix: str, path: str, handler: Endpoint, kind: type) -> None:
    responses = schemas.answers({200: kind})
    app.add_api_route(f"{prefix}/{path}", handler, tags=["inspect"], responses=responses)


def _add_profiles(app: FastAPI) -> None:
    @app.get(
        "/debug/pprof/{profile:path}",
        include_in_schema=False,  # a sentence for a tool of the originals, and nothing to build on
        response_class=PlainTextResponse,
    )
    async def profiles(profile: str) -> Response:  # noqa: ARG001 - all are answered alike
        """The original served profiles of Go; this process has none, and says what it has."""
        return PlainTextResponse(_NO_PROFILES, status_code=404)


async def _json(inspection: Inspection | TopologyInspection, slices: Slices) -> Response:
    return Response(await encoded(inspection, slices), media_type=JSON)
