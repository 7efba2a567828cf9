"""Which GPUs are verified, and what of them is free: pods that run are never in the way.

The ledger decides, as it does in the scheduler extender.
"""

from collections.abc import Iterator, Mapping

import msgspec

from gpucore.accounting.device_info import DeviceInfo
from gpucore.accounting.node_info import NodeInfo, unit_of
from gpucore.model import FitError, PodRequest
from gpucore.model.links import nvlinks_of, pair_of
from gpucore.scheduling.policy import place
from gpucore.units import GpuIndex, NodeName
from gpucore.wire.names import Names
from gpucore.wire.node.spec import Node
from gpuinspect.cluster.ledger import ledger_of
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.errors import InspectError, MissingObjectError
from gpuprobe.checks.memory import MARGIN_MIB

SHARE_MIB = 2048
"""A share in which a CUDA context leaves room for a measurement."""
BEYOND_MIB = 1024
"""Memory beyond the share that no pod holds, for a process that tries to take more."""
WANTED_MIB = 4096
PREFERRED_POLICIES = ("spread", "binpack", "fragmentation")


class ProofTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU to verify, as the cluster had it before.

    Attributes:
        unit_mib: MiB of one unit of the node.
        total, free: units of the GPU.
        empty: no pod holds any of it.
        core_free: percent of compute.
        free_gpus: GPUs of the node that no pod holds, without MIG instances.
        links: NVLinks and link names of each pair of GPUs of the node.
        whole_offered: the node offers exclusive GPUs.
    """

    node: NodeName
    index: GpuIndex
    uuid: str
    model: str
    mode: str
    driver: str
    memory_mib: int
    unit_mib: int
    total: int
    free: int
    core_free: int
    empty: bool
    free_gpus: int = 0
    links: Mapping[tuple[int, int], tuple[int, str]] = msgspec.field(default_factory=dict)
    whole_offered: bool = False

    def units(self, mib: int) -> int:
        """Units that are at least this much memory."""
        return -(-mib // self.unit_mib)

    @property
    def share(self) -> int:
        """Units of a share: with room to try to take more, without taking what pods hold."""
        return min(self.units(WANTED_MIB), max(self.free * 2 // 3, self.units(SHARE_MIB)))

    @property
    def free_mib(self) -> int:
        """Memory that no pod holds."""
        return self.free * self.unit_mib

    @property
    def usable_mib(self) -> int:
        """What a process may allocate of it, besides its CUDA context."""
        return self.free_mib - MARGIN_MIB

    @property
    def refusal(self) -> str:
        """Why nothing can be verified here, with what would be needed; empty otherwise."""
        needed = self.units(self.units(SHARE_MIB) * self.unit_mib + BEYOND_MIB)
        if self.free >= needed:
            return ""
        return (
            f"GPU {self.index} of node {self.node} has {self.free} of {self.total} units free;"
            f" verify needs {needed} units ({needed * self.unit_mib} MiB)"
        )


def targets(
    snapshot: Snapshot, names: Names, *, node: str = "", gpu: int | None = None
) -> tuple[ProofTarget, ...]:
    """One GPU of each model of each node, or the ones that are named.

    Raises:
        MissingObjectError: there is no such node or GPU.
        InspectError: no node offers shares through the device plugin.
    """
    ledger = ledger_of(snapshot, names)
    nodes = [each for each in snapshot.nodes if not node or each.name == node]
    if node and not nodes:
        raise MissingObjectError(f'nodes "{node}" not found')
    found: list[ProofTarget] = []
    for each in nodes:
        node_info = ledger.node(each.name)
        if node_info is not None and each.ready and not each.unschedulable:
            found += _of_node(each, node_info, names, gpu=gpu)
    if found:
        return tuple(sorted(found, key=lambda one: (one.node, one.index)))
    which = f"GPU {gpu}" if gpu is not None else "GPU"
    where = f"node {node}" if node else "the cluster"
    raise InspectError(
        f"{where} has no healthy {which} to verify: it needs a node that is ready and schedulable,"
        " with an inventory of the device plugin, no MIG, and no ResourceClaims (gpushare doctor)"
    )


def _of_node(
    node: Node, node_info: NodeInfo, names: Names, *, gpu: int | None
) -> Iterator[ProofTarget]:
    devices = [each for each in node_info.devices.values() if _usable(each, node_info)]
    if gpu is not None:
        devices = [each for each in devices if each.index == gpu]
    models: dict[str, DeviceInfo] = {}
    for each in devices:
        model = each.gpu.model if each.gpu else ""
        best = models.get(model)
        if best is None or _free(each) > _free(best):
            models[model] = each
    offered = names.gpu in node.allocatable
    for each in models.values():
        yield _target(node, node_info, each, offered=offered)


def _usable(device: DeviceInfo, node_info: NodeInfo) -> bool:
    gpu = device.gpu
    explicit = node_info.inventory is not None and node_info.unit is not None
    claims = bool(node_info.shape.claims)
    return bool(gpu and gpu.uuid and device.healthy and not gpu.mig and explicit and not claims)


def _free(device: DeviceInfo) -> int:
    """Units that a further share may take."""
    return device.free if device.open else 0


def _target(node: Node, node_info: NodeInfo, device: DeviceInfo, *, offered: bool) -> ProofTarget:
    gpu, inventory = device.gpu, node_info.inventory
    assert gpu is not None
    assert inventory is not None
    return ProofTarget(
        node=node.name,
        index=device.index,
        uuid=gpu.uuid,
        model=gpu.model,
        mode=gpu.isolation.value,
        driver=inventory.driver,
        memory_mib=gpu.memory_mib,
        unit_mib=unit_of(node_info).mib,
        total=device.total,
        free=_free(device),
        core_free=max(100 - device.core_used, 0),
        empty=not device.holders,
        free_gpus=_free_gpus(node_info),
        links=_links(node_info),
        whole_offered=offered,
    )


def _free_gpus(node_info: NodeInfo) -> int:
    return sum(one.empty and one.healthy and not one.mig for one in node_info.devices.values())


def _links(node_info: NodeInfo) -> dict[tuple[int, int], tuple[int, str]]:
    inventory = node_info.inventory
    found = {}
    for key, words in (inventory.links if inventory else {}).items():
        pair = pair_of(key)
        if pair is not None:  # gpushare topology names the others in a note
            found[pair] = (nvlinks_of(words), "+".join(words))
    return found


def steering(snapshot: Snapshot, names: Names, target: ProofTarget, request: PodRequest) -> str:
    """The policy by which the extender puts a share on exactly this GPU; empty for none."""
    node_info = ledger_of(snapshot, names).node(target.node)
    if node_info is None:
        return ""
    for policy in PREFERRED_POLICIES:
        placed = place(node_info, msgspec.structs.replace(request, policy=policy))
        if not isinstance(placed, FitError) and set(placed.mem) == {target.index}:
            return policy
    return ""


def target_now(snapshot: Snapshot, names: Names, target: ProofTarget) -> ProofTarget:
    """The target with what is free in a newer snapshot: pods of others come during a run."""
    node_info = ledger_of(snapshot, names).node(target.node)
    device = _device(node_info, target)
    if node_info is None or device is None:
        return target
    return msgspec.structs.replace(
        target, free=_free(device), empty=not device.holders, free_gpus=_free_gpus(node_info)
    )


def device_now(snapshot: Snapshot, names: Names, target: ProofTarget) -> DeviceInfo | None:
    """The GPU in the ledger of a newer snapshot; ``None`` where it is gone."""
    return _device(ledger_of(snapshot, names).node(target.node), target)


def _device(node_info: NodeInfo | None, target: ProofTarget) -> DeviceInfo | None:
    """The GPU of the target; another one may have its index by now."""
    device = node_info.devices.get(target.index) if node_info else None
    return device if device and device.gpu and device.gpu.uuid == target.uuid else None
