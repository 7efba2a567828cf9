"""Old manifests as claims on a real API server, with the real scheduler and claim controller.

Part of ``make e2e``: the programs come from the same cache as the kind cluster's.
"""

import asyncio
import base64
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from planes import Source, control_plane, plane  # noqa: F401 - the fixture of that name
from running import Running, until

from environments.apicall import ApiCalls
from environments.controlplane import ControlPlane
from environments.processes import ChildProcess
from gpucore.units import NodeName
from gpucore.wire.names import ISOLATION
from gpukube.testing.certificates import make_certificate

API = "/apis/resource.k8s.io/v1"
HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
DRIVER = "gpu.gpushare.io"
SCHEDULER = "default-scheduler"
SECONDS = 180
NODE = NodeName("claims-1")
Object = dict[str, Any]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
async def calls(plane: ControlPlane) -> AsyncIterator[ApiCalls]:  # noqa: F811
    """A session with the API server."""
    async with ApiCalls.to(plane) as found:
        yield found


@pytest.fixture
def controller(plane: ControlPlane) -> Iterator[ChildProcess]:  # noqa: F811
    """The controller that makes claims of templates."""
    process = claim_controller(plane)
    yield process
    process.stop()


@pytest.fixture
async def stack(
    plane: ControlPlane,  # noqa: F811
    calls: ApiCalls,
    controller: ChildProcess,
    tmp_path: Path,
) -> AsyncIterator[Running]:
    """Extender with webhook, the scheduler, and the controller."""
    folder = tmp_path / "certificates"
    make_certificate(folder, "webhook")
    options = {
        "webhook_port": 0,
        "webhook_certificates": folder,
        "claims": True,
        "claims_convert": True,
    }
    scheduler = await asyncio.to_thread(plane.scheduler, None, name=SCHEDULER)
    try:
        async with Running(Source(plane), tmp_path, **options) as running:  # type: ignore[arg-type]
            await running.ready()
            await until("the webhook listens", lambda: running.service.listeners.admission.started)
            bundle = (folder / "tls.crt").read_bytes()
            await prepare(calls, running.service.listeners.admission.port, bundle)
            try:
                yield running
            finally:
                await clear(calls)
    finally:
        scheduler.stop()


@contextmanager
def stopped(process: ChildProcess) -> Iterator[None]:
    """The process does nothing meanwhile."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def claim_controller(plane: ControlPlane) -> ChildProcess:  # noqa: F811
    """kube-controller-manager with the one controller that makes claims and frees them."""
    program = plane._programs / "kube-controller-manager"
    flags = [
        f"--kubeconfig={plane.kubeconfig}",
        "--controllers=resourceclaim-controller",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=500",
        "--kube-api-burst=500",
    ]
    return plane.start_program("claim-controller", [program, *flags])


def node_object(name: str) -> Object:
    """A node that offers claims."""
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "50"}
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
    return {"metadata": {"name": name, "labels": {"gpushare/api": "claims"}}, "status": status}


async def prepare(calls: ApiCalls, port: int, bundle: bytes) -> None:
    """A node with one GPU of 15 GiB as claims, the class, the namespaces and the webhook."""
    await calls.create("/api/v1/nodes", [node_object(NODE)])
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    await calls.create(
        f"{API}/deviceclasses", [kind("DeviceClass", "gpushare", {"selectors": [selector]})]
    )
    await calls.create(f"{API}/resourceslices", [resource_slice()])
    namespaces = [
        {"metadata": {"name": "team", "labels": {"gpushare/api": "claims"}}},
        {"metadata": {"name": "other"}},
    ]
    for each in namespaces:
        await calls.call("POST", "/api/v1/namespaces", each, fine=(201, 409))
    await calls.create(HOOKS, [configuration(port, bundle)])
    await following(calls)


async def clear(calls: ApiCalls) -> None:
    """Delete what a test leaves, so that the next one begins with an empty cluster."""
    claims = f"{API}/namespaces/team/resourceclaims"
    pods = [f"/api/v1/namespaces/{each}/pods?gracePeriodSeconds=0" for each in ("team", "other")]
    for path in (f"{HOOKS}/claims", *pods, claims):  # no garbage collector runs here
        await calls.call("DELETE", path)
    async with asyncio.timeout(SECONDS):
        while (await read(calls, claims))["items"]:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
    for path in (f"{API}/resourceslices", f"{API}/deviceclasses", "/api/v1/nodes"):
        await calls.call("DELETE", path)


def configuration(port: int, bundle: bytes) -> Object:
    """The chart's second webhook, by an address of this machine."""
    url = f"https://127.0.0.1:{port}/admit-claims"
    selected = {"key": "gpushare/api", "operator": "In", "values": ["claims"]}
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods"],
        "operations": ["CREATE"],
    }
    hook = {
        "name": "claims.pods.gpushare.io",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "clientConfig": {"url": url, "caBundle": base64.b64encode(bundle).decode()},
        "rules": [rule],
        "namespaceSelector": {"matchExpressions": [selected]},
    }
    return {"metadata": {"name": "claims"}, "webhooks": [hook]}


