"""A quota on shares and pods that take whole GPUs, judged by a real API server."""

import asyncio
from typing import Any

import msgspec
import pytest
from chartconfig import chart_config
from claimside import SECONDS
from planes import plane

from environments import fakenodes
from environments.apicall import MERGE_PATCH, ApiCalls
from environments.controlplane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
__all__ = ["plane"]  # a fixture

Object = dict[str, Any]
GPU_MEM = "aliyun.com/gpu-mem"
LABELS = {"ack.gpushare.placement": "require-whole-device"}
NOTE = {"annotations": {"team": "a"}}
REFUSED = "takes a whole GPU, of which a ResourceQuota of this namespace counts"


def share(name: str, **labels: str) -> Object:
    """A pod that requests one unit."""
    item: Object = fakenodes.pod(name, 1, scheduler="nobody")
    del item["metadata"]["namespace"]
    item["metadata"]["labels"] = labels
    return item


async def namespace(calls: ApiCalls, name: str, *counted: str) -> str:
    """A new namespace with a pod and, for each of these, a quota; the path of what is in it."""
    await calls.create("/api/v1/namespaces", [{"metadata": {"name": name}}])
    path = f"/api/v1/namespaces/{name}"
    await calls.create(f"{path}/pods", [share("older"), share("older-whole", **LABELS)])
    quotas = [
        {"metadata": {"name": f"q{i}"}, "spec": {"hard": {each: "9"}}}
        for i, each in enumerate(counted)
    ]
    await calls.create(f"{path}/resourcequotas", quotas)
    return path


async def reply(
    calls: ApiCalls, verb: str, path: str, item: Object, kind: str = "application/json"
) -> str:
    """The message of a refusal; empty where the request passes."""
    answer = await calls.call(verb, path, item, kind=kind, fine=(200, 201, 403))
    found: Object = msgspec.json.decode(answer)
    return str(found["message"]) if found["kind"] == "Status" else ""


async def test_no_pod_holds_a_whole_gpu_where_a_quota_counts_shares(plane: ControlPlane) -> None:
    """At creation and later, by any quota of the namespace; other namespaces are free."""
    async with ApiCalls.to(plane) as calls:
        counted = await namespace(calls, "counted", "pods", f"requests.{GPU_MEM}")
        free = await namespace(calls, "free", "configmaps")
        none = await namespace(calls, "none")
        await chart_config(plane, calls, admissionPolicy={"enabled": True})
        probe = share("probe", **LABELS)

        dry = f"{counted}/pods?dryRun=All"
        async with asyncio.timeout(SECONDS):
            while REFUSED not in await reply(calls, "POST", dry, probe):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
        for path in (free, none):
            assert await reply(calls, "POST", f"{path}/pods", probe) == ""
        labelled, annotated = ({"metadata": each} for each in ({"labels": LABELS}, NOTE))
        for path in (f"{counted}/pods/older", f"{counted}/pods/older/status"):
            assert REFUSED in await reply(calls, "PATCH", path, labelled, MERGE_PATCH)
        for path in (f"{counted}/pods/older", f"{counted}/pods/older-whole/status"):
            assert await reply(calls, "PATCH", path, annotated, MERGE_PATCH) == ""
