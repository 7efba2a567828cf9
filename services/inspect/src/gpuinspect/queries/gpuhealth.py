"""Unhealthy GPUs with the reason that the device plugin recorded in its events on the Node."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from gpucore.units import GpuIndex, NodeName
from gpucore.wire.objects import ObjectMetadata
from gpucore.wire.pod.scheduler_events import Event
from gpuinspect.cluster.collect import ListRequest
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.queries.views import ClusterView, GpuSummary, NodeSummary

UNHEALTHY: Final = "GpuUnhealthy"
"""Reason of the device plugin's events on a Node."""
NAMESPACE: Final = "default"
"""Where the API server accepts events on Nodes; events of other namespaces are ignored."""
GPU_HEALTH: Final = ListRequest(
    "Event",
    "/api/v1/events",
    {"fieldSelector": f"involvedObject.kind=Node,reason={UNHEALTHY}"},
)
UNKNOWN: Final = "no event has the reason: see the log of the device plugin on this node"
_CAUSE: Final = " is unhealthy: "


class UnhealthyGpu(msgspec.Struct, frozen=True):
    """One GPU that takes no new pods.

    Attributes:
        reason: in one line.
        since: RFC 3339 time of the last event; empty where none is left.
        pods: ``namespace/name`` of the pods with an allocation on it.
    """

    node: NodeName
    index: GpuIndex
    model: str
    uuid: str
    reason: str
    since: str
    pods: tuple[tuple[str, str], ...]


class _Reference(msgspec.Struct):
    kind: str = ""
    name: str = ""


class _Event(Event, frozen=True, rename="camel"):
    metadata: ObjectMetadata = msgspec.field(default_factory=ObjectMetadata)
    involved_object: _Reference = msgspec.field(default_factory=_Reference)


def unhealthy_gpus(snapshot: Snapshot, view: ClusterView) -> tuple[UnhealthyGpu, ...]:
    """All unhealthy GPUs of ``view``, by node and index."""
    events = _events(snapshot)
    return tuple(
        _entry(node, gpu, events.get(node.name, ()))
        for node in view.nodes
        for gpu in node.gpus
        if not gpu.healthy
    )


def _entry(node: NodeSummary, gpu: GpuSummary, events: tuple[_Event, ...]) -> UnhealthyGpu:
    about = [event for event in events if gpu.uuid and f"({gpu.uuid})" in event.message]
    last = max(about, key=lambda event: event.when, default=None)
    reason = last.message.partition(_CAUSE)[2] or last.message if last else UNKNOWN
    pods = tuple((pod.namespace, pod.name) for pod in node.pods if gpu.index in pod.gpus)
    since = last.when if last else ""
    return UnhealthyGpu(node.name, gpu.index, gpu.model, gpu.uuid, reason, since, pods)


def _events(snapshot: Snapshot) -> Mapping[str, tuple[_Event, ...]]:
    found: dict[str, tuple[_Event, ...]] = {}
    for event in _decoded(snapshot):
        name = event.involved_object.name
        found[name] = (*found.get(name, ()), event)
    return found


def _decoded(snapshot: Snapshot) -> Iterator[_Event]:
    for raw in snapshot.all("Event"):
        event = msgspec.json.decode(raw, type=_Event)
        about = event.involved_object.kind == "Node" and event.metadata.namespace == NAMESPACE
        if about and event.reason == UNHEALTHY:
            yield event
