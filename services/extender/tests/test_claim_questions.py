"""``/api/v1`` explains and tries pods whose GPUs are requested by claims."""

import copy
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from claimside import kind, node_object, resource_slice
from running import Running, until

from gpucore.model import Allocation, AllocationState, Placement
from gpucore.units import GIB, GpuIndex, NodeName, PodUid
from gpucore.wire.constraints import decode_pod
from gpuextender.clock import unix_ns
from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow
Object = dict[str, Any]
SPEC: Object = {
    "devices": {
        "requests": [
            {
                "name": "gpu",
                "exactly": {
                    "deviceClassName": "gpushare",
                    "capacity": {"requests": {"memory": "8Gi"}},
                },
            }
        ]
    }
}


def capacity(memory: str) -> Object:
    """The same with another amount."""
    found = copy.deepcopy(SPEC)
    found["devices"]["requests"][0]["exactly"]["capacity"]["requests"]["memory"] = memory
    return found


RESULT = {
    "request": "gpu",
    "driver": "gpu.gpushare.io",
    "pool": "n1",
    "device": "gpu-0",
    "shareID": "s",
    "consumedCapacity": {"memory": "8Gi", "compute": "0"},
}


def pod(name: str, **spec: Any) -> Object:
    """A pod with one claim from the template ``eight``."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "eight"}]
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"u-{name}"},
        "spec": {"containers": [{"name": "main"}], "resourceClaims": claims, **spec},
        "status": {"phase": "Pending"},
    }


def held() -> tuple[Object, Object]:
    """A pod that has 8 GiB, and its claim."""
    runs = pod("runs", nodeName="n1")
    made = [{"name": "gpu", "resourceClaimName": "runs-gpu"}]
    runs["status"] = {"phase": "Running", "resourceClaimStatuses": made}
    user = {"resource": "pods", "name": "runs", "uid": "u-runs"}
    status = {"allocation": {"devices": {"results": [RESULT]}}, "reservedFor": [user]}
    claim = kind("ResourceClaim", "runs-gpu", SPEC) | {"status": status}
    claim["metadata"] |= {"namespace": "team", "uid": "c-runs"}
    return runs, claim


@pytest.fixture
async def extender(cluster: FakeApiServer, tmp_path: Path) -> AsyncIterator[Running]:
    """An extender that reads claims; a GPU of 15 GiB of which 8 are held."""
    runs, claim = held()
    selector = {"cel": {"expression": "device.driver == 'gpu.gpushare.io'"}}
    template = kind("ResourceClaimTemplate", "eight", {"spec": SPEC})
    template["metadata"]["namespace"] = "team"
    await cluster.put("nodes", node_object("n1"))
    await cluster.put("resourceslices", resource_slice("n1"))
    await cluster.put("resourceclaims", claim)
    await cluster.put("resourceclaimtemplates", template)
    await cluster.put("deviceclasses", kind("DeviceClass", "gpushare", {"selectors": [selector]}))
    await cluster.put("pods", runs)
    await cluster.put("pods", pod("waits"))
    async with Running(cluster, tmp_path, claims=True) as found:
        await found.ready()
        await until("the claim is known", lambda: found.state.ledger.allocation("c-runs"))
        yield found


async def explained(extender: Running, name: str) -> tuple[int, Any]:
    """Status and document."""
    code, text = await extender.get(f"/api/v1/pods/team/{name}/explain")
    return code, json.loads(text)


async def knows_requests(extender: Running) -> None:
    """Wait until the watches brought templates and classes."""
    nominator = extender.service._for_claims
    await until("templates are known", lambda: nominator.templates.items)
    await until("classes are known", lambda: nominator.classes.items)


async def tried(extender: Running, **spec: Any) -> tuple[int, Any]:
    """Status and document of what-if for a pod of the namespace ``team``."""
    manifest = {"kind": "Pod", "metadata": {"name": "new", "namespace": "team"}, "spec": spec}
    return await extender.post("/api/v1/whatif", {"manifests": [manifest]})


def by_claim(**source: str) -> Object:
    """The spec of a pod with one claim."""
    return {"containers": [{"name": "main"}], "resourceClaims": [{"name": "gpu", **source}]}


async def test_a_pending_claim_is_explained(extender: Running) -> None:
    """With figures of each GPU and what would help."""
    await knows_requests(extender)
    code, found = await explained(extender, "waits")
    assert (code, found["kind"], found["state"]) == (200, "PodExplanation", "Waiting")
    [refusal] = found["refusals"]
    assert (refusal["node"], refusal["code"]) == ("n1", "InsufficientMemory")
    assert [(gpu["free"], gpu["requested"]) for gpu in refusal["gpus"]] == [(7, 8)]
    assert any("request at most 7 GiB" in each for each in found["helps"])
    assert any("team/runs has ended" in each for each in found["helps"])


async def test_what_is_reserved_for_a_nominated_pod_is_free_for_it(
    cluster: FakeApiServer, extender: Running
) -> None:
    """GPU memory and CPU that its own nomination takes until its claim is allocated."""
    four = kind("ResourceClaimTemplate", "four", {"spec": capacity("4Gi")})
    four["metadata"]["namespace"] = "team"
    await cluster.put("resourceclaimtemplates", four)
    templates = extender.service._for_claims.templates.items
    await until("the template is known", lambda: ("team", "four") in templates)
    await knows_requests(extender)
    main = {"name": "main", "resources": {"requests": {"cpu": "5"}}}
    by_template = [{"name": "gpu", "resourceClaimTemplateName": "four"}]
    small = pod("small", containers=[main], resourceClaims=by_template)
    await cluster.put("pods", small)
    placement = Placement(NodeName("n1"), {GpuIndex(0): 4})
    reserved = Allocation(
        uid=PodUid("u-small"),
        namespace="team",
        name="small",
        state=AllocationState.RESERVED,
        placement=placement,
        unit=GIB,
        assume_time=unix_ns(),
    )
    extender.state.reserve(reserved, decode_pod(json.dumps(small).encode()))
    code, found = await explained(extender, "small")
    assert (code, found["state"], found["fits"]) == (200, "Fits", ["n1"])
    assert extender.state.ledger.allocation("u-small") is reserved


async def test_a_template_with_a_negative_capacity_hides_no_other(
    cluster: FakeApiServer, tmp_path: Path, extender: Running
) -> None:
    """The API server stores it. The watch goes on, and an extender that starts then lists all."""
    hostile = kind("ResourceClaimTemplate", "hostile", {"spec": capacity("-1Gi")})
    hostile["metadata"]["namespace"] = "tenant"
    await cluster.put("resourceclaimtemplates", hostile)
    after = kind("ResourceClaimTemplate", "after", {"spec": SPEC})
    after["metadata"]["namespace"] = "team"
    await cluster.put("resourceclaimtemplates", after)
    templates = extender.service._for_claims.templates.items
    await until("the watch goes on", lambda: ("team", "after") in templates)
    folder = tmp_path / "next"
    folder.mkdir()
    async with Running(cluster, folder, claims=True) as started:
        await started.ready()
        await knows_requests(started)
        assert (await explained(started, "waits"))[0] == 200


async def test_a_pod_that_holds_a_claim_shows_where(extender: Running) -> None:
    """An allocated claim states what it requested, too."""
    code, found = await explained(extender, "runs")
    assert (code, found["state"]) == (200, "Placed")
    assert "8 GiB on GPU 0" in found["where"]


async def test_a_pod_waits_for_the_claim_of_its_extended_resource(
    cluster: FakeApiServer, extender: Running
) -> None:
    """No other node offers exclusive GPUs, so its own scheduler makes and allocates a claim."""
    selector = {"cel": {"expression": "device.driver == 'gpu.gpushare.io'"}}
    spec = {"selectors": [selector], "extendedResourceName": "aliyun.com/gpu"}
    await cluster.put("deviceclasses", kind("DeviceClass", "gpushare-exclusive", spec))
    classes = extender.service._for_claims.classes.items
    await until("the class is known", lambda: "gpushare-exclusive" in classes)
    limits = {"resources": {"limits": {"aliyun.com/gpu": "1"}}}
    whole = pod("whole", containers=[{"name": "main", **limits}], resourceClaims=[])
    await cluster.put("pods", whole)
    code, found = await explained(extender, "whole")
    assert (code, found["state"]) == (200, "Waiting")
    [refusal] = found["refusals"]
    assert [(gpu["free"], gpu["requested"]) for gpu in refusal["gpus"]] == [(7, 15)]


async def test_a_pod_that_names_very_many_claims_keeps_no_other_question_waiting(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A tenant writes the names, and each claim is a request to the API server."""
    many = pod("many")
    many["spec"]["resourceClaims"] = [
        {"name": f"c{number}", "resourceClaimName": f"c{number}"} for number in range(21)
    ]
    await cluster.put("pods", many)
    code, found = await explained(extender, "many")
    assert code == 503
    assert "21 ResourceClaims are too many, the most is 20" in found["error"]


