"""Pods whose GPUs are requested by claims are in the mix of a running extender."""

import json
from pathlib import Path
from typing import Any

import pytest
from claimside import kind, node_object, resource_slice
from running import Running, until

from gpucore.steps import complete
from gpucore.workload.history import FEWEST_PODS
from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow
Object = dict[str, Any]
CAPACITY = {"requests": {"memory": "8Gi", "compute": "50"}}
SPEC: Object = {
    "devices": {
        "requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpushare", "capacity": CAPACITY}}
        ]
    }
}
SELECTOR = {"cel": {"expression": "device.driver == 'gpu.gpushare.io'"}}
SHARE = {"memUnits": 8, "corePercent": 50, "cpuMilli": 3000, "memoryMib": 2048, "gpus": 1}


def in_team(item: Object) -> Object:
    """The object in the namespace of the pods."""
    item["metadata"] |= {"namespace": "team", "uid": f"u-{item['metadata']['name']}"}
    return item


def pod(name: str, **claim: str) -> Object:
    """A pod with CPU and memory whose GPU is requested by a claim."""
    requests = {"cpu": "3", "memory": "2Gi"}
    main = {"name": "main", "resources": {"requests": requests}}
    claims = [{"name": "gpu", **claim}]
    spec = {"containers": [main], "resourceClaims": claims}
    return in_team({"metadata": {"name": name}, "spec": spec, "status": {"phase": "Pending"}})


async def mix_of(extender: Running, pods: int) -> list[Object]:
    """The kinds of pods once this number is counted."""
    with_claims, history = extender.service._learner._with_claims, extender.state.mix.history
    counted = lambda: complete(with_claims.count()) or len(history) == pods  # noqa: E731
    await until(f"{pods} pods are counted", counted)
    await extender.service._learner.learn()
    document = json.loads((await extender.get("/api/v1/mix"))[1])
    return [
        {key: value for key, value in each.items() if key != "part"} for each in document["kinds"]
    ]


async def test_claims_and_templates_may_come_after_their_pods(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """The pods count with the share, CPU and memory once both are known."""
    await cluster.put("nodes", node_object("n1"))
    await cluster.put("resourceslices", resource_slice("n1"))
    for number in range(FEWEST_PODS):
        await cluster.put("pods", pod(f"p{number}", resourceClaimTemplateName="eight"))
    await cluster.put("pods", pod("own", resourceClaimName="own"))
    async with Running(cluster, tmp_path, claims=True) as extender:
        await extender.ready()
        await extender.service._learner.learn()
        assert len(extender.state.mix.history) == 0
        await cluster.put(
            "deviceclasses", kind("DeviceClass", "gpushare", {"selectors": [SELECTOR]})
        )
        template = in_team(kind("ResourceClaimTemplate", "eight", {"spec": SPEC}))
        await cluster.put("resourceclaimtemplates", template)
        await cluster.put("resourceclaims", in_team(kind("ResourceClaim", "own", SPEC)))
        assert await mix_of(extender, FEWEST_PODS + 1) == [SHARE]


async def test_an_extender_that_nominates_nothing_counts_claims_of_the_charts_classes(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """It reads neither classes nor templates; an allocated claim states what it requested."""
    await cluster.put("nodes", node_object("n1"))
    await cluster.put("resourceslices", resource_slice("n1"))
    status = {"allocation": {"devices": {"results": []}}}
    claim = in_team(kind("ResourceClaim", "own", SPEC)) | {"status": status}
    await cluster.put("resourceclaims", claim)
    for number in range(FEWEST_PODS):
        await cluster.put("pods", pod(f"p{number}", resourceClaimName="own"))
    async with Running(cluster, tmp_path, claims=True, nominate="off") as extender:
        await extender.ready()
        assert await mix_of(extender, FEWEST_PODS) == [SHARE]
        assert not cluster.lists("resourceclaimtemplates")
