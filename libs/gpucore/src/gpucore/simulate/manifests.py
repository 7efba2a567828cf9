"""Pods of Kubernetes objects: of pods, and of any object with pod templates.

Only the fields that placement uses are read. Amounts that the API server would refuse are refused.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from gpucore.accounting.claim_offers import ClaimSpecs, Key
from gpucore.kubescheduler.node_fit import DAEMON_TOLERATIONS
from gpucore.model.constraints import UNCONSTRAINED, PodConstraints
from gpucore.simulate.templates import pod_templates, without_nulls
from gpucore.wire.claim.claim_specs import ClaimSpec, decode_claim_spec, decode_template
from gpucore.wire.constraints import pod_constraints
from gpucore.wire.errors import WRONG_TYPE, WireError
from gpucore.wire.names import Names
from gpucore.wire.pod.spec import Pod, decode_pod
from gpucore.wire.quantity import amount, exact
from gpucore.wire.whole_requests import pod_request_of

DEFAULT_NAMESPACE: Final = "default"
MOST_CONTAINERS: Final = 100
"""Of a pod that is placed in a simulation."""


class RefusedPodError(ValueError):
    """The API server would not create such a pod."""


class WorkloadPods(msgspec.Struct, frozen=True):
    """The pods of one workload.

    Attributes:
        replicas: the number in the manifest.
        constraints: what each requires of its node besides GPUs.
        beside: claims and claim templates of the same file.
        priority_class: PriorityClass that decides its priority; empty where the pod states it.
        per_node: of a DaemonSet, which creates one for each matching node.
    """

    pod: Pod
    replicas: int = 1
    constraints: PodConstraints = UNCONSTRAINED
    beside: ClaimSpecs = ClaimSpecs()
    priority_class: str = ""
    per_node: bool = False

    def specs(self, cluster: ClaimSpecs) -> tuple[ClaimSpec, ...]:
        """What the claims of a pod request: by the file, else by the cluster.

        Raises:
            WireError: one of them is in neither.
        """
        namespace = self.pod.namespace or DEFAULT_NAMESPACE
        found: list[ClaimSpec] = []
        for kind, names in (("claim", self.pod.claims), ("template", self.pod.claim_templates)):
            for name in names:
                spec = _found(kind, (namespace, name), self.beside, cluster)
                if spec is None:
                    what = f"{self.pod.name} names the Resource{kind_name(kind)} {name}"
                    place = f"neither in the manifest nor in namespace {namespace}"
                    raise WireError(f"{what}, which is {place}")
                found.append(spec)
        return tuple(found)


def kind_name(kind: str) -> str:
    """The rest of the kind's name after ``Resource``."""
    return "Claim" if kind == "claim" else "ClaimTemplate"


def _found(kind: str, key: Key, beside: ClaimSpecs, cluster: ClaimSpecs) -> ClaimSpec | None:
    if kind == "claim":
        return beside.claims.get(key) or cluster.claims.get(key)
    return beside.templates.get(key) or cluster.templates.get(key)


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
        known = list(_flat(objects))
        beside = _claims_beside(known)
        found = [wanted for each in known for wanted in _checked(each, names)]
        return [msgspec.structs.replace(each, beside=beside) for each in found]
    except RefusedPodError:
        raise
    except (TypeError, AttributeError) as error:
        raise WireError(WRONG_TYPE) from error
    except (ValueError, OverflowError, RecursionError) as error:
        raise WireError(str(error)) from error


def _claims_beside(documents: Iterable[Mapping[str, Any]]) -> ClaimSpecs:
    """The claims and claim templates among decoded objects."""
    claims: dict[Key, ClaimSpec] = {}
    templates: dict[Key, ClaimSpec] = {}
    for each in documents:
        kind = each.get("kind")
        if kind not in {"ResourceClaim", "ResourceClaimTemplate"}:
            continue
        decode = decode_claim_spec if kind == "ResourceClaim" else decode_template
        namespace, name, spec = decode(msgspec.json.encode(each))
        into = claims if kind == "ResourceClaim" else templates
        into[namespace or DEFAULT_NAMESPACE, name] = spec
    return ClaimSpecs(claims, templates)


