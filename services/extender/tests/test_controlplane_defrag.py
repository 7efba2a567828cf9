"""Defragmentation on a real API server and kube-scheduler, with the rights that the chart grants.

The test plays the controller: it creates another pod where one was evicted.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic
from typing import Any, Final

import msgspec
import pytest
from chartconfig import SPACE, chart_config
from planes import Source, plane, scheduling
from running import Running

from environments import fakenodes
from environments.apicall import MERGE_PATCH, ApiCalls
from environments.controlplane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
__all__ = ["plane"]  # a fixture

Object = dict[str, Any]
PODS: Final = "/api/v1/namespaces/default/pods"
BUDGETS: Final = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
SCHEDULER: Final = "defrag"
ACCOUNT: Final = f"system:serviceaccount:{SPACE}:{SPACE}-gpushare-defragmentation"
LEASE: Final = f"{SPACE}/{SPACE}-gpushare-defragmentation"
SECONDS: Final = 60
OWNER: Final = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "small",
    "uid": "11111111-2222-3333-4444-555555555555",
    "controller": True,
}


def held(name: str, node: int, gpu: int, units: int, **metadata: Any) -> Object:
    """A pod that has a share."""
    item = fakenodes.pod(name, units, scheduler="none")
    item["spec"]["nodeName"] = f"node-{node:05}"
    item["metadata"] |= {
        "annotations": {
            "ALIYUN_COM_GPU_MEM_IDX": str(gpu),
            "ALIYUN_COM_GPU_MEM_POD": str(units),
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
        },
        "labels": {"app": name},
        **metadata,
    }
    return item


async def read(calls: ApiCalls, path: str) -> Object:
    """An object or a list."""
    found: Object = msgspec.json.decode(await calls.call("GET", path))
    return found


async def bound(calls: ApiCalls, name: str) -> tuple[str, str]:
    """Node and GPU of a pod, once it has them."""
    end = monotonic() + SECONDS
    while monotonic() < end:
        item = await read(calls, f"{PODS}/{name}")
        if node := item["spec"].get("nodeName"):
            return node, item["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_IDX"]
        await asyncio.sleep(0.1)
    raise AssertionError(f"{name} was not bound")


async def refused(calls: ApiCalls, name: str) -> None:
    """Return once a scheduler found no node for a pod."""
    end = monotonic() + SECONDS
    while monotonic() < end:
        if (await read(calls, f"{PODS}/{name}"))["status"].get("conditions"):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{name} was not refused")


@pytest.fixture
async def cluster(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[ApiCalls]:
    """Two nodes of two GPUs; 12 units are free on no GPU until ``small`` moves; ``w`` waits."""
    async with ApiCalls.to(plane) as calls:
        job = {"enabled": True, "apply": True}
        config = await chart_config(plane, calls, defragmentation=job)
        await calls.create("/api/v1/nodes", fakenodes.nodes(2, gpus=2, units=16))
        stay = [held("a", 0, 0, 10), held("x", 1, 0, 9), held("y", 1, 1, 9)]
        small = held("small", 0, 1, 6, ownerReferences=[OWNER])
        await calls.create(PODS, [*stay, small])
        for name in ("a", "x", "y", "small"):
            phase = {"status": {"phase": "Running"}}
            await calls.call("PATCH", f"{PODS}/{name}/status", phase, kind=MERGE_PATCH)
        async with Running(Source(plane), tmp_path, bind_deadline=30) as extender:
            await extender.ready()
            async with scheduling(plane, extender, SCHEDULER, config):
                await calls.call("POST", PODS, fakenodes.pod("w", 12, scheduler=SCHEDULER))
                await refused(calls, "w")
                yield calls


async def defrag(plane: ControlPlane, *flags: str) -> Object:
    """The answer of ``gpushare defrag`` with the rights of the CronJob."""
    command = [Path(sys.executable).parent / "gpushare", "defrag", "-o", "json", "--waited=0"]
    command += [f"--kubeconfig={plane.kubeconfig}", f"--as={ACCOUNT}", f"--lease={LEASE}", *flags]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    found: Object = json.loads(done.stdout)
    return found


async def test_a_pod_is_evicted_for_one_that_then_fits(
    plane: ControlPlane, cluster: ApiCalls
) -> None:
    """The plan, a disruption budget that stops it, the eviction, and what the scheduler does."""
    calls = cluster
    uid = (await read(calls, f"{PODS}/small"))["metadata"]["uid"]
    plan = await defrag(plane)
    assert [each["name"] for each in plan["evictions"]] == ["small"]
    assert (plan["applied"], plan["pod"]["name"]) == (False, "w")

    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "small"}}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": spec}
    await calls.call("POST", BUDGETS, budget | {"metadata": {"name": "keep"}})
    stopped = await defrag(plane, "--apply")
    assert stopped["stopped"].startswith("a PodDisruptionBudget keeps default/small")
    assert (await read(calls, f"{PODS}/small"))["metadata"]["uid"] == uid
    await calls.call("DELETE", f"{BUDGETS}/keep")

    done = await defrag(plane, "--apply")
    assert [each["evicted"] for each in done["evictions"]] == [True]
    again = fakenodes.pod("small-2", 6, scheduler=SCHEDULER)
    again["metadata"]["ownerReferences"] = [OWNER]
    await calls.call("POST", PODS, again)
    assert await bound(calls, "w") == ("node-00000", "1")
    assert await bound(calls, "small-2") != ("node-00000", "1")
    await calls.call("GET", f"{PODS}/small", fine=(404,))

    events = (await read(calls, "/api/v1/namespaces/default/events"))["items"]
    subjects = [(event["reason"], event["involvedObject"]) for event in events]
    # An event of a kube-scheduler with alpha features has a subject without a name.
    seen = {(reason, about["kind"], about.get("name")) for reason, about in subjects}
    assert {
        ("GpuPodEvicted", "Pod", "small"),
        ("GpuPodEvicted", "ReplicaSet", "small"),
        ("GpuCapacityFreed", "Pod", "w"),
    } <= seen
    after = await defrag(plane, "--apply")
    assert after["evictions"] == []
