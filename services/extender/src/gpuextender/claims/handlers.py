"""ResourceSlices and ResourceClaims into the state; read only where the chart enables it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from gpucore.accounting.claims import ClaimAccounts
from gpucore.units import NodeName
from gpucore.wire import lists
from gpucore.wire.claim.resource_claims import ResourceClaim, node_of_claim
from gpucore.wire.claim.resource_slices import PATH, ResourceSlice
from gpucore.wire.names import CLAIM_DRIVER
from gpuextender.state import State
from gpukube.watch.collection import Collection, EventHandler

CLAIMS_PATH: Final = "/apis/resource.k8s.io/v1/resourceclaims"
SLICES: Final = Collection(
    "resourceslices",
    PATH,
    lists.decode_slices,
    lists.decode_slice_event,
    params={"fieldSelector": f"spec.driver={CLAIM_DRIVER}"},
)
CLAIMS: Final = Collection(
    "resourceclaims", CLAIMS_PATH, lists.decode_claims, lists.decode_claim_event
)


class SliceHandler:
    """ResourceSlices into the ledger.

    Args:
        changed: called with every node whose GPUs may have changed.
    """

    def __init__(self, accounts: ClaimAccounts, changed: Callable[[NodeName], object]) -> None:
        self._accounts, self._changed = accounts, changed
        self._nodes: dict[str, NodeName] = {}

    def on_replace(self, items: Iterable[ResourceSlice]) -> None:
        listed = list(items)
        self._accounts.relist_slices(listed)
        before = set(self._nodes.values())
        self._nodes = {each.name: NodeName(each.node) for each in listed}
        for node in before | set(self._nodes.values()):
            self._changed(node)

    def on_update(self, item: ResourceSlice, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        self._accounts.slice_changed(item)
        self._nodes[item.name] = NodeName(item.node)
        self._changed(NodeName(item.node))

    def on_delete(self, item: ResourceSlice) -> None:
        self._accounts.slice_gone(item.name)
        self._nodes.pop(item.name, None)
        self._changed(NodeName(item.node))


class ClaimHandler:
    """ResourceClaims into the ledger; ``changed`` as of :class:`SliceHandler`."""

    def __init__(
        self, state: State, accounts: ClaimAccounts, changed: Callable[[NodeName], object]
    ) -> None:
        self._ledger, self._accounts, self._changed = state.ledger, accounts, changed

    def on_replace(self, items: Iterable[ResourceClaim]) -> None:
        before = self._held()
        self._accounts.relist_claims(items)
        for node in before | self._held():
            self._changed(node)

    def on_update(self, item: ResourceClaim, line: bytes) -> None:  # noqa: ARG002 - the protocol's
        before = self._ledger.allocation(item.uid)
        self._accounts.claim_changed(item)
        after = node_of_claim(item, CLAIM_DRIVER)
        for node in {after, before and before.placement.node} - {None}:
            self._changed(NodeName(str(node)))

    def on_delete(self, item: ResourceClaim) -> None:
        before = self._ledger.allocation(item.uid)
        self._accounts.claim_gone(item.uid)
        if before is not None:
            self._changed(before.placement.node)

    def _held(self) -> set[NodeName]:
        held = (self._ledger.allocation(uid) for uid in self._ledger.claims())
        return {each.placement.node for each in held if each is not None}


def handlers(state: State) -> Sequence[tuple[Collection[Any], EventHandler[Any]]]:
    """The collections to follow, with their handlers; slices first."""
    accounts, changed = ClaimAccounts(state.ledger, CLAIM_DRIVER), state.touched
    return (
        (SLICES, SliceHandler(accounts, changed)),
        (CLAIMS, ClaimHandler(state, accounts, changed)),
    )