def kind(name_of_kind: str, name: str, spec: Object) -> Object:
    """An object of the API of claims."""
    head = {"apiVersion": "resource.k8s.io/v1", "kind": name_of_kind}
    return head | {"metadata": {"name": name}, "spec": spec}


def resource_slice(node: str = NODE, *, isolation: str = "none") -> Object:
    """One GPU."""
    memory = {"default": "15Gi", "validRange": {"min": "1Gi", "max": "15Gi", "step": "1Gi"}}
    compute = {"default": "0", "validRange": {"min": "0", "max": "100", "step": "1"}}
    device = {
        "name": "gpu-0",
        "allowMultipleAllocations": True,
        "attributes": {
            "uuid": {"string": "GPU-0"},
            "index": {"int": 0},
            "isolation": {"string": isolation},
        },
        "capacity": {
            "memory": {"value": "15Gi", "requestPolicy": memory},
            "compute": {"value": "100", "requestPolicy": compute},
        },
    }
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": [device]}
    return kind("ResourceSlice", f"{node}-{DRIVER}", spec)


def pod(name: str, units: int) -> Object:
    """A pod as of 2019."""
    limits = {"aliyun.com/gpu-mem": str(units)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}],
        },
    }


async def following(calls: ApiCalls) -> None:
    """Until the API server follows the webhook configuration, of which it hears by a watch."""
    path = "/api/v1/namespaces/team/pods?dryRun=All"
    async with asyncio.timeout(SECONDS):
        while not await converted(calls, path):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


async def converted(calls: ApiCalls, path: str) -> bool:
    """A probe is converted."""
    return "resourceClaims" in (await create(calls, path, pod("probe", 1)))["spec"]


async def create(calls: ApiCalls, path: str, body: Object) -> Object:
    """The object as it was made."""
    made: Object = msgspec.json.decode(await calls.call("POST", path, body))
    return made


async def read(calls: ApiCalls, path: str) -> Object:
    """An object or a list."""
    found: Object = msgspec.json.decode(await calls.call("GET", path))
    return found


async def waited(calls: ApiCalls, path: str, true: Callable[[Object], object]) -> Object:
    """Until something is true of an object."""
    async with asyncio.timeout(SECONDS):
        while not true(found := await read(calls, path)):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
    return found


