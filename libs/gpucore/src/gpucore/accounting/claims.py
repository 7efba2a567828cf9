"""ResourceSlices and ResourceClaims in the ledger: what nodes offer and what claims hold.

A list of all slices and claims gives the same state as any history of events that ends there, and
the order of pods, claims and slices makes no difference.
"""

from collections.abc import Iterable

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.model import Allocation, AllocationState
from gpucore.units import NodeName, PodUid
from gpucore.wire.claim.devices import device_indexes
from gpucore.wire.claim.resource_claims import ResourceClaim, allocation_of_claim, node_of_claim
from gpucore.wire.claim.resource_slices import ResourceSlice, inventory_of_slices
from gpucore.wire.names import CLAIM_DRIVER


def holder(allocation: Allocation) -> tuple[PodUid, str]:
    """UID and name of the pod; those of the claim where no pod or several may use it."""
    users = allocation.users or ()
    return users[0] if len(users) == 1 else (allocation.uid, allocation.name)


class ClaimAccounts:
    """Enters the slices and claims of one driver into a ledger, which has one of these."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._claims: dict[PodUid, ResourceClaim] = {}
        self._on: dict[NodeName, set[PodUid]] = {}
        ledger.reshaped = self._reshaped
        self._slices: dict[str, ResourceSlice] = {}
        self._nodes: dict[NodeName, dict[str, ResourceSlice]] = {}

    def slice_changed(self, found: ResourceSlice) -> None:
        """A ResourceSlice was added or changed; those of other drivers are ignored."""
        if found.driver != CLAIM_DRIVER or not found.node or found.pool != found.node:
            self.slice_gone(found.name)
            return
        known = self._slices.get(found.name)
        if known is not None and known.node != found.node:
            self.slice_gone(found.name)
        self._slices[found.name] = found
        self._nodes.setdefault(NodeName(found.node), {})[found.name] = found
        self._offer(NodeName(found.node))

    def slice_gone(self, name: str) -> None:
        known = self._slices.pop(name, None)
        if known is not None:
            node = NodeName(known.node)
            del self._nodes[node][name]
            self._offer(node)

    def relist_slices(self, slices: Iterable[ResourceSlice]) -> None:
        """These are all slices."""
        listed = {each.name: each for each in slices}
        for name in self._slices.keys() - listed.keys():
            self.slice_gone(name)
        for each in listed.values():
            self.slice_changed(each)

    def slices(self, node: NodeName) -> list[ResourceSlice]:
        """The slices of a node, by name."""
        found = self._nodes.get(node, {})
        return [found[name] for name in sorted(found)]

    def claim_changed(self, claim: ResourceClaim) -> None:
        """A ResourceClaim was added or changed; it may have been deallocated."""
        node = node_of_claim(claim)
        known = self._claims.get(claim.uid)
        if node is None or (known is not None and node_of_claim(known) != node):
            self.claim_gone(claim.uid)
        if node is not None:
            self._claims[claim.uid] = claim
            self._on.setdefault(node, set()).add(claim.uid)
            self._hold(claim, node)

    def claim_gone(self, uid: PodUid) -> None:
        known = self._claims.pop(uid, None)
        node = None if known is None else node_of_claim(known)
        if node is not None:
            self._on[node].discard(uid)
            if not self._on[node]:
                del self._on[node]
            self._ledger.release_claim(uid)

    def relist_claims(self, claims: Iterable[ResourceClaim]) -> None:
        """These are all claims."""
        listed: set[PodUid] = set()
        for claim in claims:
            self.claim_changed(claim)
            listed.add(claim.uid)
        for uid in self._claims.keys() - listed:
            self.claim_gone(uid)

    def _hold(self, claim: ResourceClaim, node: NodeName) -> None:
        info = self._ledger.node(node)
        gpus = info.inventory.gpus if info and info.inventory else ()
        held = allocation_of_claim(claim, node, device_indexes(gpus))
        if held is not None:  # no device plugin has to confirm what kube-scheduler allocated
            confirmed = msgspec.structs.replace(held, state=AllocationState.CONFIRMED)
            self._ledger.hold_claim(confirmed)

    def _reshaped(self, node: NodeName) -> None:
        """Names of devices are those of other GPUs now, or of none."""
        for uid in sorted(self._on.get(node, ())):
            self._hold(self._claims[uid], node)

    def _offer(self, node: NodeName) -> None:
        self._ledger.offered_changed(node, inventory_of_slices(self.slices(node)))
        if not self._nodes[node]:
            del self._nodes[node]
