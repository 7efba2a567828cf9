"""The JSON and YAML that ``gpushare inspect`` answers programs with.

``apiVersion`` is the contract: within a version fields are added and nothing else. Amounts are in
the ``unit`` of the document.
"""

import msgspec

from gpucore.wire.documents import API_VERSION
from gpuinspect.queries.views import ClusterView, GpuSummary, NodeSummary, PodSummary


class Amount(msgspec.Struct, frozen=True):
    """Units allocated and units there are."""

    allocated: int
    total: int


class GpuDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One GPU."""

    index: int
    uuid: str
    model: str
    memory_mib: int = msgspec.field(name="memoryMiB")
    allocated: int
    total: int
    core_percent: int
    whole: bool
    healthy: bool
    mode: str


class PodDoc(msgspec.Struct, frozen=True, rename="camel"):
    """What one pod holds: units and percent by index of the GPU, and GPUs held whole.

    ``limits`` has the units that it may use of a GPU where these are more than its share;
    ``claim`` is the name of the ResourceClaim, empty without one.
    """

    namespace: str
    name: str
    uid: str
    state: str
    gpus: dict[str, int]
    limits: dict[str, int]
    core_percent: dict[str, int]
    whole_gpus: list[int]
    pending: int
    faults: list[str]
    claim: str


class NodeDoc(msgspec.Struct, frozen=True, rename="camel"):
    """One node that shares its GPUs; ``unit`` is what its plugin counts in."""

    name: str
    address: str
    ready: bool
    cordoned: bool
    unit: str
    unit_explicit: bool
    driver: str
    allocated: int
    total: int
    pending: int
    gpus: list[GpuDoc]
    pods: list[PodDoc]


class NodeShareList(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of ``gpushare inspect -o json``.

    ``schedulable`` leaves out cordoned and unready nodes, and unhealthy GPUs.
    """

    api_version: str
    kind: str
    unit: str
    cluster: Amount
    schedulable: Amount
    items: list[NodeDoc]


def node_share_list(view: ClusterView) -> NodeShareList:
    """The document of a cluster."""
    return NodeShareList(
        api_version=API_VERSION,
        kind="NodeShareList",
        unit=str(view.unit),
        cluster=Amount(view.used, view.total),
        schedulable=Amount(view.schedulable.used, view.schedulable.total),
        items=[_node(node) for node in view.nodes],
    )


def _node(node: NodeSummary) -> NodeDoc:
    return NodeDoc(
        name=node.name,
        address=node.address,
        ready=node.ready,
        cordoned=node.cordoned,
        unit=node.unit,
        unit_explicit=node.explicit,
        driver=node.driver,
        allocated=node.used,
        total=node.total,
        pending=node.pending,
        gpus=[_gpu(gpu) for gpu in node.gpus],
        pods=[_pod(pod) for pod in node.pods],
    )


def _gpu(gpu: GpuSummary) -> GpuDoc:
    return GpuDoc(
        index=gpu.index,
        uuid=gpu.uuid,
        model=gpu.model,
        memory_mib=gpu.memory_mib,
        allocated=gpu.used,
        total=gpu.total,
        core_percent=gpu.core,
        whole=gpu.whole,
        healthy=gpu.healthy,
        mode=gpu.mode,
    )


def _pod(pod: PodSummary) -> PodDoc:
    return PodDoc(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        state=pod.state,
        gpus={str(index): units for index, units in pod.gpus.items()},
        limits={str(index): units for index, units in pod.limits.items()},
        core_percent={str(index): percent for index, percent in pod.core.items()},
        whole_gpus=list(pod.group),
        pending=pod.pending,
        faults=list(pod.faults),
        claim=pod.claim,
    )
