"""NVIDIA's own device plugin on shared nodes: how to hold it off, and how to give it back.

Two device plugins on one node would both allocate its GPUs. A DaemonSet of NVIDIA's plugin gets a
node affinity that excludes the labels of shared nodes; what it had before is kept in an annotation.
The GPU operator would undo that, so its plugin is held off by the operator's own node label. Each
change is a JSON patch that applies to the version that was read, or not at all.
"""

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpucore.wire.json_patches import ANNOTATIONS, entry, set_entries
from gpucore.wire.names import (
    LABEL_SHARE,
    LABEL_TOPOLOGY,
    NVIDIA_DEPLOY_PLUGIN,
    NVIDIA_HELD_AFFINITY,
    NVIDIA_HELD_LABEL,
)

NVIDIA_GPU: Final = "nvidia.com/gpu"
_CONTAINER: Final = "nvidia-device-plugin"
"""Names of the plugin's container in NVIDIA's manifest, chart and operator."""
_OPERATOR: Final = "ClusterPolicy"
_EXCLUDED: Final = tuple(
    {"key": label, "operator": "NotIn", "values": ["true"]}
    for label in (LABEL_SHARE, LABEL_TOPOLOGY)
)
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_AFFINITY: Final = "/spec/template/spec/affinity"

_NONE: Final = object()
_UNREADABLE: Final = (KeyError, ValueError, RecursionError)
"""What a text of others may raise where it is read, or compared."""

Object = dict[str, Any]


class Patch(msgspec.Struct, frozen=True):
    """One change of one object.

    Attributes:
        path: of the object at the API server.
        title: what happens, for a person.
        operations: of a JSON patch.
    """

    path: str
    title: str
    operations: tuple[Object, ...]


def hold(daemon_sets: Iterable[Object], nodes: Sequence[Object]) -> Iterator[Patch]:
    """Keep NVIDIA's plugin off nodes that are labelled to be shared, where it is not yet."""
    for item in filter(_is_plugin, daemon_sets):
        if _is_operators(item):
            yield from (_label_off(node) for node in nodes if _shared(node) and not _off(node))
        elif NVIDIA_HELD_AFFINITY not in _annotations(item):
            yield _affinity_off(item)


def release(daemon_sets: Iterable[Object], nodes: Iterable[Object]) -> Iterator[Patch]:
    """Restore what :func:`hold` changed, except what was changed since."""
    held = (item for item in daemon_sets if NVIDIA_HELD_AFFINITY in _annotations(item))
    yield from (_affinity_back(item) for item in held if _is_as_left(item))
    kinds = (str, type(None))
    labelled = (node for node in nodes if isinstance(_kept(node, NVIDIA_HELD_LABEL), kinds))
    yield from map(_label_back, labelled)


def changed_since(daemon_sets: Iterable[Object]) -> Iterator[str]:
    """DaemonSets that :func:`release` leaves alone: their affinity is not the one that was made."""
    held = (item for item in daemon_sets if NVIDIA_HELD_AFFINITY in _annotations(item))
    yield from (f"DaemonSet {_called(item)}" for item in held if not _is_as_left(item))


def static_plugins(pods: Iterable[Object]) -> Iterator[str]:
    """Plugins that kubelet runs from a file of its node, where no API object can hold them."""
    for pod in pods:
        owners = pod["metadata"].get("ownerReferences", ())
        if _runs_plugin(pod["spec"]) and any(each["kind"] == "Node" for each in owners):
            yield f"{_called(pod)} on {pod['spec'].get('nodeName', '?')}"


def holders(pods: Iterable[Object], nodes: Iterable[Object]) -> Iterator[str]:
    """Pods on shared nodes that were given GPUs by NVIDIA's plugin and still have them."""
    shared = {node["metadata"]["name"] for node in nodes if _shared(node)}
    for pod in pods:
        ended = pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        if pod["spec"].get("nodeName") in shared and not ended and _has_gpus(pod["spec"]):
            yield f"{_called(pod)} on {pod['spec']['nodeName']}"


def without_shared_nodes(affinity: Mapping[str, Any] | None) -> Object:
    """The affinity that adds to every alternative that the node is not labelled to be shared."""
    found: Object = copy.deepcopy(dict(affinity or {}))
    node_affinity = found.setdefault("nodeAffinity", {})
    required = node_affinity.get(_REQUIRED)
    if not required:
        node_affinity[_REQUIRED] = {"nodeSelectorTerms": [{"matchExpressions": [*_EXCLUDED]}]}
        return found
    # An empty alternative matches no node; with expressions it would match some.
    for term in filter(None, required["nodeSelectorTerms"]):
        term["matchExpressions"] = [*term.get("matchExpressions", ()), *_EXCLUDED]
    return found


