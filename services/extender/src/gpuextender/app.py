"""The HTTP application: every route, and nothing that decides."""

import os
from typing import Final

from fastapi import FastAPI, Response
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
from gpuextender.verbs import KINDS, PREFIXES, Verbs

TRACING: Final = "FASTAPI_OTEL_AUTO_CONFIGURE"


def make_app(
    *, state: State, health: Health, gauges: LedgerGauges, verbs: Verbs, read: ReadApi
) -> ASGIApp:
    """Put the routes together; the verbs in front, unless requests are to be traced."""
    app = _framework(state, health, gauges, verbs, read)
    return app if traced() else Front(verbs.handlers(), app)


def traced() -> bool:
    """FastAPI was asked to trace requests, which it can only where it sees them."""
    return os.environ.get(TRACING, "").lower() == "true"


def _framework(
    state: State, health: Health, gauges: LedgerGauges, verbs: Verbs, read: ReadApi
) -> FastAPI:
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
    _add_inspection(app, state)
    schemas.complete(app, (*api.KINDS, *KINDS, Inspection))
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

    for prefix in PREFIXES:
        for path, handler in (("inspect", everything), ("inspect/{node}", one)):
            app.add_api_route(
                f"{prefix}/{path}",
                handler,
                tags=["inspect"],
                responses=schemas.answers({200: Inspection}),
            )


async def _json(inspection: Inspection, slices: Slices) -> Response:
    return Response(await encoded(inspection, slices), media_type=JSON)
