"""PodGroups whose pods use ResourceClaims: kube-scheduler itself places them whole or not at all.

It calls the extender for none of them; the extender reads the claims and must do no harm.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from claimplane import API, CLAIMS, SECONDS, claim, device_class, gpu, gpus, node, request
from claimplane import pod as claim_pod
from planes import Source
from podgroupplane import GROUPS, GroupCluster, group_plane, pod_group
from running import Running

from environments.apicall import ApiCalls
from environments.controlplane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NODE: Final = "claims-0"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane with PodGroups."""
    yield from group_plane()


async def group_with_claims(cluster: GroupCluster, name: str, size: int) -> None:
    """A PodGroup of ``size`` pods with a claim of a whole GPU each."""
    await cluster.calls.call("POST", GROUPS, pod_group(name, size))
    for number in range(size):
        item: dict[str, Any] = claim_pod(f"{name}-{number}")
        item["metadata"]["labels"] = {"group": name}
        item["spec"]["schedulerName"] = "default-scheduler"
        item["spec"]["schedulingGroup"] = {"podGroupName": name}
        await cluster.calls.call("POST", CLAIMS, claim(f"{name}-{number}", request()))
        await cluster.add(item)


async def test_a_group_of_claims_is_placed_whole_or_not_at_all(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Two GPUs: of two groups of two pods one is bound, and a group of three never."""
    async with ApiCalls.to(plane) as calls:
        await calls.create("/api/v1/nodes", [node(NODE)])
        await calls.create(f"{API}/deviceclasses", [device_class("gpushare")])
        await calls.create(f"{API}/resourceslices", [gpus(NODE, [gpu(0), gpu(1)])])
        async with Running(Source(plane), tmp_path, claims=True) as extender:
            await extender.ready()
            url = f"{extender.url}/gpushare-scheduler"
            process = await asyncio.to_thread(plane.scheduler, url, name="default-scheduler")
            cluster = GroupCluster(calls, extender)
            try:
                await group_with_claims(cluster, "three", 3)
                await group_with_claims(cluster, "one", 2)
                await group_with_claims(cluster, "two", 2)
                await cluster.until_some_group(("one", "two"), 2, SECONDS)
                counts = [len(await cluster.bound(name)) for name in ("one", "two", "three")]
                assert sorted(counts) == [0, 0, 2]
                assert counts[2] == 0
            finally:
                await asyncio.to_thread(process.stop)
                await cluster.clear()
