"""What a cluster serves: Deployments under arena's labels, with their Services and pods.

Found by labels alone, so what arena itself has deployed is listed too.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from gpucore.model import Placement
from gpucore.wire.names import (
    LABEL_SERVING_NAME,
    LABEL_SERVING_TYPE,
    LABEL_SERVING_VERSION,
    Names,
)
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.spec import decode_pod
from gpucore.wire.quantity import amount
from gpuinspect.cluster.collect import ListRequest, listed
from gpuinspect.serving.documents import InstanceDoc, ServingDoc
from gpuinspect.serving.objects import (
    Deployment,
    PodStatus,
    PodStatusObject,
    Selector,
    Service,
    TemplateContainer,
)
from gpukube.errors import InvalidReplyError

if TYPE_CHECKING:  # the import takes a while, and help needs no client
    from gpukube.blocking import BlockingClient

T = TypeVar("T")
WHOLE: Final = "nvidia.com/gpu"
"""What arena's own charts request as exclusive GPUs."""


class Serving(NamedTuple):
    """One served model.

    Attributes:
        doc: what tables and documents show; its pods are read by :func:`instances`.
        selector: of its pods; those of arena's older charts do not carry the name.
    """

    doc: ServingDoc
    selector: Selector


def servings(
    kube: "BlockingClient", names: Names, namespace: str = "", name: str = ""
) -> list[Serving]:
    """All that is served in a namespace, or everywhere; of one name where one is given.

    Raises:
        KubeError: the API server did not answer, or with what cannot be read.
    """
    selector = f"{LABEL_SERVING_NAME}={name}" if name else LABEL_SERVING_NAME
    scope = f"namespaces/{namespace}/" if namespace else ""
    services = {
        each.metadata.key: each
        for each in _listed(kube, f"/api/v1/{scope}services", selector, Service)
    }
    found = _listed(kube, f"/apis/apps/v1/{scope}deployments", selector, Deployment)
    every = [_serving(each, services.get(each.metadata.key), names) for each in found]
    if any(each.doc.available < each.doc.desired for each in every):
        pods = _listed(kube, f"/api/v1/{scope}pods", selector, PodStatusObject)
        every = [_with_waiting(each, pods) for each in every]
    return sorted(every, key=lambda each: (each.doc.namespace, each.doc.name, each.doc.version))


def instances(kube: "BlockingClient", names: Names, of: Serving) -> list[InstanceDoc]:
    """The pods of one served model.

    Raises:
        KubeError: as :func:`servings`.
    """
    wanted = _selected(f"/api/v1/namespaces/{of.doc.namespace}/pods", of.selector.text)
    pods = [_instance(raw, names) for raw in listed(kube, wanted)]
    return sorted(pods, key=lambda each: each.name)


def _selected(path: str, selector: str) -> ListRequest:
    return ListRequest("", path, {"labelSelector": selector})


def _listed(kube: "BlockingClient", path: str, selector: str, kind: type[T]) -> list[T]:
    try:
        found = listed(kube, _selected(path, selector))
        return [msgspec.json.decode(raw, type=kind) for raw in found]
    except msgspec.MsgspecError as error:
        raise InvalidReplyError(f"{path}: an object cannot be parsed: {error}") from error


def _serving(deployment: Deployment, service: Service | None, names: Names) -> Serving:
    labels = deployment.metadata.labels
    spec = deployment.spec
    containers = spec.template.spec.containers
    ports = service.spec.ports if service else []
    doc = ServingDoc(
        namespace=deployment.metadata.namespace,
        name=labels[LABEL_SERVING_NAME],
        deployment=deployment.metadata.name,
        type=labels.get(LABEL_SERVING_TYPE, ""),
        version=labels.get(LABEL_SERVING_VERSION, ""),
        desired=spec.replicas,
        available=deployment.status.available_replicas,
        waiting=0,
        address=service.spec.cluster_ip if service else "",
        ports=[f"{port.name}:{port.port}" if port.name else str(port.port) for port in ports],
        gpu_memory=_requested(containers, names.gpu_mem),
        gpu_core=_requested(containers, names.gpu_core),
        gpu_count=_requested(containers, names.gpu) + _requested(containers, WHOLE),
    )
    return Serving(doc, spec.selector)


def _with_waiting(serving: Serving, pods: Sequence[PodStatusObject]) -> Serving:
    """With the number of its pods that wait for their turn to start."""
    waiting = sum(
        pod.status.waits_for_turn
        and pod.metadata.namespace == serving.doc.namespace
        and serving.selector.matches(pod.metadata.labels)
        for pod in pods
    )
    return serving._replace(doc=msgspec.structs.replace(serving.doc, waiting=waiting))


def _requested(containers: Sequence[TemplateContainer], resource: str) -> int:
    return sum(amount(str(container.resources.limits.get(resource, 0))) for container in containers)


def _instance(raw: msgspec.Raw, names: Names) -> InstanceDoc:
    pod = decode_pod(raw)
    status = msgspec.json.decode(raw, type=PodStatusObject).status
    claim = allocation_of(pod, names)
    held = {} if claim is None else _held(claim.placement)
    ready = sum(each.ready for each in status.container_statuses)
    return InstanceDoc(
        name=pod.name,
        phase=_phase(status, terminating=pod.terminating),
        ready=f"{ready}/{len(pod.containers)}",
        restarts=sum(each.restart_count for each in status.container_statuses),
        node=pod.node,
        gpus=held,
    )


def _phase(status: PodStatus, *, terminating: bool) -> str:
    if terminating:
        return "Terminating"
    return "WaitsForTurn" if status.waits_for_turn else status.phase


def _held(placement: Placement) -> dict[str, int]:
    """Units by GPU; exclusive GPUs with 0."""
    return {str(index): units for index, units in placement.mem.items()} | {
        str(index): 0 for index in placement.group
    }