def _flat(documents: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    for each in documents:
        if isinstance(each, dict) and each.get("kind") == "List":
            yield from _flat(each.get("items") or ())
        elif isinstance(each, dict):
            yield each


def _checked(document: Mapping[str, Any], names: Names) -> Iterator[WorkloadPods]:
    """The pods of an object, or an error with its kind."""
    try:
        yield from _pods(document, names)
    except (TypeError, AttributeError) as error:
        raise WireError(f"{document.get('kind') or 'an object'}: {WRONG_TYPE}") from error


def _pods(document: Mapping[str, Any], names: Names) -> Iterator[WorkloadPods]:
    kind = document.get("kind")
    spec = document.get("spec") or {}
    if kind == "Pod":
        yield _wanted(document, _name(document), 1, names)
    elif isinstance(spec, dict):
        for each in _templates(document, _name(document), names):
            yield _per_node(each) if kind == "DaemonSet" else each


def _per_node(wanted: WorkloadPods) -> WorkloadPods:
    """The pods of a DaemonSet, with the tolerations that its controller adds."""
    needs = wanted.constraints
    more = msgspec.structs.replace(needs, tolerations=(*needs.tolerations, *DAEMON_TOLERATIONS))
    return msgspec.structs.replace(wanted, replicas=1, constraints=more, per_node=True)


def _templates(document: Mapping[str, Any], name: str, names: Names) -> Iterator[WorkloadPods]:
    """The pods of an object; of several roles those that request GPUs, if any does."""
    namespace = (document.get("metadata") or {}).get("namespace") or ""
    found = [
        _wanted(
            {
                **each.template,
                "metadata": {"namespace": namespace, **(each.template.get("metadata") or {})},
            },
            f"{name}-{each.role}" if each.role else name,
            each.replicas,
            names,
        )
        for each in pod_templates(document)
    ]
    requesting = [each for each in found if _requests(each.pod, names)]
    yield from requesting or found


def _requests(pod: Pod, names: Names) -> bool:
    return pod_request_of(pod, names) is not None or bool(pod.claims or pod.claim_templates)


def _name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata") or {}
    return str(metadata.get("name") or metadata.get("generateName") or "pod").rstrip("-")


def _wanted(template: Mapping[str, Any], name: str, replicas: int, names: Names) -> WorkloadPods:
    template = without_nulls(template)
    spec = template.get("spec") or {}
    count = sum(len(spec.get(key) or ()) for key in ("containers", "initContainers"))
    if count > MOST_CONTAINERS:
        raise RefusedPodError(f"{name}: has {count} containers, the most is {MOST_CONTAINERS}")
    spec = _defaulted(_with_text_amounts(spec))
    for box in (*spec["containers"], *spec["initContainers"]):
        _creatable(box["resources"], name, names)
    metadata = {**(template.get("metadata") or {}), "name": name}
    raw = msgspec.json.encode({"metadata": metadata, "spec": spec})
    stated = spec.get("priority") is not None
    priority_class = "" if stated else str(spec.get("priorityClassName") or "")
    return WorkloadPods(
        decode_pod(raw), replicas, pod_constraints(raw, names), priority_class=priority_class
    )


def _creatable(resources: Mapping[str, Mapping[str, str]], pod: str, names: Names) -> None:
    """Refuse amounts that the API server refuses: extended resources are whole, in limits."""
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    refused = "which the API server rejects"
    for name in (names.gpu_mem, names.gpu_core, names.gpu):
        text = limits.get(name, requests.get(name))
        if text is None:
            continue
        _, denominator = exact(text)
        if denominator != 1:
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


def _defaulted(spec: dict[str, Any]) -> dict[str, Any]:
    """Limits of the pod as a whole are its requests where no container has a request."""
    whole = spec.get("resources") or {}
    boxes = (*spec["containers"], *spec["initContainers"])
    requested = {name for box in boxes for each in box["resources"].values() for name in each}
    limits = {
        key: each for key, each in (whole.get("limits") or {}).items() if key not in requested
    }
    return {**spec, "resources": {**whole, "limits": limits}}


def _box(container: Mapping[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    texts = {
        key: {name: str(value) for name, value in (amounts or {}).items()}
        for key, amounts in resources.items()
        if key in {"limits", "requests"}
    }
    return {**container, "resources": texts}
