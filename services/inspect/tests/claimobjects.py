"""ResourceSlices, ResourceClaims and what else a cluster with claims has, as JSON objects."""

from collections.abc import Mapping, Sequence
from typing import Any

API = "resource.k8s.io/v1"
DRIVER = "gpu.gpushare.io"


def device(index: int, gib: int, *, taint: str = "", product: str = "Tesla T4") -> dict[str, Any]:
    """A GPU with consumable capacity."""
    policy = {"default": f"{gib}Gi", "validRange": {"min": "1Gi", "max": f"{gib}Gi", "step": "1Gi"}}
    found: dict[str, Any] = {
        "name": f"gpu-{index}",
        "allowMultipleAllocations": True,
        "attributes": {
            "uuid": {"string": f"GPU-{index}"},
            "index": {"int": index},
            "productName": {"string": product},
            "isolation": {"string": "mps"},
        },
        "capacity": {
            "memory": {"value": f"{gib}Gi", "requestPolicy": policy},
            "compute": {
                "value": "100",
                "requestPolicy": {
                    "default": "0",
                    "validRange": {"min": "0", "max": "100", "step": "1"},
                },
            },
        },
    }
    if taint:
        key = f"{DRIVER}/unhealthy"
        found["taints"] = [{"key": key, "value": "true", "effect": taint}]
    return found


def resource_slice(node: str, devices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The slice of a node."""
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{DRIVER}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": list(devices),
        },
    }


def allocated(node: str, index: int, memory: str = "", compute: str = "0") -> dict[str, Any]:
    """One result of an allocation: a share, or without an amount of memory the whole GPU."""
    found = {"request": "gpu", "driver": DRIVER, "pool": node, "device": f"gpu-{index}"}
    if memory:
        found |= {"shareID": "0d4e-1", "consumedCapacity": {"memory": memory, "compute": compute}}
    return found


def request(memory: str = "", compute: str = "", **fields: Any) -> dict[str, Any]:
    """The specification of a claim with one request."""
    requests = {"memory": memory, "compute": compute}
    exactly: dict[str, Any] = {"deviceClassName": fields.pop("device_class", "gpushare")}
    if memory:
        exactly["capacity"] = {"requests": {key: it for key, it in requests.items() if it}}
    constraints = fields.pop("constraints", [])
    exactly |= fields
    devices: dict[str, Any] = {"requests": [{"name": "gpu", "exactly": exactly}]}
    return {"devices": devices | ({"constraints": constraints} if constraints else {})}


def claim(
    name: str,
    *results: Mapping[str, Any],
    namespace: str = "default",
    pods: Sequence[str] = (),
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A claim; allocated where there are results."""
    users = [{"resource": "pods", "name": pod, "uid": f"uid-{namespace}-{pod}"} for pod in pods]
    status: dict[str, Any] = {"reservedFor": users} if users else {}
    if results:
        status["allocation"] = {"devices": {"results": list(results)}}
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-claim-{namespace}-{name}"},
        "spec": dict(spec or request("7Gi")),
        "status": status,
    }


def template(name: str, spec: Mapping[str, Any], namespace: str = "default") -> dict[str, Any]:
    """A claim template."""
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-template-{name}"},
        "spec": {"spec": dict(spec)},
    }


def device_class(name: str = "gpushare", *expressions: str) -> dict[str, Any]:
    """A class that selects the devices of the driver."""
    selectors = expressions or (f"device.driver == '{DRIVER}' && device.allowMultipleAllocations",)
    return {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": each}} for each in selectors]},
    }


def exclusive_class() -> dict[str, Any]:
    """The class by which kube-scheduler makes claims for exclusive GPUs."""
    made = device_class("gpushare-exclusive")
    made["spec"]["extendedResourceName"] = "aliyun.com/gpu"
    return made


def uses(claim_name: str = "", *, template_name: str = "") -> dict[str, Any]:
    """The specification of a pod that uses a claim."""
    named = {"resourceClaimName": claim_name} if claim_name else {}
    named |= {"resourceClaimTemplateName": template_name} if template_name else {}
    return {"resourceClaims": [{"name": "gpu", **named}]}