def _affinity_off(item: Object) -> Patch:
    before = item["spec"]["template"]["spec"].get("affinity")
    return Patch(
        _path(item),
        f"DaemonSet {_called(item)}: exclude it from nodes labelled {LABEL_SHARE} or "
        f"{LABEL_TOPOLOGY}",
        (
            *_of_this_version(item),
            {"op": "add", "path": _AFFINITY, "value": without_shared_nodes(before)},
            *set_entries(
                ANNOTATIONS, _annotations(item), {NVIDIA_HELD_AFFINITY: json.dumps(before)}
            ),
        ),
    )


def _affinity_back(item: Object) -> Patch:
    before = _kept(item, NVIDIA_HELD_AFFINITY)
    back: Object = {"op": "remove", "path": _AFFINITY}
    if before is not None:
        back = {"op": "replace", "path": _AFFINITY, "value": before}
    return Patch(
        _path(item),
        f"DaemonSet {_called(item)}: restore its affinity",
        (*_of_this_version(item), back, _unannotated(NVIDIA_HELD_AFFINITY)),
    )


def _label_off(node: Object) -> Patch:
    before = _labels(node).get(NVIDIA_DEPLOY_PLUGIN)
    path = entry("/metadata/labels", NVIDIA_DEPLOY_PLUGIN)
    return Patch(
        _path(node),
        f"Node {node['metadata']['name']}: label {NVIDIA_DEPLOY_PLUGIN}=false",
        (
            *_of_this_version(node),
            {"op": "add", "path": path, "value": "false"},
            *set_entries(ANNOTATIONS, _annotations(node), {NVIDIA_HELD_LABEL: json.dumps(before)}),
        ),
    )


def _label_back(node: Object) -> Patch:
    before = _kept(node, NVIDIA_HELD_LABEL)
    path = entry("/metadata/labels", NVIDIA_DEPLOY_PLUGIN)
    operations = [*_of_this_version(node)]
    if before is not None:
        operations.append({"op": "add", "path": path, "value": before})
    elif NVIDIA_DEPLOY_PLUGIN in _labels(node):
        operations.append({"op": "remove", "path": path})
    operations.append(_unannotated(NVIDIA_HELD_LABEL))
    title = f"Node {node['metadata']['name']}: the label {NVIDIA_DEPLOY_PLUGIN} that it had"
    return Patch(_path(node), title, tuple(operations))


def _is_as_left(item: Object) -> bool:
    """The affinity is the one that :func:`hold` makes of what it wrote down."""
    before = _kept(item, NVIDIA_HELD_AFFINITY)
    found = item["spec"]["template"]["spec"].get("affinity")
    try:
        return bool(found == without_shared_nodes(before))
    except (*_UNREADABLE, AttributeError, TypeError):  # anybody may annotate their own
        return False


def _kept(item: Object, annotation: str) -> Any:
    """The state that :func:`hold` recorded; :data:`_NONE` where none can be read."""
    try:
        return json.loads(_annotations(item)[annotation])
    except _UNREADABLE:
        return _NONE


def _of_this_version(item: Object) -> tuple[Object, ...]:
    version = item["metadata"]["resourceVersion"]
    return ({"op": "test", "path": "/metadata/resourceVersion", "value": version},)


def _unannotated(name: str) -> Object:
    return {"op": "remove", "path": entry(ANNOTATIONS, name)}


def _path(item: Object) -> str:
    metadata = item["metadata"]
    if "namespace" not in metadata:
        return f"/api/v1/nodes/{metadata['name']}"
    return f"/apis/apps/v1/namespaces/{metadata['namespace']}/daemonsets/{metadata['name']}"


def _is_plugin(item: Object) -> bool:
    return _runs_plugin(item["spec"]["template"]["spec"])


def _runs_plugin(spec: Object) -> bool:
    return any(each["name"].startswith(_CONTAINER) for each in spec["containers"])


def _has_gpus(spec: Object) -> bool:
    containers = (*spec["containers"], *spec.get("initContainers", ()))
    return any(NVIDIA_GPU in each.get("resources", {}).get("limits", {}) for each in containers)


def _is_operators(item: Object) -> bool:
    return any(each["kind"] == _OPERATOR for each in item["metadata"].get("ownerReferences", ()))


def _shared(node: Object) -> bool:
    return any(_labels(node).get(label) == "true" for label in (LABEL_SHARE, LABEL_TOPOLOGY))


def _off(node: Object) -> bool:
    return _labels(node).get(NVIDIA_DEPLOY_PLUGIN) == "false"


def _labels(item: Object) -> dict[str, str]:
    return dict(item["metadata"].get("labels") or {})


def _annotations(item: Object) -> dict[str, str]:
    return dict(item["metadata"].get("annotations") or {})


def _called(item: Object) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"
