"""Pods of the device plugin, as its DaemonSet creates them."""

from typing import Any


def plugin_pod(
    name: str,
    node: str,
    *,
    namespace: str = "gpushare",
    scheme: str = "HTTP",
    port: int = 9395,
    phase: str = "Running",
) -> dict[str, Any]:
    """A pod with what readers of its documents need: node, labels, port and scheme of metrics."""
    probe = {"httpGet": {"scheme": scheme, "path": "/readyz", "port": "metrics"}}
    ports = [{"name": "metrics", "containerPort": port}]
    labels = {"app.kubernetes.io/component": "device-plugin"}
    uid = f"{namespace}-{name}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "labels": labels},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "device-plugin", "ports": ports, "readinessProbe": probe}],
        },
        "status": {"phase": phase},
    }
