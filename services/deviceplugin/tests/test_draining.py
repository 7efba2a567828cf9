"""A plugin that is replaced fails no pod, and publishes when it is away."""

import asyncio
from pathlib import Path

import pytest
from fakecluster.objects import planned
from stage import Stage

from gpudeviceplugin.kubelet import draining

pytestmark = pytest.mark.slow

POLL = 0.005
LAG = 0.05
"""Seconds by which the scheduler's view of the node and its bind are late, together."""
PODS = 60


async def schedule(stage: Stage, *, burst: asyncio.Event) -> None:
    """Bind pods one after the other, as a scheduler that honours the inventory does."""
    number = 0
    while number < PODS:
        serving = stage.inventory().get("serving", True)
        await asyncio.sleep(LAG if number % 5 == 0 else POLL)
        if serving:
            stage.create(f"p{number}", {"gpu-mem": 1}, annotations=planned(number % 2, 1, dev=40))
            number += 1
        if number == PODS // 3:
            burst.set()


async def test_a_planned_restart_fails_no_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods come all the while; those of the time between wait, and all of them run in the end.

    The default of ``drain_seconds`` applies: loaded cores can stop all of the stage for 0.2 s.
    """
    monkeypatch.setattr(draining, "WAITING_SECONDS", 60.0)  # loaded cores serve 20 pods late
    async with Stage(tmp_path, memory_unit="256MiB") as stage:
        await stage.offered(126)
        await stage.eventually(lambda: stage.inventory().get("serving"))
        burst = asyncio.Event()
        scheduling = asyncio.create_task(schedule(stage, burst=burst))
        await burst.wait()
        await stage.stop_plugin(planned=True)
        assert stage.inventory()["serving"] is False
        await stage.offered(0)
        await stage.start_plugin()
        await scheduling
        await stage.kubelet.wait_for(
            lambda: (
                all(stage.kubelet.admitted(f"p{n}") for n in range(PODS)) or stage.kubelet.rejected
            )
        )
        assert stage.kubelet.rejected == {}


async def test_an_inventory_is_published_once_kubelet_takes_devices(tmp_path: Path) -> None:
    """Before the first registration there is nothing to place pods by."""
    stage = Stage(tmp_path)
    stage.kubelet_starts_late = True
    async with stage:
        assert stage.plugin is not None
        state = stage.plugin.state
        await stage.eventually(lambda: state.inventory.gpus and state.pods_changed.count)
        assert stage.inventory() == {"gpus": []}
        await stage.kubelet.start()
        await stage.eventually(lambda: stage.inventory().get("serving"))


async def test_a_registration_that_kubelet_refuses_holds_the_node_out(tmp_path: Path) -> None:
    """The node is offered again as soon as kubelet takes the plugin."""
    async with Stage(tmp_path) as stage:
        await stage.eventually(lambda: stage.inventory().get("serving"))
        stage.kubelet.refusing = True
        assert stage.plugin is not None
        stage.plugin.reread()
        await stage.eventually(lambda: stage.inventory()["serving"] is False)
        assert "kubelet" in stage.plugin.missing()
        stage.kubelet.refusing = False
        await stage.eventually(lambda: stage.inventory()["serving"] is True)
        assert stage.plugin.missing() == ""


async def test_a_stop_while_the_api_server_is_away_is_not_held_up(tmp_path: Path) -> None:
    """Schedulers cannot be notified; the plugin still ends."""
    async with Stage(tmp_path, drain_seconds=0.0) as stage:
        await stage.eventually(lambda: stage.inventory().get("serving"))
        stage.cluster.fail["PATCH", "/nodes/n1"] = 503
        async with asyncio.timeout(60):
            await stage.stop_plugin(planned=True)
        stage.cluster.fail.clear()
