"""What arena's serving commands leave in a cluster, by their names, labels, variables and limits.

Written from its observed objects; the values of kind, share and labels are those of its charts.
"""

from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]

KINDS = {
    "tensorflow": ("tf-serving", "tensorflow-serving"),
    "triton": ("triton-serving", "nvidia-triton-server"),
    "custom": ("custom-serving", "custom-serving"),
}
"""What was requested -> label of the kind, and of the app."""
VERSION = "202611210900"


def labels(server: str, name: str) -> dict[str, str]:
    """Of the Deployment, and of its pods."""
    kind, app = KINDS[server]
    return {
        "heritage": "Helm",
        "release": f"{name}-{VERSION}",
        "chart": f"{app}-0.4.0",
        "app": app,
        "serviceName": name,
        "servingName": name,
        "servingType": kind,
        "servingVersion": VERSION,
    }


def template(limits: Mapping[str, int]) -> Object:
    """Of the pods, as an API server has it: arena writes amounts as numbers, which become texts."""
    field = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    container = {
        "name": "serving",
        "image": "tensorflow/serving:latest-gpu",
        "command": ["sh", "-c"],
        "env": [{"name": "ARENA_NODE_NAME", "valueFrom": field}],
        "resources": {"limits": {name: str(amount) for name, amount in limits.items()}},
    }
    return {"containers": [container]}


def deployment(server: str, name: str, limits: Mapping[str, int], *, replicas: int = 1) -> Object:
    """As the API server has it once it runs."""
    marks = labels(server, name)
    return {
        "kind": "Deployment",
        "metadata": {
            "name": f"{marks['release']}-{marks['app']}",
            "namespace": "default",
            "labels": marks,
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {name: marks[name] for name in ("release", "app")}},
            "template": {"spec": template(limits)},
        },
        "status": {"availableReplicas": replicas},
    }


def service(server: str, name: str) -> Object:
    """In front of its pods."""
    meta = deployment(server, name, {})["metadata"]
    ports = [{"name": "grpc-serving", "port": 8500}, {"name": "http-serving", "port": 8501}]
    return {"metadata": meta, "spec": {"clusterIP": "10.0.0.7", "ports": ports}}


def pod(
    server: str,
    name: str,
    limits: Mapping[str, int],
    *,
    node: str = "",
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """One of its pods, placed where ``node`` names one."""
    marks = labels(server, name)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{marks['release']}-{marks['app']}-7446c98547-qmtrn",
            "namespace": "default",
            "uid": f"uid-{server}-{name}",
            "labels": marks,
            "annotations": dict(annotations or {}),
        },
        "spec": template(limits) | ({"nodeName": node} if node else {}),
        "status": {
            "phase": "Running",
            "containerStatuses": [{"ready": True, "restartCount": 2}],
        },
    }
