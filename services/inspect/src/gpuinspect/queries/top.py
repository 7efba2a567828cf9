"""Arena's view of a cluster: exclusive GPUs a node, shares counted as fractions of GPUs.

All nodes are shown, those with NVIDIA's own plugin and those without GPUs too. Allocations of
gpushare resources come from the ledger; those of ``nvidia.com/gpu`` from the pods' limits, the only
source. A pod whose extended resource is allocated by a claim is counted once, as the claim's.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Final

import msgspec

from gpucore.accounting.claims import holder
from gpucore.accounting.device_info import DeviceInfo
from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import NodeInfo, unit_of
from gpucore.model import Allocation
from gpucore.units import NodeName
from gpucore.wire.constraints import pod_requests
from gpucore.wire.names import Names
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.spec import Pod
from gpucore.wire.quantity import amount
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.errors import InspectError, MissingObjectError, similar_names
from gpuinspect.queries.shares import is_shown
from gpuinspect.sources.prometheus import GpuFigures

NVIDIA_GPU: Final = "nvidia.com/gpu"
MIB_BYTES: Final = 1 << 20
_ROLE: Final = "node-role.kubernetes.io/"
_OLD_ROLE: Final = "kubernetes.io/role"


KINDS: Final = ("none", "exclusive", "topology", "share")
"""GPU modes of arena: no GPUs, NVIDIA's resource, exclusive GPUs of gpushare, shares."""


class TwoKindsError(InspectError):
    """A node offers its GPUs twice: by NVIDIA's device plugin and by that of gpushare."""


class TopPod(msgspec.Struct, frozen=True):
    """A pod with GPUs.

    Attributes:
        gpus: how many it holds, a share as a fraction of one.
        shares: it holds shares, and no GPU that it requests as such.
        used_bytes: memory in use; ``None`` where there is no figure.
    """

    namespace: str
    name: str
    gpus: Fraction
    shares: bool = False
    used_bytes: float | None = None


class TopGpu(msgspec.Struct, frozen=True):
    """A GPU: its memory, how much of it is allocated, and how much is in use.

    Attributes:
        total_bytes: as NVML reports it; where the node does not publish that, what it offers.
        reported: the total is that of NVML.
        used_bytes: memory in use; ``None`` where there is no figure.
        utilization: percent; ``None`` as above, and where no dcgm-exporter runs.
    """

    index: int
    uuid: str
    total_bytes: int
    allocated_bytes: int
    used_bytes: float | None = None
    utilization: float | None = None
    model: str = ""
    reported: bool = True


class TopNode(msgspec.Struct, frozen=True):
    """One node: its GPUs in total, in use and unhealthy.

    Attributes:
        kinds: of :data:`KINDS` that the node is of.
        gpus: those of our inventory, by index.
        offered_twice: kubelet allocates ``nvidia.com/gpu`` and memory units of the same GPUs.
    """

    name: str
    address: str
    role: str
    ready: bool
    total: int
    allocated: Fraction
    unhealthy: int = 0
    shareable: bool = False
    kinds: frozenset[str] = frozenset()
    pods: tuple[TopPod, ...] = ()
    gpus: tuple[TopGpu, ...] = ()
    offered_twice: bool = False


def top_nodes(
    snapshot: Snapshot, names: Names, *, only: Collection[str] = (), kind: str = ""
) -> tuple[TopNode, ...]:
    """Every node by name.

    Args:
        only: names of nodes; empty for all.
        kind: one of :data:`KINDS`; empty for all.

    Raises:
        MissingObjectError: there is no node of a name.
    """
    ledger = ledger_of(snapshot, names)
    users = _nvidia_pods(snapshot.pods, names)
    known = {node.name: node for node in snapshot.nodes}
    for name in only:
        if name not in known:
            raise MissingObjectError(f'nodes "{name}" not found{similar_names(name, known)}')
    chosen = (known[NodeName(name)] for name in sorted(set(only) or known))
    found = (_top_node(each, ledger, users.get(each.name, ()), names) for each in chosen)
    return tuple(node for node in found if not kind or kind in node.kinds)


def refuse_two_kinds(nodes: Iterable[TopNode], names: Names) -> None:
    """End where a node offers its GPUs twice, as arena does and in its words.

    Raises:
        TwoKindsError: a node offers both kinds of resources.
    """
    for node in nodes:
        if node.offered_twice:
            raise TwoKindsError(
                f"{NVIDIA_GPU} and {names.gpu_mem} are both used in node {node.name} ."
                "Please use one kind resource of them"
            )


def _nvidia_pods(pods: Iterable[Pod], names: Names) -> Mapping[NodeName, list[TopPod]]:
    found: dict[NodeName, list[TopPod]] = {}
    for pod in pods:
        requested = dict(pod_requests(pod, names)).get(NVIDIA_GPU, 0)
        if requested and pod.node and not pod.finished:
            found.setdefault(pod.node, []).append(
                TopPod(pod.namespace, pod.name, Fraction(requested))
            )
    return found


