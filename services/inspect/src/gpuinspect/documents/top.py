"""JSON and YAML of ``gpushare top node``; versions as in :mod:`gpuinspect.documents.inspect`."""

from collections.abc import Iterable

import msgspec

from gpucore.wire.documents import API_VERSION, Document
from gpuinspect.queries.top import TopGpu, TopNode, TopPod


class TopPodDoc(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A pod with GPUs and how many GPUs it holds, a share as a decimal.

    Attributes:
        used_bytes: with ``--metric``, where there is a figure.
    """

    namespace: str
    name: str
    gpus: float
    used_bytes: int | None = None


class TopGpuDoc(msgspec.Struct, frozen=True, rename="camel"):
    """A GPU with the figures of ``--metric``; ``null`` where there is none."""

    index: int
    uuid: str
    total_bytes: int
    allocated_bytes: int
    used_bytes: int | None
    utilization_percent: float | None


class TopNodeDoc(msgspec.Struct, frozen=True, omit_defaults=True):
    """GPUs of one node; ``gpus`` with ``--metric`` alone."""

    name: str
    address: str
    role: str
    ready: bool
    shareable: bool
    total: int
    allocated: float
    unhealthy: int
    pods: list[TopPodDoc]
    gpus: list[TopGpuDoc] | None = None


class NodeGpuList(Document, frozen=True):
    """The answer of ``gpushare top node -o json``."""

    items: list[TopNodeDoc]


def node_gpu_list(nodes: Iterable[TopNode], *, metric: bool = False) -> NodeGpuList:
    """The document of a cluster; with the figures of each GPU if ``metric``."""
    items = [_node(node, metric=metric) for node in nodes]
    return NodeGpuList(API_VERSION, "NodeGpuList", items)


def _node(node: TopNode, *, metric: bool) -> TopNodeDoc:
    return TopNodeDoc(
        name=node.name,
        address=node.address,
        role=node.role,
        ready=node.ready,
        shareable=node.shareable,
        total=node.total,
        allocated=round(float(node.allocated), 3),
        unhealthy=node.unhealthy,
        pods=[_pod(pod) for pod in node.pods],
        gpus=[_gpu(gpu) for gpu in node.gpus] if metric else None,
    )


def _pod(pod: TopPod) -> TopPodDoc:
    used = None if pod.used_bytes is None else round(pod.used_bytes)
    return TopPodDoc(pod.namespace, pod.name, round(float(pod.gpus), 3), used)


def _gpu(gpu: TopGpu) -> TopGpuDoc:
    return TopGpuDoc(
        index=gpu.index,
        uuid=gpu.uuid,
        total_bytes=gpu.total_bytes,
        allocated_bytes=gpu.allocated_bytes,
        used_bytes=None if gpu.used_bytes is None else round(gpu.used_bytes),
        utilization_percent=gpu.utilization,
    )
