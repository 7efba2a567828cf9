"""The webhook as a process of its own: what it serves, and which pods it follows."""

from pathlib import Path

import pytest
from admissioncalls import review
from certificates import make_certificate
from objects import node, placed, pod
from pydantic import ValidationError
from running import Running, until

from gpuextender.settings import ExtenderSettings
from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow


def webhook(cluster: FakeApiServer, folder: Path, **settings: object) -> Running:
    """The process as the chart starts it, but for its ports."""
    certificates = folder / "certificates"
    make_certificate(certificates, "webhook")
    ports = {"webhook_port": 0, "metrics_port": 0, "metrics_host": "127.0.0.1"}
    return Running(
        cluster, folder, webhook_only=True, webhook_certificates=certificates, **ports, **settings
    )


async def test_it_follows_pods_without_a_node_alone(cluster: FakeApiServer, tmp_path: Path) -> None:
    """A pod that is bound leaves its memory; one that runs already never enters it."""
    await cluster.put("nodes", node("n", 15, unit="GiB"))
    await cluster.put("pods", placed(pod("runs", 2), "n", 0))
    waits = await cluster.put("pods", pod("waits", 2))
    async with webhook(cluster, tmp_path) as running:
        await running.ready()
        assert running.state.pending() == 1
        assert not running.state.ledger.allocations()
        await cluster.put("pods", placed(waits, "n", 0))
        await until("no pod waits", lambda: running.state.pending() == 0)
        assert not running.state.ledger.allocations()


@pytest.mark.parametrize("setting", ["claims_convert", "sizing"])
async def test_it_follows_all_pods_where_running_ones_matter(
    cluster: FakeApiServer, tmp_path: Path, setting: str
) -> None:
    """Templates of claims last as long as their pods; sizes are recommended to running pods."""
    await cluster.put("nodes", node("n", 15, unit="GiB"))
    await cluster.put("pods", placed(pod("runs", 2), "n", 0))
    more = {setting: True, "sizing_namespace": "gpushare"}
    async with webhook(cluster, tmp_path, **more) as running:
        await running.ready()
        assert len(running.state.ledger.allocations()) == 1


async def test_no_port_of_it_serves_a_scheduler(cluster: FakeApiServer, tmp_path: Path) -> None:
    """Any pod may reach it: it neither plans nor binds, and shows no pods of others."""
    async with webhook(cluster, tmp_path) as running:
        await running.ready()
        assert running.service.listeners.verbs is None
        for path in ("/api/v1/nodes", "/gpushare-scheduler/inspect", "/docs", "/openapi.json"):
            assert (await running.get(path))[0] == 404
        for verb in ("filter", "prioritize", "preempt", "bind"):
            async with running.http.post(f"/gpushare-scheduler/{verb}", data=b"{}") as reply:
                assert reply.status == 404


async def test_its_metrics_have_no_gauges_of_gpus(cluster: FakeApiServer, tmp_path: Path) -> None:
    """It does not follow the pods that have them, so that each GPU would seem to be free."""
    await cluster.put("nodes", node("n", 15, unit="GiB"))
    async with webhook(cluster, tmp_path) as running:
        await running.ready()
        _, text = await running.get("/metrics")
        assert "gpushare_extender_ready 1.0" in text
        assert "gpushare_extender_admissions_total" in text
        assert 'node="n"' not in text
        assert "gpushare_extender_pending_units" not in text


async def test_its_reviews_are_those_of_the_extender(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """A pod gets the scheduler's name, and a warning where it means another unit."""
    await cluster.put("nodes", node("n", 15, unit="GiB"))
    async with webhook(cluster, tmp_path) as running:
        await running.ready()
        await until("the webhook listens", lambda: running.service.listeners.admission.started)
        found = await review(running, pod("p", 4096))
        assert found["patchType"] == "JSONPatch"
        assert "if you meant MiB" in found["warnings"][0]


def test_without_a_port_of_the_webhook_the_settings_make_no_sense() -> None:
    """The process would serve nothing."""
    with pytest.raises(ValidationError, match="webhook-only needs webhook-port"):
        ExtenderSettings(webhook_only=True)
