"""Probes and metrics: on the port of the verbs, and on one of their own where that is wanted.

Beside a scheduler the verbs listen on localhost, where no Prometheus and no kubelet of another
network reaches them; what is served here may be seen by everybody, for nothing can be done with it.
"""

from typing import Any, Final

from fastapi import FastAPI, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from gpuextender import VERSION, metrics
from gpuextender.gauges import LedgerGauges
from gpuextender.health import Health
from gpukube.scrapes import SharedScrape, pieces

PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})


def probes_app(health: Health, gauges: LedgerGauges) -> FastAPI:
    """An application that answers nothing else."""
    app = FastAPI(title="gpushare probes", version=VERSION, openapi_url=None)
    add_probes(app, health)
    add_metrics(app, health, gauges)
    return app


def add_probes(app: FastAPI, health: Health) -> None:
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


def add_metrics(app: FastAPI, health: Health, gauges: LedgerGauges) -> None:
    """``/metrics``."""

    async def render() -> bytes:
        health.measure()
        ledger = await gauges.render()
        return generate_latest(metrics.REGISTRY) + ledger.encode()

    shared = SharedScrape(render)

    @app.get("/metrics", tags=["probes"], response_class=PlainTextResponse)
    async def scrape() -> Response:
        """Metrics in the Prometheus text format, made at most once a second."""
        text = await shared.text()
        length = {"Content-Length": str(len(text))}
        return StreamingResponse(pieces(text), media_type=CONTENT_TYPE_LATEST, headers=length)