def _top_node(node: Node, ledger: Ledger, users: Iterable[TopPod], names: Names) -> TopNode:
    node_info = ledger.node(node.name) or NodeInfo(node.name)
    foreign, withdrawn = _nvidia_gpus(node, node_info)
    pods = tuple(sorted([*users, *_holders(node_info)], key=lambda pod: (pod.namespace, pod.name)))
    gpus = [device for device in node_info.devices.values() if device.gpu is not None]
    return TopNode(
        name=node.name,
        address=node.address,
        role=_role(node),
        ready=node.ready,
        total=foreign + len(gpus),
        allocated=sum((pod.gpus for pod in pods), Fraction(0)),
        unhealthy=withdrawn + sum(not device.healthy for device in gpus),
        shareable=_is_shareable(node_info),
        kinds=_kinds(node_info, foreign),
        pods=pods,
        gpus=tuple(_gpus(node_info)),
        offered_twice=all(_allocatable(node, each) for each in (NVIDIA_GPU, names.gpu_mem)),
    )


def _allocatable(node: Node, resource: str) -> int:
    return amount(node.allocatable.get(resource, "0"))


def _nvidia_gpus(node: Node, node_info: NodeInfo) -> tuple[int, int]:
    """GPUs of NVIDIA's device plugin: all of them, and those that kubelet does not allocate.

    kubelet keeps the capacity of a plugin that stopped for minutes: once gpushare offers the GPUs
    of the node, they are counted there alone.
    """
    total, allocatable = amount(node.capacity.get(NVIDIA_GPU, "0")), _allocatable(node, NVIDIA_GPU)
    if not allocatable and (_is_shareable(node_info) or node_info.shape.offers_gpus):
        return 0, 0
    return total, max(total - allocatable, 0)


def with_figures(
    nodes: Iterable[TopNode], figures: GpuFigures, used: Mapping[str, float] | None = None
) -> tuple[TopNode, ...]:
    """The nodes with figures for their GPUs and pods.

    Args:
        used: bytes of memory in use by ``namespace/name`` of a pod.
    """
    return tuple(_with_figures(node, figures, used or {}) for node in nodes)


def _with_figures(node: TopNode, figures: GpuFigures, used: Mapping[str, float]) -> TopNode:
    pods = tuple(
        msgspec.structs.replace(pod, used_bytes=used.get(f"{pod.namespace}/{pod.name}"))
        for pod in node.pods
    )
    gpus = tuple(
        msgspec.structs.replace(
            gpu,
            used_bytes=figures.used_bytes.get(gpu.uuid),
            utilization=figures.utilization.get(gpu.uuid),
        )
        for gpu in node.gpus
    )
    return msgspec.structs.replace(node, gpus=gpus, pods=pods)


def _gpus(node_info: NodeInfo) -> Iterator[TopGpu]:
    unit = unit_of(node_info).mib
    for index, device in sorted(node_info.devices.items()):
        if device.gpu is None:
            continue
        reported = device.gpu.memory_mib
        total = reported or device.gpu.units * unit
        allocated = total if device.taken else device.used * unit
        amounts = (total * MIB_BYTES, allocated * MIB_BYTES)
        yield TopGpu(
            index,
            device.gpu.uuid,
            *amounts,
            model=device.gpu.model,
            reported=bool(reported),
        )


def _is_shareable(node_info: NodeInfo) -> bool:
    """Pods get shares of its GPUs, from the device plugin or by claims."""
    return node_info.shape.offers_shares or node_info.shape.claims


def _kinds(node_info: NodeInfo, foreign: int) -> frozenset[str]:
    offers = {
        "exclusive": foreign > 0,
        "topology": node_info.shape.offers_gpus,
        "share": _is_shareable(node_info),
    }
    return frozenset(kind for kind, offered in offers.items() if offered) or frozenset({"none"})


def _holders(node_info: NodeInfo) -> Iterator[TopPod]:
    for allocation in node_info.allocations.values():
        if is_shown(allocation, node_info):
            _, name = holder(allocation)
            shares = not (allocation.placement.group or allocation.pending_gpus)
            held = _gpus_held(allocation, node_info)
            yield TopPod(allocation.namespace, name, held, shares)


def _gpus_held(allocation: Allocation, node_info: NodeInfo) -> Fraction:
    parts = (
        _part(device, allocation)
        for device in node_info.devices.values()
        if allocation.uid in device.holders
    )
    pending = node_info.shape.counted(allocation.pending, allocation.unit)
    largest = node_info.shape.largest_gpu
    unplaced = Fraction(pending, largest) if largest else Fraction(0)
    return sum(parts, unplaced + allocation.pending_gpus)


def _part(device: DeviceInfo, allocation: Allocation) -> Fraction:
    hold = device.holders[allocation.uid]
    if hold.exclusive:
        return Fraction(1)
    return Fraction(hold.mem, device.total) if device.total else Fraction(0)


def _role(node: Node) -> str:
    roles = [key.removeprefix(_ROLE) for key in node.labels if key.startswith(_ROLE)]
    roles += [node.labels[_OLD_ROLE]] if _OLD_ROLE in node.labels else []
    return ",".join(sorted({role for role in roles if role})) or "<none>"
