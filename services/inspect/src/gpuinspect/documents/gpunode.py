"""The document of ``kubectl inspect gpu``."""

from collections.abc import Iterable

import msgspec

from gpucore.wire.documents import API_VERSION, Document
from gpuinspect.queries.views import GpuNode, GpuWithPods


class GpuNodeDoc(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One node; ``links`` is ``"0-1"`` to what joins the two GPUs.

    ``pendingGpu`` counts exclusive GPUs whose indexes are unknown, part of ``usedGpu``; left out
    if 0.
    """

    name: str
    node_type: str
    all_gpu: int
    used_gpu: int
    gpus: list[GpuWithPods]
    links: dict[str, list[str]]
    pending_gpu: int = 0


class GpuNodeList(Document, frozen=True):
    """The answer of ``kubectl inspect gpu -o json``; ``policy`` chooses GPUs by their links."""

    items: list[GpuNodeDoc]
    policy: str


def gpu_node_list(nodes: Iterable[GpuNode], policy: str) -> GpuNodeList:
    """The document of these nodes."""
    return GpuNodeList(API_VERSION, "GpuNodeList", [_node(each) for each in nodes], policy)


def _node(node: GpuNode) -> GpuNodeDoc:
    return GpuNodeDoc(
        name=node.name,
        node_type=node.node_type,
        all_gpu=len(node.gpus),
        used_gpu=node.gpus_in_use,
        gpus=list(node.gpus),
        links=_links(node),
        pending_gpu=sum(node.pending.values()),
    )


def _links(node: GpuNode) -> dict[str, list[str]]:
    if node.matrix is None:
        return {}
    return {f"{a}-{b}": list(links) for (a, b), links in sorted(node.matrix.links.items())}
