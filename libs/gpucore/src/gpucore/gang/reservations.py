"""Reservations of gangs that are not needed any more, and a place that is kept after all."""

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.gang.able_nodes import shape_of, shape_of_place
from gpucore.model import Allocation, AllocationState, PodRequest
from gpucore.units import PodUid
from gpucore.wire.pod.gangs import Gang, reservation_uid


def spare(
    allocations: Iterable[Allocation],
    size: int,
    *,
    waiting: int,
    requests: Iterable[PodRequest] = (),
) -> list[PodUid]:
    """Reservations of a gang that no pod will use.

    Args:
        allocations: all that are of the gang.
        size: pods it has in all.
        waiting: pods of the gang that exist and have no place.
        requests: those of these pods that are known; places for others go first.
    """
    found = list(allocations)
    reservations = [one for one in found if one.state is AllocationState.RESERVED]
    members = len(found) - len(reservations)
    used, unused = _by_use(reservations, requests)
    return [*used, *unused][max(min(size - members, waiting), 0) :]


def _by_use(
    reservations: Iterable[Allocation], requests: Iterable[PodRequest]
) -> tuple[list[PodUid], list[PodUid]]:
    """The places that pods with these requests can take, and all others."""
    wanted = Counter(map(shape_of, requests))
    used, unused = list[PodUid](), list[PodUid]()
    for one in reservations:
        shape = shape_of_place(one)
        (used if wanted[shape] > 0 else unused).append(one.uid)
        wanted[shape] -= 1
    return used, unused


def vanished_gangs(allocations: Iterable[Allocation], gangs: Collection[Gang]) -> set[Gang]:
    """Gangs other than ``gangs`` for which something is reserved, as gangs without a pod."""
    present = {(gang.namespace, gang.name) for gang in gangs}
    return {
        Gang(one.namespace, one.gang, 0)
        for one in allocations
        if one.state is AllocationState.RESERVED and (one.namespace, one.gang) not in present
    }


def reservation_of(allocation: Allocation) -> Allocation:
    """The place of a member whose bind failed, to be kept for it."""
    uid = PodUid(f"gang/{allocation.namespace}/{allocation.gang}/{allocation.uid}")
    return msgspec.structs.replace(
        allocation, uid=uid, name=f"gang {allocation.gang}", state=AllocationState.RESERVED
    )


def reserved_of(gang: Gang, allocations: Iterable[Allocation]) -> dict[PodUid, Allocation]:
    """Of all allocations of a group, the places reserved for its pods, by the pods' UIDs."""
    prefix = len(reservation_uid(gang, PodUid("")))
    return {
        PodUid(one.uid[prefix:]): one
        for one in allocations
        if one.state is AllocationState.RESERVED
    }


def reserved_for(ledger: Ledger, gang: Gang) -> dict[PodUid, Allocation]:
    """The places that are reserved for pods of a group, by the pods' UIDs."""
    return reserved_of(gang, ledger.gang(gang.namespace, gang.name))
