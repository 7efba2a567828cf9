"""ResourceClaims on a control plane: slices as the node agent encodes them, claims, pods."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from environments.apicall import ApiCalls
from environments.controlplane import ControlPlane
from gpucore.wire.claim.devices import SliceDevice
from gpucore.wire.claim.resource_slices import ResourceSlice, encode_slice
from gpucore.wire.names import CLAIM_DRIVER

API: Final = "/apis/resource.k8s.io/v1"
CLAIMS: Final = f"{API}/namespaces/default/resourceclaims"
PODS: Final = "/api/v1/namespaces/default/pods"
SECONDS: Final = 60
GIB: Final = 16
"""Memory of each GPU."""
Object = dict[str, Any]


def claim_controller(plane: ControlPlane) -> Any:
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


def node(name: str) -> Object:
    """A ready node."""
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "500"}
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
    return {"metadata": {"name": name}, "status": status}


def gpu(index: int, **more: Any) -> SliceDevice:
    """A GPU as the node agent publishes it."""
    return SliceDevice(
        f"gpu-{index}",
        index=index,
        uuid=f"GPU-{index}",
        memory_mib=GIB * 1024,
        step_mib=1024,
        **more,
    )


def gpus(name: str, devices: Iterable[SliceDevice]) -> Object:
    """The ResourceSlice of a node."""
    return encode_slice(
        ResourceSlice(f"{name}-{CLAIM_DRIVER}", CLAIM_DRIVER, name, name, tuple(devices))
    )


def device_class(name: str, driver: str = CLAIM_DRIVER) -> Object:
    """A class of all devices of a driver."""
    selector = {"cel": {"expression": f"device.driver == '{driver}'"}}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
    return head | {"metadata": {"name": name}, "spec": {"selectors": [selector]}}


def request(name: str = "gpu", gib: int = 0, count: int = 1, of: str = "gpushare") -> Object:
    """One request of a claim; without an amount of memory it takes whole devices."""
    exactly: Object = {"deviceClassName": of, "count": count}
    if gib:
        exactly["capacity"] = {"requests": {"memory": f"{gib}Gi"}}
    return {"name": name, "exactly": exactly}


def claim(name: str, *requests: Object, constraints: Iterable[Object] = ()) -> Object:
    """A ResourceClaim."""
    devices = {"requests": list(requests), "constraints": list(constraints)}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return head | {"metadata": {"name": name}, "spec": {"devices": devices}}


def pod(name: str) -> Object:
    """A pod that uses the claim of its name."""
    container = {"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
    }
    return {"metadata": {"name": name}, "spec": spec}


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
