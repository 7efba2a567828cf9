"""The pages of the plugin's endpoint, request by request."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from gpudeviceplugin import telemetry
from gpudeviceplugin.web import Web

pytestmark = pytest.mark.slow


class World:
    """An endpoint, and what is missing for readiness."""

    def __init__(self) -> None:
        self.missing = ""
        self.web = Web(lambda: self.missing)
        self.place = ""

    async def get(self, path: str) -> httpx2.Response:
        """One request on a connection of its own."""
        async with httpx2.AsyncClient(trust_env=False) as client:
            return await client.get(f"{self.place}{path}")


@asynccontextmanager
async def serving() -> AsyncIterator[World]:
    """The endpoint on a free port."""
    world = World()
    world.place = f"http://127.0.0.1:{await world.web.start('127.0.0.1', 0)}"
    try:
        yield world
    finally:
        await world.web.stop()


async def test_readiness_is_the_status_and_its_reason_the_text() -> None:
    """A probe reads the status alone; the process works all the while."""
    async with serving() as world:
        assert [(r.status_code, r.text) for r in [await world.get("/readyz")]] == [(200, "ok\n")]
        world.missing = "no driver"
        refused = await world.get("/readyz")
        assert (refused.status_code, refused.text) == (503, "no driver\n")
        alive = await world.get("/healthz")
        assert (alive.status_code, alive.text) == (200, "ok\n")


async def test_metrics_have_prometheus_content_type() -> None:
    """Prometheus 3 refuses a text of another type."""
    telemetry.DISAGREEMENTS.set(3)
    async with serving() as world:
        metrics = await world.get("/metrics")
        assert metrics.headers["content-type"].startswith("text/plain; version=")
        assert "gpushare_plugin_disagreements 3.0" in metrics.text


async def test_other_pages_are_not_found() -> None:
    """Nothing else is served."""
    async with serving() as world:
        assert [(await world.get(path)).status_code for path in ("/", "/debug")] == [404, 404]


async def test_the_gate_is_notified_of_every_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a refusal as well; a request that is never counted down would use up the limit."""
    answered: list[Any] = []
    async with serving() as world:
        tell = world.web.gate.answered
        monkeypatch.setattr(
            world.web.gate, "answered", lambda peer: (answered.append(peer), tell(peer))
        )
        await world.get("/healthz")
        await world.get("/none")
    assert [peer[0] for peer in answered] == ["127.0.0.1"] * 2


async def test_an_endpoint_that_was_stopped_takes_no_connection() -> None:
    """The port is free for the next process; a stop before the start is none."""
    async with serving() as world:
        await world.web.stop()
        with pytest.raises(httpx2.ConnectError):
            await world.get("/healthz")
    await Web(lambda: "").stop()


async def test_an_endpoint_without_certificates_follows_none() -> None:
    """The part of the plugin that follows them ends at once, and ends nothing else."""
    async with serving() as world:
        await world.web.follow()
        assert (await world.get("/healthz")).status_code == 200