async def test_a_pod_with_claims_of_another_driver_requests_no_gpu(
    cluster: FakeApiServer, extender: Running
) -> None:
    """404, as for every pod without GPUs."""
    other = pod("other")
    other["spec"]["resourceClaims"] = [{"name": "nic", "resourceClaimTemplateName": "nic"}]
    await cluster.put("pods", other)
    code, found = await explained(extender, "other")
    assert code == 404, found


async def test_what_if_places_a_pod_with_a_claim(cluster: FakeApiServer, extender: Running) -> None:
    """In the slice of the node, as ``gpushare whatif`` does; what claims hold counts."""
    await knows_requests(extender)
    code, found = await tried(extender, **by_claim(resourceClaimTemplateName="eight"))
    assert code == 200, found
    [item] = found["items"]
    assert not item["node"]
    assert "largest free block 7 GiB, requested 8" in str(item)
    await cluster.put("nodes", node_object("n2"))
    await cluster.put("resourceslices", resource_slice("n2"))
    await extender.knows_node("n2")
    await until("the slice is known", lambda: extender.state.ledger.node("n2").devices)
    code, found = await tried(extender, **by_claim(resourceClaimTemplateName="eight"))
    [item] = found["items"]
    assert (item["node"], item["unit"], item["gpus"]) == ("n2", "GiB", {"0": 8})


