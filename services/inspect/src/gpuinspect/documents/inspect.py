"""The JSON and YAML that ``gpushare inspect`` answers programs with.

``apiVersion`` is the contract: within a version fields are added and nothing else. Amounts are in
the ``unit`` of the document. Nodes, GPUs and pods are the structs that tables show too.
"""

import msgspec

from gpucore.wire.documents import API_VERSION
from gpuinspect.queries.views import ClusterView, NodeSummary


class Amount(msgspec.Struct, frozen=True):
    """Units allocated and units there are."""

    allocated: int
    total: int


class NodeShareList(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of ``gpushare inspect -o json``.

    ``schedulable`` leaves out cordoned and unready nodes, and unhealthy GPUs.
    """

    api_version: str
    kind: str
    unit: str
    cluster: Amount
    schedulable: Amount
    items: tuple[NodeSummary, ...]


def node_share_list(view: ClusterView) -> NodeShareList:
    """The document of a cluster."""
    return NodeShareList(
        api_version=API_VERSION,
        kind="NodeShareList",
        unit=str(view.unit),
        cluster=Amount(view.used, view.total),
        schedulable=Amount(view.schedulable.used, view.schedulable.total),
        items=view.nodes,
    )
