"""The core's ledger of the objects of a cluster."""

import msgspec

from gpucore.accounting.claims import ClaimAccounts
from gpucore.accounting.ledger import Ledger, rebuilt
from gpucore.units import GpuIndex, NodeName
from gpucore.wire.claim.resource_claims import decode_claim
from gpucore.wire.claim.resource_slices import decode_slice
from gpucore.wire.configmaps import decode_config_map
from gpucore.wire.names import UNHEALTHY_KEY, UNHEALTHY_NAMESPACE, Names
from gpucore.wire.node.inventories import kept_by_plugin, unhealthy_indexes, unhealthy_node
from gpucore.wire.node.spec import Node
from gpuinspect.cluster.snapshots import Arriving, ListedObjects, Snapshot, uncollected


def ledger_of(snapshot: Snapshot | Arriving, names: Names) -> Ledger:
    """The ledger that these objects give.

    Raises:
        WireError: an amount is no Kubernetes quantity (no API server accepts such an object).
        KubeError: pods that are still being read cannot be.
    """
    with uncollected():
        ledger = rebuilt(names, map(_whole, snapshot.nodes), snapshot.pods)
    for node, gpus in withdrawn_gpus(snapshot).items():
        ledger.unhealthy_changed(node, gpus)
    _enter_claims(snapshot, ledger)
    return ledger


def withdrawn_gpus(snapshot: ListedObjects) -> dict[NodeName, frozenset[GpuIndex]]:
    """The GPUs that ConfigMaps withdraw, by node; those of this project's plugins left out."""
    found: dict[NodeName, frozenset[GpuIndex]] = {}
    for each in map(decode_config_map, snapshot.all("ConfigMap")):
        node = unhealthy_node(each.name)
        if each.namespace != UNHEALTHY_NAMESPACE or kept_by_plugin(each.labels):
            continue
        if node is not None:
            found[node] = unhealthy_indexes(each.data.get(UNHEALTHY_KEY, ""))
    return found


def _enter_claims(snapshot: ListedObjects, ledger: Ledger) -> None:
    accounts = ClaimAccounts(ledger)
    with uncollected():
        accounts.relist_slices(map(decode_slice, snapshot.all("ResourceSlice")))
        accounts.relist_claims(snapshot.readable("ResourceClaim", decode_claim))


def _whole(node: Node) -> Node:
    """Kubelet reports both; a hand-made file may have only the field that the original read."""
    if node.capacity:
        return node
    return msgspec.structs.replace(node, capacity=node.allocatable)
