"""Nodes that do not exist yet, as an autoscaler describes them: full objects with an inventory.

They are read for one request and not kept.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import FitError, PodRequest
from gpucore.scheduling.fit import fit
from gpucore.units import NodeName
from gpucore.wire.names import INVENTORY
from gpucore.wire.node.spec import decode_node

Templates = Mapping[NodeName, NodeInfo]
"""Empty nodes by name."""
NO_TEMPLATES: Final[Templates] = MappingProxyType({})


def template_nodes(ledger: Ledger, items: Mapping[NodeName, msgspec.Raw]) -> Templates:
    """Empty nodes as these objects describe them.

    Args:
        ledger: nodes that it has, or for which it counts pods, are left out.
        items: node objects by name; those without the inventory annotation are left out.

    Raises:
        WireError: an object is no node of the Kubernetes API.
    """
    unknown = [raw for name, raw in items.items() if ledger.node(name) is None]
    if not unknown:
        return NO_TEMPLATES
    found = Ledger(ledger.names)
    for raw in unknown:
        node = decode_node(raw)
        if INVENTORY in node.annotations:
            found.node_changed(node)
    for info in found.nodes().values():
        info.reshape(info.shape.without_pods())
    return found.nodes()


def template_refusals(
    templates: Templates, pod_request: PodRequest | None
) -> Mapping[NodeName, FitError]:
    """Why a pod does not fit these nodes; those that it fits are left out."""
    if pod_request is None:
        return {}
    found = {name: fit(node, pod_request) for name, node in templates.items()}
    return {name: refusal for name, refusal in found.items() if refusal is not None}
