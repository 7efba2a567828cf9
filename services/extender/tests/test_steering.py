"""The chart as it is installed by default, at a real API server: manifests of 2019 are steered.

There are no controllers and kubelets, so the pods that controllers would make are created here. The
cluster's own scheduler runs too, without an extender: what the webhook misses, it takes.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from running import Running
from webhookplane import (
    HOOK,
    PODS,
    SECRET,
    chart_plane,
    get,
    install,
    issue,
    lead_to,
    webhook_stack,
)

from environments import fakenodes, originals
from environments.apicall import ApiCalls
from environments.controlplane import SCHEDULER_NAME, ControlPlane
from environments.fakenodeagent import FakeNodeAgent
from gpucore.wire.names import POLICY

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]  # a start of the plane is in it

Object = dict[str, Any]
UNITS = 15
SECONDS = 180


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """With the chart; its nodes and pods are those of this file."""
    with chart_plane() as one:
        yield one


@pytest.fixture
async def calls(plane: ControlPlane) -> AsyncIterator[ApiCalls]:
    """An API server with a node of two GPUs of 15, and no pods."""
    async with ApiCalls.to(plane) as session:
        await session.create("/api/v1/nodes", fakenodes.nodes(1, gpus=2, units=UNITS))
        await session.call("DELETE", f"{PODS}?gracePeriodSeconds=0")
        yield session


@pytest.fixture
async def stack(plane: ControlPlane, calls: ApiCalls, tmp_path: Path) -> AsyncIterator[Running]:
    """Extender and webhook with the chart's certificate, our scheduler, and the cluster's own."""
    async with webhook_stack(plane, calls, tmp_path) as running, AsyncExitStack() as ends:
        url = f"{running.url}/gpushare-scheduler"
        for name, extender_url in ((SCHEDULER_NAME, url), ("default-scheduler", None)):
            process = await asyncio.to_thread(plane.scheduler, extender_url, name=name)
            ends.push_async_callback(asyncio.to_thread, process.stop)
        yield running


async def create(calls: ApiCalls, pod: Object) -> str:
    """Create a pod; the scheduler that it was given."""
    pod["spec"]["terminationGracePeriodSeconds"] = 0
    made = msgspec.json.decode(await calls.call("POST", PODS, pod))
    return str(made["spec"]["schedulerName"])


async def steered(calls: ApiCalls) -> None:
    """Until the API server follows the webhook configuration, of which it hears by a watch."""
    probe = fakenodes.pod("probe", 1, scheduler="default-scheduler")
    dry = f"{PODS}?dryRun=All"
    async with asyncio.timeout(SECONDS):
        while True:
            made = msgspec.json.decode(await calls.call("POST", dry, probe))
            if made["spec"]["schedulerName"] == SCHEDULER_NAME:
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("name", originals.NAMES)
async def test_every_pod_of_the_originals_gets_our_scheduler(
    calls: ApiCalls, stack: Running, name: str
) -> None:
    """The API server calls the webhook under the chart's certificate, for every one of them."""
    await steered(calls)
    for pod in originals.pods(name, image="none"):
        assert await create(calls, pod) == SCHEDULER_NAME


async def test_a_pod_that_fits_the_node_and_no_gpu_waits(calls: ApiCalls, stack: Running) -> None:
    """10 units, with 7 of 15 used on each of two GPUs: no node is tried, so none refuses it."""
    await steered(calls)
    async with FakeNodeAgent(calls, UNITS) as kubelet:
        for name in ("left", "right"):
            filler = fakenodes.pod(name, 7, scheduler="default-scheduler")
            filler["metadata"]["annotations"] = {POLICY: "spread"}
            assert await create(calls, filler) == SCHEDULER_NAME
        await kubelet.wait(2, seconds=SECONDS)
        assert sorted(kubelet.used.values()) == [7, 7]
        (pod,) = originals.pods("fits-the-node-only", image="none")
        assert await create(calls, pod) == SCHEDULER_NAME
        path = f"{PODS}/{pod['metadata']['name']}"
        waiting = await refused(calls, path)
        assert (waiting["status"]["phase"], waiting["spec"].get("nodeName")) == ("Pending", None)
        assert kubelet.refused == set()


async def refused(calls: ApiCalls, path: str) -> Object:
    """The pod, once its scheduler has written down why it waits."""
    async with asyncio.timeout(SECONDS):
        while True:
            found = await get(calls, path)
            if "Insufficient GPU Memory in one device" in str(found):
                return found
            await asyncio.sleep(0.05)


async def test_pods_of_others_are_left_as_they_are(calls: ApiCalls, stack: Running) -> None:
    """Another scheduler's pod, and one that requests nothing of ours, keep what they name."""
    await steered(calls)
    assert await create(calls, fakenodes.pod("theirs", 1, scheduler="volcano")) == "volcano"
    plain = fakenodes.pod("plain", 1, scheduler="default-scheduler", resource="example.com/thing")
    assert await create(calls, plain) == "default-scheduler"


async def test_pods_are_created_while_the_webhook_is_down(calls: ApiCalls) -> None:
    """It fails open: behind the Service nobody answers, and a pod is created as it was written."""
    await lead_to(calls, 9)
    pod = fakenodes.pod("unseen", 1, scheduler="default-scheduler")
    assert await create(calls, pod) == "default-scheduler"


async def test_an_upgrade_keeps_the_certificate(plane: ControlPlane, calls: ApiCalls) -> None:
    """The API server trusts what the pods show, before and after; nothing waits for new files."""
    assert await issue(plane, calls) == 0
    before = await get(calls, SECRET)
    await asyncio.to_thread(install, plane)
    assert await issue(plane, calls) == 0
    after, hook = await get(calls, SECRET), await get(calls, HOOK)
    assert after["data"] == before["data"]
    assert hook["webhooks"][0]["clientConfig"]["caBundle"] == before["data"]["ca.crt"]
