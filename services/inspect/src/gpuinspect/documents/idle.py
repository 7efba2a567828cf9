"""JSON and YAML of ``gpushare idle``; versions as in :mod:`gpuinspect.documents.inspect`."""

from collections.abc import Sequence

import msgspec

from gpucore.wire.documents import API_VERSION
from gpuinspect.queries.idle import IdleShare, IdleShares


class IdleShareDoc(msgspec.Struct, frozen=True, rename="camel"):
    """A pod that holds GPU memory and does not use it, or runs no work on its GPUs.

    ``usedBytes`` is memory in use, by a pod that runs no work.
    ``gpus`` is the part of GPUs that it holds, ``gpuHours`` that part times the idle time, ``cost``
    at the given price; ``since`` is its creation, RFC 3339.
    """

    namespace: str
    name: str
    uid: str
    workload_kind: str
    workload: str
    node: str
    units: int
    gpus: float
    idle_seconds: int
    gpu_hours: float
    cost: float
    since: str
    used_bytes: int


class IdleShareList(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of ``gpushare idle -o json``.

    ``namespace`` is empty for all namespaces; ``unit`` is that of ``units``; ``allowed`` is the
    number of idle pods that are left out by their label, ``unknown`` that of pods whose memory in
    use is not known; ``gaps`` is what could not be read.
    """

    api_version: str
    kind: str
    namespace: str
    unit: str
    allowed: int
    unknown: int
    gaps: list[str]
    items: list[IdleShareDoc]


def idle_share_list(
    found: IdleShares, *, namespace: str, price: float, gaps: Sequence[str]
) -> IdleShareList:
    """The document of idle shares."""
    return IdleShareList(
        api_version=API_VERSION,
        kind="IdleShareList",
        namespace=namespace,
        unit=str(found.unit),
        allowed=found.allowed,
        unknown=found.unknown,
        gaps=list(gaps),
        items=[_doc(share, price) for share in found.shares],
    )


def _doc(share: IdleShare, price: float) -> IdleShareDoc:
    return IdleShareDoc(
        namespace=share.namespace,
        name=share.name,
        uid=share.uid,
        workload_kind=share.kind,
        workload=share.workload,
        node=share.node,
        units=share.units,
        gpus=round(share.gpus, 4),
        idle_seconds=int(share.idle_seconds),
        gpu_hours=round(share.gpu_hours, 4),
        cost=round(share.cost(price), 2),
        since=share.since,
        used_bytes=share.used_bytes,
    )
