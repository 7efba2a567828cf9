"""What prepared claims hold, for the ledger's figures and the order of the devices."""

from collections.abc import Iterable

from gpucore.model import Allocation, Gpu
from gpucore.node.claims.prepared import PreparedClaim
from gpucore.units import NodeName, PodUid
from gpucore.wire.claim.devices import device_indexes
from gpucore.wire.claim.resource_claims import ResourceClaim, allocation_of_claim


def allocations(
    prepared: Iterable[PreparedClaim], node: NodeName, gpus: Iterable[Gpu]
) -> list[Allocation]:
    """The allocations of these claims on the GPUs of the node."""
    indexes = device_indexes(gpus)
    claims = map(_claim, prepared)
    found = (allocation_of_claim(each, node, indexes) for each in claims)
    return [each for each in found if each is not None]


def _claim(claim: PreparedClaim) -> ResourceClaim:
    shares = claim.allocated.devices
    return ResourceClaim(PodUid(claim.uid), claim.namespace, claim.name, shares)
