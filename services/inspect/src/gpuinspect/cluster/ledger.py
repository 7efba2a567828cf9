"""The core's ledger of the objects of a cluster."""

from collections.abc import Mapping

import msgspec

from gpucore.accounting.claims import ClaimAccounts
from gpucore.accounting.ledger import Ledger, rebuilt
from gpucore.wire.claim.resource_claims import decode_claim
from gpucore.wire.claim.resource_slices import decode_slice
from gpucore.wire.names import CLAIM_DRIVER, UNHEALTHY_KEY, UNHEALTHY_NAMESPACE, Names
from gpucore.wire.node.inventories import kept_by_plugin, unhealthy_indexes, unhealthy_node
from gpucore.wire.node.spec import Node
from gpuinspect.cluster.snapshots import Arriving, ListedObjects, Snapshot, uncollected


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    labels: Mapping[str, str] | None = None


class _ConfigMap(msgspec.Struct):
    metadata: _Metadata
    data: Mapping[str, str] | None = None


def ledger_of(snapshot: Snapshot | Arriving, names: Names) -> Ledger:
    """The ledger that these objects give.

    Raises:
        WireError: an amount is no Kubernetes quantity (no API server accepts such an object).
        KubeError: pods that are still being read cannot be.
    """
    with uncollected():
        ledger = rebuilt(names, map(_whole, snapshot.nodes), snapshot.pods)
    for raw in snapshot.all("ConfigMap"):
        config_map = msgspec.json.decode(raw, type=_ConfigMap)
        metadata = config_map.metadata
        node = unhealthy_node(metadata.name)
        if metadata.namespace != UNHEALTHY_NAMESPACE or kept_by_plugin(metadata.labels):
            continue
        if node is not None:
            text = (config_map.data or {}).get(UNHEALTHY_KEY, "")
            ledger.unhealthy_changed(node, unhealthy_indexes(text))
    _enter_claims(snapshot, ledger)
    return ledger


def _enter_claims(snapshot: ListedObjects, ledger: Ledger) -> None:
    accounts = ClaimAccounts(ledger, CLAIM_DRIVER)
    with uncollected():
        accounts.relist_slices(map(decode_slice, snapshot.all("ResourceSlice")))
        accounts.relist_claims(snapshot.readable("ResourceClaim", decode_claim))


def _whole(node: Node) -> Node:
    """Kubelet reports both; a hand-made file may have only the field that the original read."""
    if node.capacity:
        return node
    return msgspec.structs.replace(node, capacity=node.allocatable)
