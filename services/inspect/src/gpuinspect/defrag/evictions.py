"""Requests an eviction through the Eviction API, and records events about it."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from gpucore.defrag.planning import Eviction, EvictionPlan
from gpucore.defrag.pods import DefragPod
from gpucore.explain.sentences import placement_sentence
from gpukube.errors import KubeError
from gpukube.events import EventSource, ObjectReference, event_body, event_path

EVICTED: Final = "GpuPodEvicted"
MAKES_ROOM: Final = "GpuCapacityFreed"
SOURCE: Final = EventSource("gpushare-defrag", "gpushare-defrag", may_patch=False)


class PostClient(Protocol):
    """The part of the API server that takes new objects."""

    def post(self, path: str, body: Mapping[str, Any]) -> bytes:
        """Create an object."""
        ...


def evict(kube: PostClient, pod: DefragPod, *, dry_run: bool) -> None:
    """Request the eviction of exactly the pod that was read.

    Args:
        dry_run: the API server only checks whether it would evict the pod.

    Raises:
        ThrottledError: a PodDisruptionBudget does not permit it.
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


def announce(kube: PostClient, plan: EvictionPlan, eviction: Eviction) -> None:
    """Record events on the evicted pod, its controller and the waiting pod; best effort."""
    pod, waiting = eviction.pod, plan.waiting
    same = waiting.namespace == pod.namespace
    whom = f"pod {waiting.name}" if same else "a pod of another namespace"
    text = f"evicted pod {pod.name} from node {pod.node} so that {whom} fits"
    about = [ObjectReference("Pod", pod.name, pod.namespace, pod.uid)]
    if (owner := pod.controller) is not None:
        about.append(
            ObjectReference(owner.kind, owner.name, pod.namespace, owner.uid, owner.api_version)
        )
    for each in about:
        _record(kube, each, EVICTED, text)
    reference = ObjectReference("Pod", waiting.name, waiting.namespace, waiting.uid)
    room = placement_sentence(plan.placement, None)
    _record(
        kube, reference, MAKES_ROOM, f"evicted a pod from node {plan.node} so that it fits {room}"
    )


def _record(kube: PostClient, about: ObjectReference, reason: str, message: str) -> None:
    try:
        kube.post(event_path(about), event_body(about, "Normal", reason, message, SOURCE))
    except KubeError:
        return
