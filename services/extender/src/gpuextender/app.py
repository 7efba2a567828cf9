"""The HTTP application: every route, and nothing that decides."""

from typing import Any, Final

from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from gpuextender import VERSION, api, messages, metrics, schemas
from gpuextender.api import ReadApi
from gpuextender.gauges import LedgerGauges
from gpuextender.health import Health
from gpuextender.inspection import Inspection, inspect_all, inspect_node
from gpuextender.state import State
from gpuextender.verbs import JSON, KINDS, PREFIXES, Verbs

PROBES: Final = frozenset({"/healthz", "/readyz", "/metrics"})


def make_app(
    *, state: State, health: Health, gauges: LedgerGauges, verbs: Verbs, read: ReadApi
) -> FastAPI:
    """Put the routes together; the verbs come first, for they are the ones that must be quick."""
    app = FastAPI(
        title="gpushare extender",
        version=VERSION,
        telemetry={"exclude": lambda scope: scope.get("path") in PROBES},
    )
    app.include_router(verbs.router())
    app.include_router(read.router())
    _add_probes(app, health)
    _add_metrics(app, health, gauges)
    _add_inspection(app, state)
    schemas.complete(app, (*api.KINDS, *KINDS, Inspection))
    return app


def _add_probes(app: FastAPI, health: Health) -> None:
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

    @app.get("/version", **text)
    async def version() -> Response:
        """The version, as text."""
        return PlainTextResponse(VERSION)


def _add_metrics(app: FastAPI, health: Health, gauges: LedgerGauges) -> None:
    @app.get("/metrics", tags=["probes"], response_class=PlainTextResponse)
    async def scrape() -> Response:
        """Metrics in the Prometheus text format."""
        health.measure()
        ledger = await gauges.render()
        text = generate_latest(metrics.REGISTRY) + ledger.encode()
        return Response(text, media_type=CONTENT_TYPE_LATEST)


def _add_inspection(app: FastAPI, state: State) -> None:
    async def everything() -> Response:
        """All nodes with their cards and pods, as the original answered."""
        return _json(inspect_all(state.ledger))

    async def one(node: str) -> Response:
        """One node; an unknown one is named in ``error``."""
        return _json(inspect_node(state.ledger, node))

    for prefix in PREFIXES:
        for path, handler in (("inspect", everything), ("inspect/{node}", one)):
            app.add_api_route(
                f"{prefix}/{path}",
                handler,
                tags=["inspect"],
                responses=schemas.answers({200: Inspection}),
            )


def _json(inspection: Inspection) -> Response:
    return Response(messages.encode(inspection), media_type=JSON)