async def test_an_old_manifest_becomes_an_allocated_claim(calls: ApiCalls, stack: Running) -> None:
    """From ``aliyun.com/gpu-mem: 7`` to a share of a GPU, without extender; and dry runs."""
    pods = "/api/v1/namespaces/team/pods"
    templates = f"{API}/namespaces/team/resourceclaimtemplates"
    dry = await create(calls, f"{pods}?dryRun=All", pod("dry", 7))
    assert dry["spec"]["resourceClaims"][0]["resourceClaimTemplateName"].startswith("gpushare-")
    assert (await read(calls, templates))["items"] == []
    for name, units in (("a", 7), ("b", 8)):
        made = await create(calls, pods, pod(name, units))
        assert "aliyun.com/gpu-mem" not in str(made["spec"]["containers"][0]["resources"])
        await waited(calls, f"{pods}/{name}", lambda found: found["spec"].get("nodeName"))
    claims = (await read(calls, f"{API}/namespaces/team/resourceclaims"))["items"]
    consumed = {
        claim["status"]["reservedFor"][0]["name"]: claim["status"]["allocation"]["devices"][
            "results"
        ][0]["consumedCapacity"]["memory"]
        for claim in claims
    }
    assert consumed == {"a": "7Gi", "b": "8Gi"}
    info = stack.state.ledger
    await until("the extender's ledger has both", lambda: info.node(NODE).used_units == 15)
    assert info.node(NODE).overfull == ()
    await create(calls, pods, pod("c", 1))
    message = await waited(calls, f"{pods}/c", refused)
    assert "cannot allocate all claims" in refused(message)
    await calls.call("DELETE", f"{pods}/a")
    await waited(calls, f"{pods}/c", lambda found: found["spec"].get("nodeName"))
    await create(calls, "/api/v1/namespaces/other/pods", pod("plain", 7))
    plain = await read(calls, "/api/v1/namespaces/other/pods/plain")
    assert "resourceClaims" not in plain["spec"]
    status, text = await stack.get("/metrics")
    assert status == 200
    assert f'node="{NODE}"' in text


async def test_an_isolation_mode_of_an_old_manifest_selects_the_gpus_that_have_it(
    calls: ApiCalls, stack: Running
) -> None:
    """A GPU that has more than the mode is one of them; the real allocator reads the selector."""
    path = "/api/v1/namespaces/team/pods"
    wanted = pod("isolated", 3)
    wanted["metadata"]["annotations"] = {ISOLATION: "mps"}
    await create(calls, path, wanted)
    await waited(calls, f"{path}/isolated", refused)
    stronger = NodeName("claims-2")
    await calls.create("/api/v1/nodes", [node_object(stronger)])
    await calls.create(f"{API}/resourceslices", [resource_slice(stronger, isolation="driver+mps")])
    bound = await waited(calls, f"{path}/isolated", lambda found: found["spec"].get("nodeName"))
    assert bound["spec"]["nodeName"] == stronger
    claims = (await read(calls, f"{API}/namespaces/team/resourceclaims"))["items"]
    selectors = claims[0]["spec"]["devices"]["requests"][0]["exactly"]["selectors"]
    assert ' in ["mps", "driver+mps"]' in selectors[0]["cel"]["expression"]


def refused(found: Object) -> str:
    """The message of a scheduler that found no node."""
    conditions = found.get("status", {}).get("conditions", ())
    return next((each["message"] for each in conditions if each["status"] == "False"), "")


async def test_the_policy_of_the_extender_chooses_the_node_of_a_claim(
    calls: ApiCalls, stack: Running, controller: ChildProcess
) -> None:
    """kube-scheduler alone spreads pods over nodes; nominated ones fill a node by binpack.

    The claim is made after the nomination, as it usually is: otherwise the scheduler might have
    chosen before. Nothing is reserved any more once the claims are allocated.
    """
    others = [f"claims-{number}" for number in range(2, 6)]
    await calls.create("/api/v1/nodes", map(node_object, others))
    await calls.create(f"{API}/resourceslices", map(resource_slice, others))
    ledger, pods = stack.state.ledger, "/api/v1/namespaces/team/pods"
    for name in others:
        await until(
            f"the extender knows {name}",
            lambda name=name: (found := ledger.node(name)) and found.total_units,
        )
    nodes = []
    for number in range(5):
        path = f"{pods}/packed-{number}"
        with stopped(controller):
            await create(calls, pods, pod(f"packed-{number}", 3))
            await waited(calls, path, lambda found: found["status"].get("nominatedNodeName"))
        bound = await waited(calls, path, lambda found: found["spec"].get("nodeName"))
        nodes.append(bound["spec"]["nodeName"])
    assert len(set(nodes)) == 1
    full = ledger.node(nodes[0])
    await until("the ledger has the claims alone", lambda: len(full.allocations) == 5)
    assert (full.used_units, full.overfull) == (15, ())
    assert ledger.claims() == set(full.allocations)
