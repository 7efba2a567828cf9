"""The stack of 2019 as a cluster has it: its objects under their names, and what its pods carry.

The names, rights and annotations are recorded; its programs are not: the plugin is stood in for by
``standins/original``, and the extender's Deployment has no pods, for what it decided is in the
annotations.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from environments.environment import MachineGpu
from environments.workloads import Object

NAMESPACE = "kube-system"
PLUGIN = "gpushare-device-plugin"
DAEMON = "gpushare-device-plugin-ds"
EXTENDER = "gpushare-schd-extender"
_STANDINS = Path(__file__).parents[1] / "standins"
_PROGRAM = {
    "plugin.py": _STANDINS / "original" / "plugin.py",
    "wireformat.py": _STANDINS / "wireformat.py",
}
_PLACES = {"plugin.py": "plugin.py", "wireformat.py": "standins/wireformat.py"}
_FOLDER = "/var/lib/kubelet/device-plugins"


def annotations(*, gpu: int, units: int, size: int) -> dict[str, str]:
    """What a running pod carries once extender and plugin have dealt with it."""
    return {
        "ALIYUN_COM_GPU_MEM_IDX": str(gpu),
        "ALIYUN_COM_GPU_MEM_DEV": str(size),
        "ALIYUN_COM_GPU_MEM_POD": str(units),
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1561957622483741287",
    }


def objects(*, image: str, nodes: Mapping[str, Sequence[MachineGpu]], gpu: int) -> list[Object]:
    """Everything that its manifests create.

    Args:
        image: of our device plugin, in which the stand-in runs.
        nodes: GPUs of each node.
        gpu: index that its plugin gives to containers.
    """
    units = {node: {each.uuid: each.units for each in gpus} for node, gpus in nodes.items()}
    env = {"UNITS": json.dumps(units), "GPU": str(gpu)}
    return [
        *_rights(PLUGIN, _PLUGIN_RULES),
        *_rights(EXTENDER, _EXTENDER_RULES),
        _program(),
        _daemon(image, env),
        _extender(),
    ]


def names() -> list[str]:
    """All of them, as ``kubectl delete -n kube-system`` takes them."""
    return [
        *(f"daemonset/{DAEMON}", f"deployment/{EXTENDER}", f"configmap/{DAEMON}"),
        *(
            f"{kind}/{name}"
            for kind in ("serviceaccount", "clusterrole", "clusterrolebinding")
            for name in (PLUGIN, EXTENDER)
        ),
    ]


def _rule(resources: Sequence[str], verbs: Sequence[str]) -> Object:
    return {"apiGroups": [""], "resources": list(resources), "verbs": list(verbs)}


_READ = ("get", "list", "watch")
_PLUGIN_RULES = (
    _rule(["nodes", "nodes/proxy"], _READ),
    _rule(["pods"], ["update", "patch", *_READ]),
    _rule(["nodes/status"], ["patch", "update"]),
    _rule(["events"], ["create", "patch"]),
)
_EXTENDER_RULES = (
    _rule(["nodes", "configmaps"], _READ),
    _rule(["events"], ["create", "patch"]),
    _rule(["pods"], ["update", "patch", *_READ]),
    _rule(["bindings", "pods/binding"], ["create"]),
)


def _rights(name: str, rules: Sequence[Object]) -> list[Object]:
    group = "rbac.authorization.k8s.io"
    account = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": name}
    return [
        _object("v1", "ServiceAccount", name),
        _object(f"{group}/v1", "ClusterRole", name, rules=list(rules)),
        _object(f"{group}/v1", "ClusterRoleBinding", name, roleRef=role, subjects=[account]),
    ]


def _object(version: str, kind: str, name: str, **more: Any) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


def _program() -> Object:
    return _object(
        "v1", "ConfigMap", DAEMON, data={name: file.read_text() for name, file in _PROGRAM.items()}
    )


def _workload(kind: str, name: str, pod: Object, **more: Any) -> Object:
    labels = {"app": "gpushare", "name": name}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"selector": {"matchLabels": labels}, "template": template, **more}
    return _object("apps/v1", kind, name, spec=spec)


def _daemon(image: str, env: dict[str, str]) -> Object:
    node = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    container = {
        "name": "gpushare",
        "image": image,
        "command": ["python", "/program/plugin.py"],
        "env": [node, *({"name": name, "value": value} for name, value in env.items())],
        "volumeMounts": [
            {"name": "device-plugin", "mountPath": _FOLDER},
            {"name": "program", "mountPath": "/program"},
        ],
    }
    places = [{"key": key, "path": path} for key, path in _PLACES.items()]
    pod = {
        "serviceAccountName": PLUGIN,
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"gpushare": "true"},
        "containers": [container],
        "volumes": [
            {"name": "device-plugin", "hostPath": {"path": _FOLDER}},
            {"name": "program", "configMap": {"name": DAEMON, "items": places}},
        ],
    }
    return _workload("DaemonSet", DAEMON, pod)


def _extender() -> Object:
    container = {"name": EXTENDER, "image": "registry.invalid/k8s-gpushare-schd-extender:recorded"}
    pod = {"serviceAccountName": EXTENDER, "hostNetwork": True, "containers": [container]}
    return _workload("Deployment", EXTENDER, pod, replicas=0)
