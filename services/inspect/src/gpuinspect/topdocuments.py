"""The JSON and YAML of ``gpushare top node``; versioned as in :mod:`gpuinspect.documents`."""

from collections.abc import Iterable

import msgspec

from gpuinspect.documents import API_VERSION
from gpuinspect.topnodes import TopNode


class TopPodDoc(msgspec.Struct, frozen=True):
    """A pod with GPUs and how many cards it holds, a share as a decimal."""

    namespace: str
    name: str
    gpus: float


class TopNodeDoc(msgspec.Struct, frozen=True):
    """Cards of one node."""

    name: str
    address: str
    role: str
    ready: bool
    shareable: bool
    total: int
    allocated: float
    unhealthy: int
    pods: list[TopPodDoc]


class NodeGpuList(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of ``gpushare top node -o json``."""

    api_version: str
    kind: str
    items: list[TopNodeDoc]


def node_gpu_list(nodes: Iterable[TopNode]) -> NodeGpuList:
    """The document of a cluster."""
    return NodeGpuList(API_VERSION, "NodeGpuList", [_node(node) for node in nodes])


def _node(node: TopNode) -> TopNodeDoc:
    return TopNodeDoc(
        name=node.name,
        address=node.address,
        role=node.role,
        ready=node.ready,
        shareable=node.shareable,
        total=node.total,
        allocated=round(float(node.allocated), 3),
        unhealthy=node.unhealthy,
        pods=[TopPodDoc(pod.namespace, pod.name, round(float(pod.cards), 3)) for pod in node.pods],
    )
