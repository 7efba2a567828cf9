"""Kubernetes objects with the fields that commands read, for a file that leaves the cluster.

Secrets are often in environment values, arguments, probes and annotations. So containers, volumes
and annotations keep only what is listed here; a reader of a further field adds it.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpucore.wire.names import (
    ENV_VISIBLE_DEVICES,
    GPU_GROUP,
    GPU_VISIBLE,
    KAI_CONTAINER,
    NODE_TOPOLOGY,
    NODE_TYPE,
    NOTEBOOK_LAST_ACTIVITY,
    NOTEBOOK_STOPPED,
    Names,
)
from gpuinspect.cluster.extenders import EXTENDER, PROGRAMS
from gpuinspect.cluster.kubeschedulers import KUBE_SCHEDULER, is_kube_scheduler
from gpukube.plugin_pods import COMPONENT

_Object = Mapping[str, Any]
_ANNOTATIONS: Final = frozenset(
    {GPU_GROUP, GPU_VISIBLE, NODE_TOPOLOGY, NODE_TYPE, NOTEBOOK_LAST_ACTIVITY, NOTEBOOK_STOPPED}
)
_PREFIXES: Final = (
    "gpushare/",
    "gpushare.alibabacloud.com/",
    "scheduler.framework.gpushare.",
    KAI_CONTAINER,
)
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_KEPT: Final = (
    "name",
    "image",
    "resources",
    "restartPolicy",
    "ports",
    "securityContext",
    "volumeMounts",
)
_FLAGS: Final = ("command", "args")
"""Kept of the extender's container, whose flags decide what commands predict, and of the cluster's
own kube-scheduler, which doctor checks."""
_VOLUME_KEYS: Final = {"hostPath": ("path",), "configMap": ("name",)}
"""Of other kinds of volume only the kind is kept, which can keep a pod from a node."""


def redacted(item: _Object, names: Names) -> dict[str, Any]:
    """The object without what no command reads."""
    found = {**item, "metadata": _metadata(item.get("metadata") or {}, names)}
    spec = item.get("spec")
    if isinstance(spec, dict) and "containers" in spec:
        found["spec"] = _spec(spec, _program(found["metadata"]))
    return found


def _program(metadata: _Object) -> str:
    """Name of the container whose flags are kept; empty for none."""
    labels = metadata.get("labels") or {}
    if is_kube_scheduler(metadata.get("namespace", ""), labels):
        return KUBE_SCHEDULER
    return EXTENDER if labels.get(COMPONENT) in PROGRAMS else ""


def _metadata(metadata: _Object, names: Names) -> dict[str, Any]:
    found = {key: value for key, value in metadata.items() if key != "managedFields"}
    if "annotations" in metadata:
        kept = (*_PREFIXES, f"{names.prefix}_", f"{names.domain}/")
        found["annotations"] = {
            key: text
            for key, text in (metadata["annotations"] or {}).items()
            if key in _ANNOTATIONS or key.startswith(kept)
        }
    return found


def _spec(spec: _Object, program: str) -> dict[str, Any]:
    found = dict(spec)
    for key in _CONTAINERS:
        if key in spec:
            boxes = spec[key] or ()
            found[key] = [_container(box, program) for box in boxes]
    if "volumes" in spec:
        found["volumes"] = [_volume(volume) for volume in spec["volumes"] or ()]
    return found


def _container(box: _Object, program: str) -> dict[str, Any]:
    flags = _FLAGS if program and box.get("name") == program else ()
    found = {key: box[key] for key in (*_KEPT, *flags) if key in box}
    found["env"] = [_variable(each) for each in box.get("env") or ()]
    if "envFrom" in box:
        sources = box["envFrom"] or ()
        found["envFrom"] = [{"prefix": each.get("prefix", "")} for each in sources]
    request = (box.get("readinessProbe") or {}).get("httpGet") or {}
    if "scheme" in request:  # that of the device plugin's metrics
        found["readinessProbe"] = {"httpGet": {"scheme": request["scheme"]}}
    return found


def _variable(variable: _Object) -> _Object:
    """Names of variables matter to the checks, values may be secret; a list of GPUs is not."""
    name = variable.get("name", "")
    return variable if name == ENV_VISIBLE_DEVICES else {"name": name}


def _volume(volume: _Object) -> dict[str, Any]:
    return {key: value if key == "name" else _source(key, value) for key, value in volume.items()}


def _source(kind: str, source: _Object | None) -> dict[str, Any]:
    found = source or {}
    return {key: found[key] for key in _VOLUME_KEYS.get(kind, ()) if key in found}
