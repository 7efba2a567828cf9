"""Pods out of the YAML that people write: pods, and the templates of what makes pods.

Only what placement reads is looked at. Nothing is validated as the API server would.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from gpucore.scheduling.constraints import UNCONSTRAINED, PodConstraints
from gpucore.wire.constraints import pod_constraints
from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpucore.wire.pods import Pod, decode_pod, demand_of
from gpucore.wire.quantity import amount, exact
from gpuinspect.errors import InspectError

STDIN: Final = Path("-")
_MAKERS: Final = frozenset(
    {"Deployment", "ReplicaSet", "StatefulSet", "Job", "DaemonSet", "MPIJob", "TFJob", "PyTorchJob"}
)
_ROLES: Final = "ReplicaSpecs"
"""How the field ends in which a training job has a template and a number for each role."""


class ManifestError(InspectError):
    """The file has no pod to place."""


class Wanted(msgspec.Struct, frozen=True):
    """Pods of one kind that somebody wants.

    Attributes:
        replicas: how many the manifest itself asks for.
        constraints: what each requires of its node besides GPUs.
    """

    pod: Pod
    replicas: int = 1
    constraints: PodConstraints = UNCONSTRAINED


def read(path: Path, names: Names) -> list[Wanted]:
    """The pods of a file, or of standard input for ``-``.

    Args:
        path: of the file.
        names: of the resources, whose amounts must be such as the API server takes.

    Raises:
        ManifestError: it cannot be read, is no YAML, holds no pod, or one that cannot be created.
    """
    try:
        text = sys.stdin.read() if path == STDIN else path.read_text(encoding="utf-8")
        found = [
            wanted for document in yaml.safe_load_all(text) for wanted in _pods(document, names)
        ]
    except OSError as error:
        raise ManifestError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, WireError, TypeError, ValueError, AttributeError) as error:
        raise ManifestError(f"{path} is no manifest of pods: {error}") from error
    if not found:
        makers = ", ".join(sorted(_MAKERS))
        raise ManifestError(f"{path} holds no Pod and none of {makers}")
    return found


def _pods(document: Any, names: Names) -> Iterator[Wanted]:
    if not isinstance(document, dict):
        return
    kind = document.get("kind")
    spec = document.get("spec") or {}
    if kind == "List":
        for item in document.get("items") or ():
            yield from _pods(item, names)
    elif kind == "Pod":
        yield _wanted(document, _name(document), 1, names)
    elif kind in _MAKERS and "template" not in spec:
        yield from _roles(spec, _name(document), names)
    elif kind in _MAKERS:
        replicas = spec.get("replicas", spec.get("parallelism", 1))
        yield _wanted(spec.get("template") or {}, _name(document), int(replicas), names)


def _roles(spec: Mapping[str, Any], name: str, names: Names) -> Iterator[Wanted]:
    """The roles of a training job that request GPUs; a launcher often requests none."""
    for field, roles in spec.items():
        if field.endswith(_ROLES):
            for role, each in roles.items():
                template, count = each.get("template") or {}, int(each.get("replicas", 1))
                found = _wanted(template, f"{name}-{role.lower()}", count, names)
                if demand_of(found.pod, names) is not None:
                    yield found


def _name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata") or {}
    return str(metadata.get("name") or metadata.get("generateName") or "pod").rstrip("-")


def _wanted(template: Mapping[str, Any], name: str, replicas: int, names: Names) -> Wanted:
    spec = _with_text_amounts(template.get("spec") or {})
    for box in (*spec["containers"], *spec["initContainers"]):
        _creatable(box["resources"], name, names)
    metadata = {**(template.get("metadata") or {}), "name": name}
    raw = msgspec.json.encode({"metadata": metadata, "spec": spec})
    return Wanted(decode_pod(raw), replicas, pod_constraints(raw, names))


def _creatable(resources: Mapping[str, Mapping[str, str]], pod: str, names: Names) -> None:
    """Refuse amounts that the API server refuses: extended resources are whole, in limits."""
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    refused = "which the API server refuses"
    for name in (names.gpu_mem, names.gpu_core, names.gpu):
        text = limits.get(name, requests.get(name))
        if text is None:
            continue
        if exact(text).denominator != 1:
            takes = "is refused by the API server, which takes whole numbers"
            raise ManifestError(f"{pod}: {name}: {text} {takes}: write {amount(text)}")
        if name not in limits:
            missing = f"is requested without a limit, {refused}: set it in limits"
            raise ManifestError(f"{pod}: {name} {missing}")
        if exact(requests.get(name, text)) != exact(text):
            both = f"has request {requests[name]} and limit {text}, {refused}"
            raise ManifestError(f"{pod}: {name} {both}: they must be equal")


def _with_text_amounts(spec: Mapping[str, Any]) -> dict[str, Any]:
    """YAML reads ``gpu-mem: 2`` as a number; the API server makes it the text that it means."""
    boxes = {
        key: [_box(box) for box in spec.get(key) or ()] for key in ("containers", "initContainers")
    }
    return {**spec, **boxes}


def _box(container: Mapping[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    texts = {
        key: {name: str(value) for name, value in (amounts or {}).items()}
        for key, amounts in resources.items()
        if key in {"limits", "requests"}
    }
    return {**container, "resources": texts}
