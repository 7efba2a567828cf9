"""Pods of Kubernetes objects: of pods, and of any object with pod templates.

Only the fields that placement uses are read. Amounts that the API server would refuse are refused.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from gpucore.kubescheduler.constraints import UNCONSTRAINED, PodConstraints
from gpucore.simulate.templates import pod_templates
from gpucore.wire.constraints import pod_constraints
from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpucore.wire.pods import Pod, decode_pod, pod_request_of
from gpucore.wire.quantity import amount, exact

MOST_CONTAINERS: Final = 100
"""Of a pod that is placed in a simulation."""


class RefusedPodError(ValueError):
    """The API server would not create such a pod."""


class WorkloadPods(msgspec.Struct, frozen=True):
    """The pods of one workload.

    Attributes:
        replicas: the number in the manifest.
        constraints: what each requires of its node besides GPUs.
    """

    pod: Pod
    replicas: int = 1
    constraints: PodConstraints = UNCONSTRAINED


def wanted_pods(objects: Iterable[Any], names: Names) -> list[WorkloadPods]:
    """The pods of decoded objects; those of other kinds are passed over.

    Args:
        objects: as a YAML or JSON parser gives them.
        names: of the resources, whose amounts must be such as the API server takes.

    Raises:
        RefusedPodError: the API server would refuse a pod.
        WireError: an object does not match its kind.
    """
    try:
        return [wanted for each in objects for wanted in _pods(each, names)]
    except RefusedPodError:
        raise
    except (TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise WireError(str(error)) from error


def _pods(document: Any, names: Names) -> Iterator[WorkloadPods]:
    if not isinstance(document, dict):
        return
    kind = document.get("kind")
    spec = document.get("spec") or {}
    if kind == "List":
        for item in document.get("items") or ():
            yield from _pods(item, names)
    elif kind == "Pod":
        yield _wanted(document, _name(document), 1, names)
    elif isinstance(spec, dict):
        yield from _templates(document, _name(document), names)


def _templates(document: Mapping[str, Any], name: str, names: Names) -> Iterator[WorkloadPods]:
    """The pods of an object; of several roles those that request GPUs, if any does."""
    found = [
        _wanted(each.template, f"{name}-{each.role}" if each.role else name, each.replicas, names)
        for each in pod_templates(document)
    ]
    requesting = [each for each in found if pod_request_of(each.pod, names) is not None]
    yield from requesting or found


def _name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata") or {}
    return str(metadata.get("name") or metadata.get("generateName") or "pod").rstrip("-")


def _wanted(template: Mapping[str, Any], name: str, replicas: int, names: Names) -> WorkloadPods:
    spec = template.get("spec") or {}
    count = sum(len(spec.get(key) or ()) for key in ("containers", "initContainers"))
    if count > MOST_CONTAINERS:
        raise RefusedPodError(f"{name}: has {count} containers, the most is {MOST_CONTAINERS}")
    spec = _with_text_amounts(spec)
    for box in (*spec["containers"], *spec["initContainers"]):
        _creatable(box["resources"], name, names)
    metadata = {**(template.get("metadata") or {}), "name": name}
    raw = msgspec.json.encode({"metadata": metadata, "spec": spec})
    return WorkloadPods(decode_pod(raw), replicas, pod_constraints(raw, names))


def _creatable(resources: Mapping[str, Mapping[str, str]], pod: str, names: Names) -> None:
    """Refuse amounts that the API server refuses: extended resources are whole, in limits."""
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    refused = "which the API server rejects"
    for name in (names.gpu_mem, names.gpu_core, names.gpu):
        text = limits.get(name, requests.get(name))
        if text is None:
            continue
        if exact(text).denominator != 1:
            takes = "is rejected by the API server, which accepts integers only"
            raise RefusedPodError(f"{pod}: {name}: {text} {takes}: write {amount(text)}")
        if name not in limits:
            missing = f"is requested without a limit, {refused}: set it in limits"
            raise RefusedPodError(f"{pod}: {name} {missing}")
        if exact(requests.get(name, text)) != exact(text):
            both = f"has request {requests[name]} and limit {text}, {refused}"
            raise RefusedPodError(f"{pod}: {name} {both}: they must be equal")


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
