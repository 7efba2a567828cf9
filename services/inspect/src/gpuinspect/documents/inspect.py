"""The JSON and YAML that ``gpushare inspect`` answers programs with.

``apiVersion`` is the contract: within a version fields are added and nothing else. Amounts are in
the ``unit`` of the document. Nodes, GPUs and pods are the structs that tables show too.
"""

import msgspec

from gpucore.wire.documents import API_VERSION, Document
from gpuinspect.queries.views import ClusterView, NodeSummary


class Amount(msgspec.Struct, frozen=True):
    """Units allocated and units there are."""

    allocated: int
    total: int


class NodeShareList(Document, frozen=True):
    """The answer of ``gpushare inspect -o json``.

    ``schedulable`` leaves out cordoned and unready nodes, and unhealthy GPUs.
    """

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
