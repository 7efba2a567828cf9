"""The pods of a PodGroup that need a place, and what makes them equal."""

from collections.abc import Callable, Collection, Hashable

import msgspec

from gpucore.model import PodRequest
from gpucore.model.constraints import Resources
from gpucore.units import NodeName, PodUid
from gpucore.wire.constraints import VOLUMES_UNSUPPORTED
from gpucore.wire.pod.spec import Pod


class PlacementKind(msgspec.Struct, frozen=True):
    """What pods of a group have in common that may go to the same nodes.

    Attributes:
        owner: UID of their controller.
        scheduler: name of their scheduler.
        selection: their node selector, required node affinity and tolerations.
        pinned: UID of a pod with volumes, which may exist in one zone or on one node only.
    """

    owner: str
    scheduler: str
    selection: Hashable = None
    pinned: str = ""


def kind_of(pod: Pod) -> PlacementKind:
    """The kind of a pod; its owner and scheduler alone where its constraints were not read."""
    known = pod.constraints
    if known is None:
        return PlacementKind(pod.owner, pod.scheduler_name)
    selection = (known.node_selector, known.affinity, known.tolerations)
    pinned = pod.uid if VOLUMES_UNSUPPORTED in known.unsupported else ""
    return PlacementKind(pod.owner, pod.scheduler_name, selection, pinned)


Like = tuple[PodRequest, Resources, PlacementKind]
"""A kind of pods: those that kube-scheduler offers the same nodes."""


class GroupMember(msgspec.Struct, frozen=True):
    """A pod of a group that has no node and requests something of ours.

    Attributes:
        nominated: the node for which it is nominated; empty for none.
        requests: of CPU, memory and other resources of its node, where they are known.
    """

    uid: PodUid
    pod_request: PodRequest
    kind: PlacementKind
    nominated: NodeName = NodeName("")
    requests: Resources = ()

    @property
    def like(self) -> Like:
        """Equal for pods that could take each other's place."""
        return self.pod_request, self.requests, self.kind

    @property
    def size(self) -> tuple[int, int, int]:
        """By which the largest request is placed first."""
        request = self.pod_request
        return request.gpus, request.mem, request.core


Nodes = Callable[[GroupMember], Collection[NodeName]]
"""The nodes that a pod may go to: one object for pods that may go to the same."""
