"""Requests an eviction through the Eviction API, and records events about it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gpuinspect.eviction.pods import EvictablePod
from gpukube.errors import KubeError
from gpukube.events import EventSource, EventType, ObjectReference, event_body, event_path

if TYPE_CHECKING:  # the import takes a while
    from gpukube.blocking import BlockingClient


def evict(kube: "BlockingClient", pod: EvictablePod, *, dry_run: bool = False) -> None:
    """Request the eviction of exactly the pod that was read.

    Args:
        dry_run: the API server only checks whether it would evict the pod.

    Raises:
        ThrottledError: a PodDisruptionBudget does not permit it, or the API server is overloaded.
        ConflictError: the pod changed since it was read.
        KubeError: other failures.
    """
    preconditions = {"uid": pod.uid, "resourceVersion": pod.resource_version}
    options: dict[str, Any] = {"preconditions": preconditions}
    if dry_run:
        options["dryRun"] = ["All"]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": options,
    }
    kube.post(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction", body)


def pod_and_controller(pod: EvictablePod) -> Iterator[ObjectReference]:
    """The objects on which an eviction is recorded."""
    yield ObjectReference("Pod", pod.name, pod.namespace, pod.uid)
    if (owner := pod.controller) is not None:
        yield ObjectReference(owner.kind, owner.name, pod.namespace, owner.uid, owner.api_version)


def record(
    kube: "BlockingClient",
    about: ObjectReference,
    reason: str,
    message: str,
    *,
    source: EventSource,
    type_: EventType = "Normal",
) -> None:
    """Record an event; best effort."""
    try:
        kube.post(event_path(about), event_body(about, type_, reason, message, source))
    except KubeError:
        return
