"""The answers for gangs and PodGroups, and why there is none."""

from enum import StrEnum

import msgspec

from gpucore.gang.members import Postponed
from gpucore.model import Allocation, PodRequest
from gpucore.units import MemoryUnit, NodeName, PodUid
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
