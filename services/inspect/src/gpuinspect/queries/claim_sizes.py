"""How a workload whose GPU memory is claimed gets another size: a new ResourceClaimTemplate.

Workload and template are read with the rights of the caller, who needs more to change them. The
size is changed only where it is certain which number of which template was measured.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from gpucore.sizing.recommendation import Recommendation, SizingAdvice
from gpucore.units import MemoryUnit
from gpucore.wire.claim.devices import MEMORY
from gpucore.wire.errors import WireError
from gpucore.wire.names import CLAIM_DRIVER
from gpucore.wire.quantity import amount
from gpuinspect.cluster.collect import RESOURCE_API
from gpukube.errors import KubeError

if TYPE_CHECKING:
    from gpukube.blocking import BlockingClient

MOST_WORKLOADS: Final = 500
"""Each takes two requests."""
POD_TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""Where the template of pods is, for the kinds whose template can change."""
_PATHS: Final[Mapping[str, str]] = {
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments/{}",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets/{}",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets/{}",
    "CronJob": "/apis/batch/v1/namespaces/{}/cronjobs/{}",
}
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SIZE: Final = re.compile(r"-[0-9]+[gm]i$")
_MOST_NAME: Final = 240
_MIB: Final = 1 << 20


class MeasuredWorkload(NamedTuple):
    """A workload whose size changes; ``kind`` as in its manifest."""

    kind: str
    namespace: str
    name: str


class ClaimSize(msgspec.Struct, frozen=True):
    """What to create and change.

    Attributes:
        template: the new ResourceClaimTemplate.
        reference: the claim of the pods that refers to it.
    """

    template: Mapping[str, Any]
    reference: Mapping[str, str]


class _MemoryRequest(NamedTuple):
    """A request of memory in a template.

    Attributes:
        claim: name of the claim in the pods.
        position: of the request in it.
        key: of the memory in its capacity.
    """

    claim: str
    template: Mapping[str, Any]
    position: int
    key: str
    gpus: int

    @property
    def capacity(self) -> Mapping[str, Any]:
        """Requests of capacity."""
        requests = self.template["spec"]["spec"]["devices"]["requests"]
        found: Mapping[str, Any] = requests[self.position]["exactly"]["capacity"]["requests"]
        return found


def claim_sizes(
    kube: "BlockingClient", found: Iterable[Recommendation]
) -> dict[MeasuredWorkload, ClaimSize | str]:
    """Of each workload with claims whose size changes, what to do, or why nothing can be done."""
    changes = {SizingAdvice.RAISE, SizingAdvice.SHRINK}
    sizes: dict[MeasuredWorkload, ClaimSize | str] = {}
    for each in found:
        if not each.claims or each.advice not in changes:
            continue
        workload = MeasuredWorkload(each.key.kind, each.key.namespace, each.key.name)
        if workload in sizes:
            sizes[workload] = "it was measured by several containers"
        elif len(sizes) >= MOST_WORKLOADS:
            sizes[workload] = f"only {MOST_WORKLOADS} workloads with claims are read"
        else:
            sizes[workload] = _size_or_reason(kube, workload, each)
    return sizes


def _size_or_reason(
    kube: "BlockingClient", workload: MeasuredWorkload, found: Recommendation
) -> ClaimSize | str:
    try:
        return _claim_size(kube, workload, found)
    except KubeError as error:
        return f"its claims cannot be read: {error}"
    except (msgspec.MsgspecError, WireError, KeyError, TypeError, AttributeError):
        return "its claims have an unknown form"


def _claim_size(
    kube: "BlockingClient", workload: MeasuredWorkload, found: Recommendation
) -> ClaimSize | str:
    if workload.kind not in _PATHS or not object_names(workload.namespace, workload.name):
        return "its template of pods cannot change"
    path = _PATHS[workload.kind].format(workload.namespace, workload.name)
    body = _object(kube, path)
    for key in POD_TEMPLATES[workload.kind]:
        body = body[key]
    requests = list(_requests(kube, workload.namespace, body["spec"].get("resourceClaims") or []))
    if len(requests) != 1:
        return f"its claim templates have {len(requests)} requests of memory, not one"
    return _changed(requests[0], found)


def _requests(
    kube: "BlockingClient", namespace: str, claims: Iterable[Mapping[str, Any]]
) -> Iterator[_MemoryRequest]:
    """Requests of memory in the templates that a template of pods refers to."""
    for claim in claims:
        name = claim.get("resourceClaimTemplateName") or ""
        if not object_names(name):
            continue
        path = f"{RESOURCE_API}/namespaces/{namespace}/resourceclaimtemplates/{name}"
        template = _object(kube, path)
        requests = template["spec"]["spec"]["devices"].get("requests") or []
        for position, request in enumerate(requests):
            exactly = request.get("exactly") or {}
            capacity = (exactly.get("capacity") or {}).get("requests") or {}
            gpus = exactly.get("count") or 1
            keys = [key for key in (MEMORY, f"{CLAIM_DRIVER}/{MEMORY}") if key in capacity]
            if keys and (exactly.get("allocationMode") or "ExactCount") == "ExactCount":
                yield _MemoryRequest(claim["name"], template, position, keys[0], gpus)


def _changed(request: _MemoryRequest, found: Recommendation) -> ClaimSize | str:
    """The template with the recommended size, unless another one was measured."""
    written = str(request.capacity[request.key])
    units = -(-amount(written) // (found.unit.mib * _MIB)) * request.gpus
    if found.size is None or units != found.current.request:
        return f"its template has {written} of each GPU, and pods with another size were measured"
    quantity = _quantity(-(-found.size.request // request.gpus), found.unit)
    template = msgspec.json.decode(msgspec.json.encode(request.template["spec"]))
    asked = template["spec"]["devices"]["requests"][request.position]["exactly"]
    asked["capacity"]["requests"][request.key] = quantity
    old = request.template["metadata"]
    name = _new_name(old["name"], quantity)
    manifest = {
        "apiVersion": request.template.get("apiVersion") or "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": old["namespace"]},
        "spec": template,
    }
    return ClaimSize(manifest, {"name": request.claim, "resourceClaimTemplateName": name})


def _new_name(name: str, quantity: str) -> str:
    """The name with the new size at its end; never the old one."""
    new = f"{_SIZE.sub('', name)[:_MOST_NAME].rstrip('.-')}-{quantity.lower()}"
    return new if new != name else f"{new}-new"


def _quantity(units: int, unit: MemoryUnit) -> str:
    mib = units * unit.mib
    return f"{mib}Mi" if mib % 1024 else f"{mib // 1024}Gi"


def object_names(*names: str) -> bool:
    """Whether objects can have these names, which are parts of paths and commands."""
    return all(_NAME.fullmatch(name) for name in names)


def _object(kube: "BlockingClient", path: str) -> dict[str, Any]:
    return msgspec.json.decode(kube.get(path), type=dict[str, Any])
