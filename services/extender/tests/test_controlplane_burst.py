"""The chart's two profiles in one real kube-scheduler: exact while few pods come, quick in a burst.

The webhook of the chart chooses the profile of pods that name none.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from planes import scheduling
from running import Running, until
from webhookplane import PODS, SPACE, chart_plane, get, webhook_stack

from environments import fakenodes
from environments.apicall import ApiCalls
from environments.binding import BoundCounter
from environments.controlplane import BURST_SUFFIX, SCHEDULER_NAME, ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.since("1.26")]

Object = dict[str, Any]
CONFIG = f"/api/v1/namespaces/{SPACE}/configmaps/gpushare-scheduler"
BURST = SCHEDULER_NAME + BURST_SUFFIX
NODES, BACKLOG, SECONDS = 120, 60, 240


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """With the chart; its nodes and pods are those of this file."""
    with chart_plane() as one:
        yield one


@pytest.fixture
async def calls(plane: ControlPlane) -> AsyncIterator[ApiCalls]:
    """More nodes than the burst profile compares; only the last has pods."""
    async with ApiCalls.to(plane) as session:
        await session.create("/api/v1/nodes", fakenodes.nodes(NODES))
        held = fakenodes.pod("held", 1, scheduler="none")
        held["spec"]["nodeName"] = f"node-{NODES - 1:05}"
        await session.create(PODS, [held])
        yield session


@pytest.fixture
async def extender(plane: ControlPlane, calls: ApiCalls, tmp_path: Path) -> AsyncIterator[Running]:
    """The extender with its webhook, as the chart configures them."""
    settings = {"burst_scheduler": BURST, "percentage_of_nodes": 100}
    async with webhook_stack(plane, calls, tmp_path, **settings) as running:
        yield running


async def create(calls: ApiCalls, name: str) -> str:
    """Create a pod that names no scheduler; the one that it was given."""
    pod = fakenodes.pod(name, 4, scheduler="default-scheduler")
    made = msgspec.json.decode(await calls.call("POST", PODS, pod))
    return str(made["spec"]["schedulerName"])


async def steered(calls: ApiCalls) -> None:
    """Until the API server calls the webhook."""
    probe = fakenodes.pod("probe", 1, scheduler="default-scheduler")
    async with asyncio.timeout(SECONDS):
        while True:
            made = msgspec.json.decode(await calls.call("POST", f"{PODS}?dryRun=All", probe))
            if made["spec"]["schedulerName"] == SCHEDULER_NAME:
                return
            await asyncio.sleep(0.05)


async def queue_of(extender: Running, count: int) -> None:
    """Wait until the watch brought what happened to the pods."""
    names = (SCHEDULER_NAME, BURST)
    await until(f"{count} pods wait", lambda: extender.state.queued(names) == count)


async def whatif(extender: Running) -> Object:
    """The answer about one new pod that names no scheduler."""
    code, found = await extender.post("/api/v1/whatif", {"pods": [{"name": "new", "mem": 4}]})
    assert code == 200, found
    (item,) = found["items"]
    return dict(item)


async def test_a_backlog_is_placed_by_the_burst_profile_and_a_single_pod_by_the_exact_one(
    plane: ControlPlane, calls: ApiCalls, extender: Running
) -> None:
    """What-if names the profile, and for the exact one the node that the pod then gets."""
    await steered(calls)
    async with BoundCounter(calls, prefix="p") as counter:
        names = [await create(calls, f"p{number:02}") for number in range(BACKLOG)]
        assert names[:32] == [SCHEDULER_NAME] * 32
        await queue_of(extender, BACKLOG)
        assert await create(calls, "px") == BURST
        during = await whatif(extender)
        assert (during["scheduler"], during["likely"]) == (BURST, True)
        text = (await get(calls, CONFIG))["data"]["config.yaml"]
        config = yaml.safe_load(text)
        async with scheduling(plane, extender, SCHEDULER_NAME, config):
            await counter.wait(BACKLOG + 1, seconds=SECONDS)
            await queue_of(extender, 0)
            after = await whatif(extender)
            assert (after["scheduler"], after["likely"]) == (SCHEDULER_NAME, False)
            assert await create(calls, "pz") == SCHEDULER_NAME
            await counter.wait(BACKLOG + 2, seconds=SECONDS)
    assert (await get(calls, f"{PODS}/pz"))["spec"]["nodeName"] == after["node"]
