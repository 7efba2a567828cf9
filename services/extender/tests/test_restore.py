"""An API server that was restored from a backup: what the extender believes and does then."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from objects import node, placed, pod
from running import Running, until

from gpucore.model import AllocationState
from gpuextender import health
from gpukube.testing.apiserver import FakeApiServer

NODE = "node-0"


async def away(cluster: FakeApiServer, extender: Running) -> None:
    """The API server goes, and the extender has noticed."""
    cluster.refuse = True
    cluster.drop_watches()
    followed = extender.service._informers.vital
    await until("noticed", lambda: not any(one.confirmed for one in followed))


@pytest.mark.slow
@pytest.mark.parametrize("rejecting", [True, False], ids=["504", "silence"])
async def test_ghosts_of_before_a_restore_vanish(
    cluster: FakeApiServer, tmp_path: Path, *, rejecting: bool
) -> None:
    """Pods that the backup does not have release their GPUs, and those that it has hold theirs."""
    cluster.reject_future_watches = rejecting
    await cluster.put("nodes", node(NODE, 80, 80, unit="GiB"))
    for number in range(5):
        await cluster.put("pods", placed(pod(f"old{number}", 2, uid=f"o{number}"), NODE, 1))
    backup = cluster.snapshot()
    for number in range(5):
        await cluster.delete("pods", f"old{number}", "default")
    for number in range(25):
        await cluster.put("pods", placed(pod(f"new{number}", 1, uid=f"n{number}"), NODE, 0))
    async with Running(cluster, tmp_path) as extender:
        await extender.ready()
        ledger = extender.state.ledger
        assert len(ledger.allocations()) == 25
        await away(cluster, extender)
        cluster.restore(backup)
        cluster.refuse = False
        await until(
            "the books of the backup",
            lambda: set(ledger.allocations()) == {"o0", "o1", "o2", "o3", "o4"},
        )
        assert [gpu.used for gpu in ledger.node(NODE).devices.values()] == [0, 10]
        await extender.ready()


@pytest.mark.slow
async def test_nothing_is_decided_between_a_restore_and_the_list(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """The extender is unready as soon as it has noticed, and until it has listed again."""
    await cluster.put("nodes", node(NODE, 80, unit="GiB"))
    backup = cluster.snapshot()
    await cluster.put("pods", placed(pod("ghost", 1), NODE, 0))
    item, release = pod("p", 2), asyncio.Event()
    async with Running(cluster, tmp_path) as extender:
        await extender.ready()
        await away(cluster, extender)
        for _ in range(2):
            cluster.fail_next("list", lambda _: release.wait())
        cluster.restore(backup)
        cluster.refuse = False
        await until("noticed", extender.service.health.obstacle)
        assert (await extender.get("/readyz"))[0] == 503
        assert (await extender.filter(item, NODE))["Error"]
        assert (await extender.bind(item, NODE))[0] == 500
        release.set()
        await extender.ready()
        assert cluster.bindings == []


@pytest.mark.slow
async def test_a_gpu_that_a_restored_pod_holds_is_not_given_away(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """A bind that comes before the informers have returned waits for them."""
    await cluster.put("nodes", node(NODE, 4, unit="GiB"))
    await cluster.put("pods", placed(pod("old", 4), NODE, 0))
    await cluster.put("pods", new := pod("new", 4))
    backup = cluster.snapshot()
    await cluster.delete("pods", "old", "default")
    async with Running(cluster, tmp_path) as extender:
        await extender.ready()
        await extender.filter(new, NODE)
        await away(cluster, extender)
        cluster.restore(backup)
        cluster.refuse = False
        code, error = await extender.bind(new, NODE)
        assert (code, cluster.bindings) == (500, [])
        assert error
        await extender.ready()
        code, error = await extender.bind(new, NODE)
        assert (code, cluster.bindings) == (500, [])
        assert "4" in error


@pytest.mark.slow
async def test_a_bind_is_refused_while_the_api_server_has_not_confirmed_what_is_known(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again by the scheduler; a filter, which gives nothing away, is answered."""
    monkeypatch.setattr(health, "CONFIRM_SECONDS", 0.05)
    await cluster.put("nodes", node(NODE, 4, unit="GiB"))
    await cluster.put("pods", item := pod("p", 4))
    async with Running(cluster, tmp_path) as extender:
        await extender.ready()
        await away(cluster, extender)
        assert (await extender.filter(item, NODE))["NodeNames"] == [NODE]
        code, error = await extender.bind(item, NODE)
        assert code == 500
        assert "has not confirmed" in error
        cluster.refuse = False
        vital = extender.service._informers.vital
        await until("confirmed", lambda: all(one.confirmed for one in vital))
        assert await extender.bind(item, NODE) == (200, "")


@pytest.mark.slow
async def test_a_reservation_whose_binding_the_restore_lost_ends(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """The API server took the Binding, and then went back to before it: nothing confirms it."""
    await cluster.put("nodes", node(NODE, 4, unit="GiB"))
    await cluster.put("pods", item := pod("p", 4, uid="u"))
    backup = cluster.snapshot()
    cluster.fail_next("bind", lambda _: web.json_response({"status": "Success"}, status=201))
    async with Running(cluster, tmp_path, bind_deadline=0.5) as extender:
        await extender.ready()
        await until("known", lambda: extender.state.find("default", "p"))
        assert await extender.bind(item, NODE) == (200, "")
        assert extender.state.ledger.allocation("u").state is AllocationState.ASSUMED
        await cluster.put("nodes", node("node-1"))
        await extender.knows_node("node-1")
        await away(cluster, extender)
        cluster.restore(backup)
        cluster.refuse = False
        await until("released", lambda: extender.state.ledger.allocation("u") is None)
        await extender.ready()
        assert await extender.bind(item, NODE) == (200, "")


@pytest.mark.slow
async def test_an_extender_that_stood_still_lists_again_and_is_ready_then(
    cluster: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bind before that is refused, and tried again by its scheduler."""
    await cluster.put("nodes", node(NODE, 4, unit="GiB"))
    await cluster.put("pods", item := pod("p", 4))
    async with Running(cluster, tmp_path) as extender:
        await extender.ready()
        lists = cluster.lists("pods")
        monkeypatch.setattr(health, "STILL_SECONDS", -2.0)
        code, error = await extender.bind(item, NODE)
        assert (code, cluster.bindings) == (500, [])
        assert "stood still" in error
        await until("listed again", lambda: cluster.lists("pods") > lists)
        monkeypatch.setattr(health, "STILL_SECONDS", 3600.0)
        assert await extender.bind(item, NODE) == (200, "")
