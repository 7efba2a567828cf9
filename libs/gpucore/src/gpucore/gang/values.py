"""How the GPUs of a gang are chosen, and the answers: its placement, or why it has none."""

import msgspec

from gpucore.model import Allocation, PodRequest
from gpucore.scheduling.grouping import BY_LINKS, Grouping
from gpucore.units import MemoryUnit, NodeName, PodUid
from gpucore.wire.pod.gangs import Gang


class Rules(msgspec.Struct, frozen=True):
    """How GPUs are chosen: the policy's name, and the grouping of several GPUs."""

    policy: str = ""
    grouping: Grouping = BY_LINKS


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
