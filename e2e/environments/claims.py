"""Pods with ResourceClaims, and what a node publishes for them, as plain objects."""

from collections.abc import Mapping, Sequence
from typing import Any

from environments.kubectl import Kubectl, KubectlError, Object

DRIVER = "gpu.gpushare.io"
API = "resource.k8s.io/v1"
LABEL = "gpushare/api"


def claim(
    name: str,
    namespace: str,
    gib: int,
    *,
    core: int = 0,
    count: int = 1,
    of: str = "gpushare",
    constraints: Sequence[Object] = (),
    beside: Sequence[Object] = (),
) -> Object:
    """A claim for a share of each of ``count`` GPUs, or with 0 GiB for the GPUs themselves.

    Args:
        of: name of the DeviceClass.
        beside: more requests, which the constraints cover too.
    """
    exactly: Object = {"deviceClassName": of, "count": count}
    if gib:
        exactly["capacity"] = {"requests": {"memory": f"{gib}Gi", "compute": str(core)}}
    requests = [{"name": "gpu", "exactly": exactly}, *beside]
    spec = {"devices": {"requests": requests, "constraints": list(constraints)}}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


def template(name: str, namespace: str, gib: int) -> Object:
    """A template of such claims."""
    metadata = {"name": name, "namespace": namespace}
    spec = {"spec": claim("", "", gib)["spec"]}
    return {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}


def pod(
    name: str,
    namespace: str,
    *,
    image: str,
    node: str = "",
    source: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
) -> Object:
    """A pod of one container for the cluster's own scheduler.

    Args:
        source: of its claim, such as ``{"resourceClaimName": "c"}``; ``None`` for no claim.
    """
    container: dict[str, Any] = {"name": "c0", "image": image, "imagePullPolicy": "IfNotPresent"}
    container["env"] = [{"name": key, "value": text} for key, text in (env or {}).items()]
    container["resources"] = {"limits": dict(limits)} if limits else {}
    spec: dict[str, Any] = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    if source:
        container["resources"]["claims"] = [{"name": "gpu"}]
        spec["resourceClaims"] = [{"name": "gpu", **source}]
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    metadata = {"name": name, "namespace": namespace, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def allocated(kubectl: Kubectl, namespace: str) -> list[Object]:
    """What the claims of a namespace were allocated, device by device."""
    found = kubectl.items("resourceclaims", "-n", namespace)
    return [result for each in found for result in results(each)]


def results(claim: Object) -> list[Object]:
    """The devices that a claim was allocated."""
    allocation = claim.get("status", {}).get("allocation") or {}
    found: list[Object] = allocation.get("devices", {}).get("results", [])
    return found


def devices(kubectl: Kubectl, node: str) -> list[Object]:
    """The devices that a node publishes, in order; none without a slice."""
    try:
        found = kubectl.json("get", "resourceslice", f"{node}-{DRIVER}")
    except KubectlError:
        return []
    listed: list[Object] = found["spec"].get("devices", [])
    return listed
