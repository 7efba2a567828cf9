"""Claims on a control plane: the webhook, a node that offers its GPUs as claims, and waiting."""

import asyncio
import base64
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from environments.apicall import ApiCalls

API = "/apis/resource.k8s.io/v1"
HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
DRIVER = "gpu.gpushare.io"
SECONDS = 180
Object = dict[str, Any]


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


def resource_slice(node: str, gpus: int = 1, gib: int = 15) -> Object:
    """What a node with equal GPUs publishes."""
    memory = {
        "default": f"{gib}Gi",
        "validRange": {"min": "1Gi", "max": f"{gib}Gi", "step": "1Gi"},
    }
    compute = {"default": "0", "validRange": {"min": "0", "max": "100", "step": "1"}}
    devices = [
        {
            "name": f"gpu-{index}",
            "allowMultipleAllocations": True,
            "attributes": {"uuid": {"string": f"GPU-{index}"}, "index": {"int": index}},
            "capacity": {
                "memory": {"value": f"{gib}Gi", "requestPolicy": memory},
                "compute": {"value": "100", "requestPolicy": compute},
            },
        }
        for index in range(gpus)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return kind("ResourceSlice", f"{node}-{DRIVER}", spec)


async def following(calls: ApiCalls, namespace: str) -> None:
    """Until the API server follows the webhook configuration, of which it hears by a watch."""
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
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


def node_object(name: str) -> Object:
    """A node that offers claims."""
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "50"}
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
    return {"metadata": {"name": name, "labels": {"gpushare/api": "claims"}}, "status": status}


async def offer(calls: ApiCalls, node: str, *, gpus: int = 1, gib: int = 15) -> None:
    """A node that offers its GPUs as claims, and the class of shares."""
    await calls.create("/api/v1/nodes", [node_object(node)])
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    shares = kind("DeviceClass", "gpushare", {"selectors": [selector]})
    await calls.create(f"{API}/deviceclasses", [shares])
    await calls.create(f"{API}/resourceslices", [resource_slice(node, gpus, gib)])


async def convert(calls: ApiCalls, port: int, bundle: bytes, teams: Sequence[str]) -> None:
    """Namespaces whose requests the webhook turns into claims, and the webhook itself."""
    labels = {"gpushare/api": "claims"}
    spaces = [{"metadata": {"name": name, "labels": labels}} for name in teams]
    await calls.create("/api/v1/namespaces", spaces)
    await calls.create(HOOKS, [configuration(port, bundle)])
    await following(calls, teams[0])


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
