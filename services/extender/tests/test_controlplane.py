"""Against a real API server and real schedulers: what a fake might have got wrong.

Part of ``make e2e``: the programs come from the same cache as the kind cluster's.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from planes import Source, plane
from running import Running, until

from environments import fakenodes
from environments.apicall import MERGE_PATCH, ApiCalls
from environments.controlplane import ControlPlane
from environments.fakenodeagent import FakeNodeAgent
from gpucore.wire.names import INVENTORY, INVENTORY_HASH
from gpucore.wire.node.inventories import inventory_hash

PODS = "/api/v1/namespaces/default/pods"
NODES, GPUS, UNITS = 3, 2, 15
FLUSH_SECONDS = 60
"""When kube-scheduler of that age tries a pod again of which it heard nothing new."""
Object = dict[str, Any]

__all__ = ["plane"]  # a fixture

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]  # a start of the plane is in it


@pytest.fixture
async def calls(plane: ControlPlane) -> AsyncIterator[ApiCalls]:
    """An API server with three nodes of 2 x 15 and no pods."""
    async with ApiCalls.to(plane) as session:
        await session.create("/api/v1/nodes", fakenodes.nodes(NODES, gpus=GPUS, units=UNITS))
        await session.call("DELETE", f"{PODS}?gracePeriodSeconds=0")
        yield session


@pytest.fixture
async def extender(plane: ControlPlane, calls: ApiCalls, tmp_path: Path) -> AsyncIterator[Running]:
    """A ready extender of that API server."""
    async with Running(Source(plane), tmp_path, bind_deadline=30) as running:
        await running.ready()
        yield running


async def create(calls: ApiCalls, name: str, units: int, *, scheduler: str = "none") -> Object:
    """A pod as the API server made it."""
    item = fakenodes.pod(name, units, scheduler=scheduler)
    made: Object = msgspec.json.decode(await calls.call("POST", PODS, item))
    return made


async def read(calls: ApiCalls, name: str) -> Object:
    """A pod as it is."""
    found: Object = msgspec.json.decode(await calls.call("GET", f"{PODS}/{name}"))
    return found


async def test_one_binding_carries_node_and_gpus(calls: ApiCalls, extender: Running) -> None:
    """The real API server merges the annotations in the write that sets the node."""
    item = await create(calls, "one", 4)
    assert await extender.bind(item, "node-00000") == (200, "")
    found = await read(calls, "one")
    assert found["spec"]["nodeName"] == "node-00000"
    assert found["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_IDX"] == "0"
    assert found["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_POD"] == "4"
    await extender.knows_pod(item["metadata"]["uid"])
    await until("the watch confirms", lambda: not extender.state.find("default", "one"))


async def test_a_pod_created_again_is_not_bound_by_an_old_decision(
    calls: ApiCalls, extender: Running
) -> None:
    """The UID precondition holds at the API server itself, and nothing stays reserved."""
    old = await create(calls, "again", 4)
    await extender.filter(old, "node-00000")
    await calls.call("DELETE", f"{PODS}/again?gracePeriodSeconds=0")
    new = await create(calls, "again", 4)
    code, error = await extender.bind(old, "node-00000")
    assert code == 500
    assert new["metadata"]["uid"] in error or "UID" in error
    assert "nodeName" not in (await read(calls, "again"))["spec"]
    assert extender.state.ledger.allocation(old["metadata"]["uid"]) is None


async def test_a_pod_that_another_scheduler_bound_is_a_conflict(
    calls: ApiCalls, extender: Running
) -> None:
    """409 of the real API server: theirs counts, ours is forgotten."""
    item = await create(calls, "taken", 4)
    await extender.filter(item, "node-00000")
    target = {"apiVersion": "v1", "kind": "Node", "name": "node-00001"}
    body = {"kind": "Binding", "metadata": {"name": "taken"}, "target": target}
    await calls.call("POST", f"{PODS}/taken/binding", body)
    code, error = await extender.bind(item, "node-00000")
    assert code == 500
    assert "node-00001" in error
    allocation = extender.state.ledger.allocation(item["metadata"]["uid"])
    assert allocation.placement.node == "node-00001"
    assert extender.state.ledger.node("node-00000").used_units == 0


async def test_a_pod_that_is_gone_is_reported(calls: ApiCalls, extender: Running) -> None:
    """404 of the real API server."""
    item = await create(calls, "gone", 4)
    await extender.filter(item, "node-00000")
    await calls.call("DELETE", f"{PODS}/gone?gracePeriodSeconds=0")
    code, error = await extender.bind(item, "node-00000")
    assert code == 500
    assert "not found" in error
    assert extender.state.ledger.node("node-00000").used_units == 0


async def test_a_gpu_that_recovers_is_given_to_a_pod_that_waits(
    plane: ControlPlane, calls: ApiCalls, extender: Running
) -> None:
    """Its kubelet may never have reported; a scheduler that heard nothing would wait a minute."""
    await _publish(calls, healthy=False)
    url = f"{extender.url}/gpushare-scheduler"
    process = await asyncio.to_thread(plane.scheduler, url, name="patient")
    try:
        item = await create(calls, "waits", 4, scheduler="patient")
        await _until_reported(calls, "waits", "unhealthy")
        await _publish(calls, healthy=True)
        async with asyncio.timeout(FLUSH_SECONDS / 2):
            await extender.knows_pod(item["metadata"]["uid"])
    finally:
        await asyncio.to_thread(process.stop)


async def _publish(calls: ApiCalls, *, healthy: bool) -> None:
    """What the plugin of every node writes, in one patch."""
    for number in range(NODES):
        name = f"node-{number:05}"
        text = fakenodes.inventory(name, GPUS, UNITS, healthy=healthy)
        metadata = {
            "annotations": {INVENTORY: text},
            "labels": {INVENTORY_HASH: inventory_hash(text)},
        }
        path = f"/api/v1/nodes/{name}"
        await calls.call("PATCH", path, {"metadata": metadata}, kind=MERGE_PATCH)


async def _until_reported(calls: ApiCalls, name: str, word: str) -> None:
    """Until the scheduler reports that a pod waits, with this word."""
    async with asyncio.timeout(FLUSH_SECONDS):
        while True:
            status = (await read(calls, name))["status"]
            if word in str(status.get("conditions")):
                return
            await asyncio.sleep(0.05)


async def test_two_schedulers_with_an_extender_each_never_overfill_a_gpu(
    plane: ControlPlane, calls: ApiCalls, tmp_path: Path
) -> None:
    """Replicas race for every GPU; the node refuses the loser, who is created and placed again."""
    wanted = 16  # three fit a GPU, so eighteen would fit in all
    async with AsyncExitStack() as stack:
        racers = []
        for name in ("racer-a", "racer-b"):
            (tmp_path / name).mkdir()
            racer = Running(Source(plane), tmp_path / name, bind_deadline=30)
            racers.append(await stack.enter_async_context(racer))
            await racer.ready()
            url = f"{racer.url}/gpushare-scheduler"
            process = await asyncio.to_thread(plane.scheduler, url, name=name)
            stack.callback(process.stop)
        kubelet = await stack.enter_async_context(FakeNodeAgent(calls, UNITS))
        for number in range(wanted):
            await create(calls, f"pod-{number}", 4, scheduler=f"racer-{'ab'[number % 2]}")
        await asyncio.wait_for(_replace_losers(calls, kubelet, wanted), 120)
        assert max(kubelet.used.values()) <= UNITS
        assert sum(kubelet.used.values()) == wanted * 4
        for racer in racers:
            node_infos = racer.state.ledger.nodes().values()
            await until(
                "both ledgers agree with the nodes",
                lambda node_infos=node_infos: (
                    sum(one.used_units for one in node_infos) == wanted * 4
                ),
            )
            assert not any(node_info.overfull for node_info in node_infos)


async def _replace_losers(calls: ApiCalls, kubelet: FakeNodeAgent, wanted: int) -> None:
    """What a controller does: a pod that its node refused is created anew."""
    replaced: set[str] = set()
    while len(kubelet.admitted) < wanted:
        for name in kubelet.refused - replaced:
            scheduler = (await read(calls, name))["spec"]["schedulerName"]
            await calls.call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
            await create(calls, f"{name}-again", 4, scheduler=scheduler)
            replaced.add(name)
        await asyncio.sleep(0.05)
