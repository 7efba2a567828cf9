"""cluster-autoscaler adds nodes for waiting shares, on a real control plane.

``make e2e MARK=ondemand CASES=services/extender/tests/test_controlplane_autoscaler.py`` with
``CLUSTER_AUTOSCALER`` set to the program; docs/autoscaling.md shows how it is built.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from claimside import create, read, waited
from planes import Source, plane
from running import Running

from environments import clusterautoscaler, fakenodes
from environments.apicall import ApiCalls
from environments.clusterautoscaler import ClusterAutoscaler
from environments.controlplane import ControlPlane
from host.errors import SetupError
from host.testing.lacking import lacking

pytestmark = [pytest.mark.e2e, pytest.mark.ondemand, pytest.mark.timeout(600)]
__all__ = ["plane"]  # a fixture

GPUS = 2
UNITS = 16
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
Object = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def _program() -> None:
    """The program is built by hand: no package registry has it."""
    try:
        clusterautoscaler.named_program()
    except SetupError as reason:
        lacking("no cluster-autoscaler", reason)


@pytest.fixture
async def calls(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[ApiCalls]:
    """No nodes; a scheduler with the extender, and at the end no pods."""
    async with ApiCalls.to(plane) as found, Running(Source(plane), tmp_path) as extender:
        await extender.ready()
        url = f"{extender.url}/gpushare-scheduler"
        scheduler = await asyncio.to_thread(plane.scheduler, url)
        try:
            yield found
        finally:
            scheduler.stop()
            for path in (f"{PODS}?gracePeriodSeconds=0", NODES):
                await found.call("DELETE", path)


@pytest.fixture
async def autoscaler(plane: ControlPlane, calls: ApiCalls) -> AsyncIterator[ClusterAutoscaler]:
    """One group without nodes, whose nodes have two GPUs of 16 units."""
    assert not await names(calls, NODES)
    (template,) = fakenodes.nodes(1, gpus=GPUS, units=UNITS)
    process = await asyncio.to_thread(clusterautoscaler.start, plane, template, group="gpu")
    try:
        yield process
    finally:
        process.stop()


def share(name: str, units: int) -> Object:
    """A pod for the scheduler."""
    return fakenodes.pod(name, units, scheduler="gpushare-scheduler")


async def test_forty_waiting_shares_get_the_nodes_that_they_fill(
    calls: ApiCalls, autoscaler: ClusterAutoscaler
) -> None:
    """Eight shares of 4 units fill a node of 32, so 40 need five; all of them are bound."""
    await calls.create(PODS, [share(f"share-{number}", 4) for number in range(40)])
    await waited(calls, PODS, all_bound)
    await evaluated(autoscaler, 3)
    assert len(await names(calls, NODES)) == 5


async def test_shares_that_are_larger_than_a_node_add_none(
    calls: ApiCalls, autoscaler: ClusterAutoscaler
) -> None:
    """Of a large and a small share only the small one gets a node."""
    await create(calls, PODS, share("large", GPUS * UNITS + 1))
    await create(calls, PODS, share("small", 4))
    await waited(calls, f"{PODS}/small", bound)
    await evaluated(autoscaler, 3)
    assert len(await names(calls, NODES)) == 1
    assert not bound(await read(calls, f"{PODS}/large"))


async def test_a_share_that_is_larger_than_a_gpu_adds_one_node_in_vain_and_no_second(
    calls: ApiCalls, autoscaler: ClusterAutoscaler
) -> None:
    """The autoscaler counts the sum of a node; the extender knows that no GPU can hold it."""
    await create(calls, PODS, share("wide", UNITS + 4))
    await waited(calls, NODES, lambda found: found["items"])
    await waited(calls, f"{PODS}/wide", refused_by_one_node)
    await evaluated(autoscaler, 5)
    assert len(await names(calls, NODES)) == 1
    assert not bound(await read(calls, f"{PODS}/wide"))


async def evaluated(autoscaler: ClusterAutoscaler, times: int) -> None:
    """It looked at the cluster so many times from now on."""
    target = autoscaler.evaluations() + times
    async with asyncio.timeout(60):
        while autoscaler.evaluations() < target:  # noqa: ASYNC110 - a process
            await asyncio.sleep(0.1)


async def names(calls: ApiCalls, path: str) -> list[str]:
    """Of all objects of a collection."""
    return [item["metadata"]["name"] for item in (await read(calls, path))["items"]]


def bound(item: Object) -> bool:
    """A scheduler has chosen a node."""
    return bool(item["spec"].get("nodeName"))


def all_bound(listed: Object) -> bool:
    """A scheduler has chosen a node for every pod."""
    return all(map(bound, listed["items"]))


def refused_by_one_node(item: Object) -> bool:
    """kube-scheduler found no place on the new node."""
    conditions = item.get("status", {}).get("conditions", ())
    return any(one.get("message", "").startswith("0/1 nodes") for one in conditions)