async def test_what_if_reads_a_claim_by_name(cluster: FakeApiServer, extender: Running) -> None:
    """One that exists already and that no pod uses yet."""
    await knows_requests(extender)
    claim = kind("ResourceClaim", "mine", SPEC)
    claim["metadata"] |= {"namespace": "team", "uid": "c-mine"}
    await cluster.put("resourceclaims", claim)
    code, found = await tried(extender, **by_claim(resourceClaimName="mine"))
    assert code == 200, found
    code, found = await tried(extender, **by_claim(resourceClaimName="none"))
    assert code == 400
    assert "ResourceClaim none" in found["error"]
    code, found = await tried(extender, **by_claim(resourceClaimName="a,b"))
    assert code == 400


@pytest.mark.parametrize("settings", [{}, {"claims": True, "nominate": "off"}])
async def test_what_if_names_the_settings_that_it_needs_for_claims(
    cluster: FakeApiServer, tmp_path: Path, settings: Object
) -> None:
    """An extender that reads no claims, or no DeviceClasses, does not guess."""
    async with Running(cluster, tmp_path, **settings) as plain:
        await plain.ready()
        code, found = await tried(plain, **by_claim(resourceClaimTemplateName="eight"))
    assert code == 400
    assert "extender.claims=true" in found["error"]
