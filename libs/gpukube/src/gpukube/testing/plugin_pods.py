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
    kubelet: str = "/var/lib/kubelet",
) -> dict[str, Any]:
    """A pod with what readers of its documents need: node, labels, port and scheme of metrics.

    Args:
        kubelet: root of kubelet's directories; empty for a pod that mounts none of them.
    """
    probe = {"httpGet": {"scheme": scheme, "path": "/readyz", "port": "metrics"}}
    ports = [{"name": "metrics", "containerPort": port}]
    labels = {"app.kubernetes.io/component": "device-plugin"}
    uid = f"{namespace}-{name}"
    mounted = {"name": "device-plugins", "hostPath": {"path": f"{kubelet}/device-plugins"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "labels": labels},
        "spec": {
            "nodeName": node,
            "volumes": [mounted] if kubelet else [],
            "containers": [{"name": "device-plugin", "ports": ports, "readinessProbe": probe}],
        },
        "status": {"phase": phase},
    }
