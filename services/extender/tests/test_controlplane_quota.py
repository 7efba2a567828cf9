"""Quotas, limits and priorities of Kubernetes hold for GPU shares, on a real control plane.

The API server admits, kube-controller-manager counts, kube-scheduler preempts.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from claimside import create, read, waited
from planes import Source, plane
from running import Running

from environments import fakenodes
from environments.apicall import MERGE_PATCH, ApiCalls
from environments.controlplane import ControlPlane
from environments.reader import plain_terminal
from guides.blocks import GuideTarget, found
from guides.session import GuideSession

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
__all__ = ["plane"]  # a fixture

Object = dict[str, Any]
ROOT = Path(__file__).parents[3]
SCHEDULER = "gpushare-scheduler"
GPU_MEM = "aliyun.com/gpu-mem"


@pytest.fixture
async def calls(plane: ControlPlane) -> AsyncIterator[ApiCalls]:
    """A session, with the controller that counts what quotas limit."""
    controller = await asyncio.to_thread(plane.controllers, "resourcequota-controller")
    try:
        async with ApiCalls.to(plane) as found:
            yield found
    finally:
        controller.stop()


async def namespace(calls: ApiCalls, name: str) -> str:
    """A new namespace; the path of what is in it."""
    await calls.create("/api/v1/namespaces", [{"metadata": {"name": name}}])
    return f"/api/v1/namespaces/{name}"


def pod(name: str, units: int, **more: Any) -> Object:
    """A pod that requests units, in the namespace of the path it is sent to."""
    item = fakenodes.pod(name, units, scheduler=more.pop("scheduler", "nobody"))
    del item["metadata"]["namespace"]
    item["spec"] |= more
    return item


async def refused(calls: ApiCalls, path: str, item: Object) -> str:
    """What the API server replies to a request that it forbids."""
    answer = msgspec.json.decode(await calls.call("POST", path, item, fine=(403,)))
    return str(answer["message"])


async def test_a_quota_counts_units_and_its_refusal_names_it(calls: ApiCalls) -> None:
    """From the request of the pod; what ended is free again."""
    space = await namespace(calls, "quota")
    hard = {f"requests.{GPU_MEM}": "12"}
    quota = {"metadata": {"name": "gpu-memory"}, "spec": {"hard": hard}}
    await create(calls, f"{space}/resourcequotas", quota)
    path = f"{space}/resourcequotas/gpu-memory"
    await waited(calls, path, lambda found: found.get("status", {}).get("hard") == hard)
    await create(calls, f"{space}/pods", pod("first", 8))
    message = await refused(calls, f"{space}/pods", pod("second", 8))
    assert "exceeded quota: gpu-memory" in message
    assert f"requested: requests.{GPU_MEM}=8, used: requests.{GPU_MEM}=8" in message
    await create(calls, f"{space}/pods", pod("third", 4))
    used = (await read(calls, path))["status"]["used"]
    assert used == {f"requests.{GPU_MEM}": "12"}
    await calls.call("DELETE", f"{space}/pods/first?gracePeriodSeconds=0")
    await waited(calls, path, lambda found: found["status"]["used"] == {f"requests.{GPU_MEM}": "4"})
    await create(calls, f"{space}/pods", pod("second", 8))


async def test_a_limit_range_bounds_one_share_and_gives_none_to_other_pods(
    calls: ApiCalls,
) -> None:
    """A default would turn every pod of the namespace into a share; a maximum refuses."""
    space = await namespace(calls, "limits")
    limit = {"type": "Container", "max": {GPU_MEM: "8"}, "min": {GPU_MEM: "2"}}
    limits = {"metadata": {"name": "share-size"}, "spec": {"limits": [limit]}}
    await create(calls, f"{space}/limitranges", limits)
    message = await refused(calls, f"{space}/pods", pod("large", 9))
    assert f"maximum {GPU_MEM} usage per Container is 8" in message
    message = await refused(calls, f"{space}/pods", pod("small", 1))
    assert f"minimum {GPU_MEM} usage per Container is 2" in message
    made = await create(calls, f"{space}/pods", pod("fits", 8))
    assert made["spec"]["containers"][0]["resources"]["limits"][GPU_MEM] == "8"


async def test_a_quota_of_a_priority_class_limits_pods_of_that_class_alone(
    calls: ApiCalls,
) -> None:
    """A team may have many shares, but few that evict others."""
    space = await namespace(calls, "pressing")
    await priority_class(calls, "pressing", 1000)
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["pressing"]}
    spec = {
        "hard": {f"requests.{GPU_MEM}": "4"},
        "scopeSelector": {"matchExpressions": [scope]},
    }
    quota = {"metadata": {"name": "urgent-memory"}, "spec": spec}
    await create(calls, f"{space}/resourcequotas", quota)
    path = f"{space}/resourcequotas/urgent-memory"
    await waited(calls, path, lambda found: found.get("status", {}).get("hard"))
    await create(calls, f"{space}/pods", pod("plain", 16))
    await create(calls, f"{space}/pods", pod("urgent", 4, priorityClassName="pressing"))
    again = pod("again", 1, priorityClassName="pressing")
    assert "exceeded quota: urgent-memory" in await refused(calls, f"{space}/pods", again)


async def test_a_priority_class_evicts_where_the_node_lacks_units_in_total(
    plane: ControlPlane, calls: ApiCalls, tmp_path: Path
) -> None:
    """Two GPUs of 16 units with 6 free each: 12 evict nobody, 14 evict one of two pods.

    kube-scheduler names no victims for a pod that fits the total of the node.
    """
    space = await namespace(calls, "preemption")
    await priority_class(calls, "important", 2000)
    await calls.create("/api/v1/nodes", fakenodes.nodes(1, gpus=2, units=16))
    async with Running(Source(plane), tmp_path) as extender:
        await extender.ready()
        url = f"{extender.url}/gpushare-scheduler"
        scheduler = await asyncio.to_thread(plane.scheduler, url)
        try:
            for name in ("one", "two"):
                await create(calls, f"{space}/pods", pod(name, 10, scheduler=SCHEDULER))
                await waited(calls, f"{space}/pods/{name}", bound)
            fits = pod("fits-the-total", 12, scheduler=SCHEDULER, priorityClassName="important")
            await create(calls, f"{space}/pods", fits)
            await waited(calls, f"{space}/pods/fits-the-total", found_no_victims)
            assert {"one", "two"} < await names(calls, space)
            await calls.call("DELETE", f"{space}/pods/fits-the-total?gracePeriodSeconds=0")
            urgent = pod("urgent", 14, scheduler=SCHEDULER, priorityClassName="important")
            await create(calls, f"{space}/pods", urgent)
            await waited(calls, f"{space}/pods/urgent", bound)
            assert len(await names(calls, space) - {"urgent"}) == 1
        finally:
            scheduler.stop()


async def test_a_pod_is_evicted_that_kube_scheduler_would_have_spared(
    plane: ControlPlane, calls: ApiCalls, tmp_path: Path
) -> None:
    """GPU 0 has 10 units of a higher and 4 of a lower priority, GPU 1 has 6, and 12 are requested.

    By the sum of the node the pod of 4 is enough, and kube-scheduler names it because it started
    last. The extender names the pod of 6 instead, and kube-scheduler evicts that one.
    """
    space = await namespace(calls, "beyond")
    await priority_class(calls, "medium", 1000)
    await priority_class(calls, "high", 2000)
    (node,) = fakenodes.nodes(1, gpus=2, units=15)
    node["metadata"] |= {"name": "beyond", "labels": {"gpushare": "true", "only": "beyond"}}
    await calls.create("/api/v1/nodes", [node])
    async with Running(Source(plane), tmp_path) as extender:
        await extender.ready()
        await runs(calls, space, pod("stays", 10, priorityClassName="medium"), gpu=0, since=1)
        await runs(calls, space, pod("alone", 6), gpu=1, since=2)
        await runs(calls, space, pod("last", 4), gpu=0, since=3)
        url = f"{extender.url}/gpushare-scheduler"
        scheduler = await asyncio.to_thread(plane.scheduler, url)
        try:
            urgent = pod("urgent", 12, scheduler=SCHEDULER, priorityClassName="high")
            urgent["spec"]["nodeSelector"] = {"only": "beyond"}
            await create(calls, f"{space}/pods", urgent)
            await waited(calls, f"{space}/pods/urgent", bound)
            assert await names(calls, space) == {"stays", "last", "urgent"}
        finally:
            scheduler.stop()
            await calls.call("DELETE", "/api/v1/nodes/beyond")


@pytest.mark.usefixtures("calls")
async def test_the_guide_does_what_it_shows(plane: ControlPlane, tmp_path: Path) -> None:
    """Every command of the page about quotas."""
    (guide,) = found(ROOT / "docs", GuideTarget.CONTROL_PLANE)
    environment = plain_terminal(plane.kubectl, tmp_path)
    session = GuideSession(tmp_path, environment=environment, patience_s=60)
    await asyncio.to_thread(session.follow, guide)


async def priority_class(calls: ApiCalls, name: str, value: int) -> None:
    """A PriorityClass that preempts."""
    item = {"metadata": {"name": name}, "value": value, "description": "tests"}
    await calls.create("/apis/scheduling.k8s.io/v1/priorityclasses", [item])


async def names(calls: ApiCalls, space: str) -> set[str]:
    """Pods of a namespace."""
    return {item["metadata"]["name"] for item in (await read(calls, f"{space}/pods"))["items"]}


async def runs(calls: ApiCalls, space: str, item: Object, *, gpu: int, since: int) -> None:
    """A pod that runs on a GPU of the node ``beyond`` since this day of a month."""
    limits = item["spec"]["containers"][0]["resources"]["limits"]
    held = fakenodes.original_patch(gpu, int(limits[GPU_MEM]))
    item["metadata"] |= held["metadata"]
    item["spec"]["nodeName"] = "beyond"
    await create(calls, f"{space}/pods", item)
    status = {"phase": "Running", "startTime": f"2026-01-{since:02}T00:00:00Z"}
    path = f"{space}/pods/{item['metadata']['name']}/status"
    await calls.call("PATCH", path, {"status": status}, kind=MERGE_PATCH)


def found_no_victims(item: Object) -> bool:
    """kube-scheduler has refused the pod and looked for pods to evict."""
    conditions = item.get("status", {}).get("conditions", ())
    return any("preemption:" in one.get("message", "") for one in conditions)


def bound(item: Object) -> bool:
    """A scheduler has chosen a node."""
    return bool(item["spec"].get("nodeName"))
