"""The stand-in for a DRA driver of network devices, as objects of the cluster."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from environments.workloads import Object

NAME: Final = "nics"
DRIVER: Final = "nics.example.com"
_STANDINS = Path(__file__).parents[1] / "standins"
_PLACES = {
    "driver.py": _STANDINS / "nicdriver" / "driver.py",
    "wireformat.py": _STANDINS / "wireformat.py",
}
_MOUNTS = {
    "registry": "/var/lib/kubelet/plugins_registry",
    "plugins": "/var/lib/kubelet/plugins",
}


def objects(
    *, image: str, namespace: str, node: str, attribute: str, numbers: Sequence[int]
) -> list[Object]:
    """Its DeviceClass and ResourceSlice, which are the cluster's, and its program and pod.

    Args:
        image: of our device plugin, in which the stand-in runs.
        attribute: name of the attribute that differs between the NICs.
        numbers: its value for each NIC of the node.
    """
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    program = {name: path.read_text() for name, path in _PLACES.items()}
    return [
        _object(
            "resource.k8s.io/v1", "DeviceClass", {"name": NAME}, spec={"selectors": [selector]}
        ),
        _object(
            "resource.k8s.io/v1",
            "ResourceSlice",
            {"name": f"{node}-{DRIVER}"},
            spec=_slice(node, attribute, numbers),
        ),
        _object("v1", "ConfigMap", {"name": NAME, "namespace": namespace}, data=program),
        _object(
            "v1", "Pod", {"name": NAME, "namespace": namespace}, spec=_spec(image=image, node=node)
        ),
    ]


def _object(version: str, kind: str, metadata: Object, **more: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


def _slice(node: str, attribute: str, numbers: Sequence[int]) -> Object:
    devices = [
        {"name": f"nic-{index}", "attributes": {attribute: {"int": number}}}
        for index, number in enumerate(numbers)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}


def _spec(*, image: str, node: str) -> Object:
    places = [
        {"key": "driver.py", "path": "driver.py"},
        {"key": "wireformat.py", "path": "standins/wireformat.py"},
    ]
    mounts = [{"name": name, "mountPath": path} for name, path in _MOUNTS.items()]
    container = {
        "name": NAME,
        "image": image,
        "command": ["python", "/program/driver.py"],
        "env": [{"name": "DRIVER", "value": DRIVER}],
        "volumeMounts": [*mounts, {"name": "program", "mountPath": "/program"}],
    }
    paths = [{"name": name, "hostPath": {"path": path}} for name, path in _MOUNTS.items()]
    return {
        "nodeName": node,
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [*paths, {"name": "program", "configMap": {"name": NAME, "items": places}}],
    }
