"""The answers for gangs and PodGroups, why there is none, and what a place of a gang holds."""

from enum import StrEnum

import msgspec

from gpucore.gang.members import Postponed
from gpucore.model import Allocation, Placement, PodRequest
from gpucore.scheduling.device_fit import per_device
from gpucore.units import GpuIndex, MemoryUnit, NodeName, PodUid
from gpucore.wire.pod.gangs import Gang


class GangPlacement(msgspec.Struct, frozen=True):
    """Placements for every pod of a gang that has none.

    Attributes:
        reservations: allocations to reserve now, or already reserved.
        given_up: reservations to forget first.
    """

    reservations: tuple[Allocation, ...]
    given_up: tuple[PodUid, ...] = ()


class Shortage(msgspec.Struct, frozen=True):
    """Why the gang as a whole cannot be placed: a value, not an error.

    Attributes:
        missing: pods that need a placement; some may be placed already.
        room: how many could be placed, on how many ``nodes``.
        roomiest: the first of the nodes that fit most pods, and how many each fits.
        unit: of the nodes that could be used; ``None`` where they differ.
    """

    gang: Gang
    pod_request: PodRequest
    missing: int
    room: int
    nodes: int
    roomiest: tuple[tuple[NodeName, int], ...] = ()
    unit: MemoryUnit | None = None


class GroupShortage(msgspec.Struct, frozen=True):
    """Why too few pods of a group can be placed.

    Attributes:
        needed: pods that have to be placed together, besides those that are.
        found: how many could be placed.
        requests: of the pods without a node, with their numbers.
        unit: of all nodes; ``None`` where they differ.
    """

    gang: Gang
    needed: int
    found: int
    requests: tuple[tuple[PodRequest, int], ...]
    unit: MemoryUnit | None = None


class GroupCause(StrEnum):
    """Why one pod of a group has no place."""

    OTHERS_ONLY = "others only"
    """The group has places, for other pods."""
    LOST = "lost"
    """Other pods took the places since filter was called."""
    NOT_THERE = "not there"
    """There is no place on the node of the bind."""


class GroupRefusal(msgspec.Struct, frozen=True):
    """Why one pod of a group has no place.

    Attributes:
        placed: number of the group's pods that have one.
        node: of the bind; empty in a filter call.
    """

    gang: Gang
    cause: GroupCause
    placed: int = 0
    node: NodeName = NodeName("")


Refused = GroupShortage | GroupRefusal | Postponed
"""Why a pod of a group has no place: a value, not an error."""


class PlaceShape(msgspec.Struct, frozen=True):
    """What a place of a gang holds; pods whose requests need the same of GPUs share their places.

    Pods of one gang may have different requests, such as a launcher and its workers. The place of
    one kind is of no use to the other, so it stays while pods of its own kind wait.

    Attributes:
        exclusive: number of exclusive GPUs.
        gpus: number of GPUs, exclusive or shared.
        mem, core: units and percent on each shared GPU.
        alone: a share that has its GPUs to itself.
    """

    exclusive: int
    gpus: int
    mem: int
    core: int
    alone: bool


def shape_of(pod_request: PodRequest) -> PlaceShape:
    """The places for pods with this request."""
    mem, core = per_device(pod_request)
    gpus = pod_request.gpus or pod_request.gpu_count
    return PlaceShape(pod_request.gpus, gpus, mem, core, pod_request.whole_device)


def shape_of_place(place: Allocation) -> PlaceShape:
    """The shape of a place that is reserved."""
    placement = place.placement
    mem, core = (max(part.values(), default=0) for part in (placement.mem, placement.core))
    gpus = len(gpus_of(placement))
    return PlaceShape(len(placement.group), gpus, mem, core, place.exclusive)


def gpus_of(placement: Placement) -> tuple[GpuIndex, ...]:
    """The GPUs of a placement, exclusive or shared."""
    return placement.group or tuple(placement.mem or placement.core)
