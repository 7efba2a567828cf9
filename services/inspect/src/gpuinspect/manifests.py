"""Pods out of the YAML that people write: pods, and the templates of what makes pods.

Only what placement reads is looked at. Nothing is validated as the API server would.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from gpucore.wire.errors import WireError
from gpucore.wire.podspec import Pod, decode_pod
from gpuinspect.errors import InspectError

STDIN: Final = Path("-")
_MAKERS: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "Job", "DaemonSet"})


class ManifestError(InspectError):
    """The file has no pod to place."""


class Wanted(msgspec.Struct, frozen=True):
    """Pods of one kind that somebody wants.

    Attributes:
        replicas: how many the manifest itself asks for.
        node_selector: labels a node must have.
    """

    pod: Pod
    replicas: int = 1
    node_selector: Mapping[str, str] = msgspec.field(default_factory=dict)


def read(path: Path) -> list[Wanted]:
    """The pods of a file, or of standard input for ``-``.

    Raises:
        ManifestError: it cannot be read, is no YAML, or holds no pod.
    """
    try:
        text = sys.stdin.read() if path == STDIN else path.read_text(encoding="utf-8")
        found = [wanted for document in yaml.safe_load_all(text) for wanted in _pods(document)]
    except OSError as error:
        raise ManifestError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, WireError, TypeError, ValueError, AttributeError) as error:
        raise ManifestError(f"{path} is no manifest of pods: {error}") from error
    if not found:
        makers = ", ".join(sorted(_MAKERS))
        raise ManifestError(f"{path} holds no Pod and none of {makers}")
    return found


def _pods(document: Any) -> Iterator[Wanted]:
    if not isinstance(document, dict):
        return
    kind = document.get("kind")
    spec = document.get("spec") or {}
    if kind == "List":
        for item in document.get("items") or ():
            yield from _pods(item)
    elif kind == "Pod":
        yield _wanted(document, name=_name(document), replicas=1)
    elif kind in _MAKERS:
        replicas = spec.get("replicas", spec.get("parallelism", 1))
        yield _wanted(spec.get("template") or {}, name=_name(document), replicas=int(replicas))


def _name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata") or {}
    return str(metadata.get("name") or metadata.get("generateName") or "pod").rstrip("-")


def _wanted(template: Mapping[str, Any], *, name: str, replicas: int) -> Wanted:
    spec = template.get("spec") or {}
    metadata = {**(template.get("metadata") or {}), "name": name}
    plain = {"metadata": metadata, "spec": _with_text_amounts(spec)}
    pod = decode_pod(msgspec.json.encode(plain))
    return Wanted(pod, replicas, spec.get("nodeSelector") or {})


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
