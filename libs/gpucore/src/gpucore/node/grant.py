"""Environment, mounts and CDI names of a container, for the GPUs of its device IDs.

A pure function of the ids. The first generation's variables carry exactly what the original wrote,
so charts that compute a fraction from them keep working.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import product

import msgspec

from gpucore.model import Gpu, GpuAmounts, Inventory
from gpucore.node.allocation.device_ids import DeviceTable, Resource
from gpucore.node.allocation.holdings import Held
from gpucore.node.isolation.cdi import CdiDevice, cdi_device
from gpucore.node.isolation.mps_grant import HostMount, MpsPlace, mps_grant
from gpucore.wire import names as wire_names
from gpucore.wire.names import Names


class Visible(StrEnum):
    """How NVIDIA_VISIBLE_DEVICES names a GPU."""

    UUID = "uuid"
    INDEX = "index"


class GrantPolicy(msgspec.Struct, frozen=True):
    """How this node hands GPUs out.

    Attributes:
        visible: uuids survive a change of the GPUs' order; cGPU requires indexes.
        cgpu_disable: the node's label switches cGPU off.
        cdi_kind: ``vendor/class`` of the vendor's CDI devices, one for each GPU; empty for none.
        cdi: deliver environment and mounts as a CDI device too: the pod cannot replace those.
        mps: where the MPS daemons of this node are; ``None`` without MPS.
        reserve_mib: memory of every GPU that the operator keeps unallocated; CUDA counts it as
            available, so fractions leave it out.
    """

    names: Names = wire_names.DEFAULT_NAMES
    visible: Visible = Visible.UUID
    cgpu_disable: bool = False
    cdi_kind: str = ""
    cdi: bool = False
    mps: MpsPlace | None = None
    reserve_mib: int = 0


class Grant(msgspec.Struct, frozen=True):
    """The instructions for the container runtime.

    Attributes:
        share: the CDI device that delivers ``envs`` and ``mounts``; ``None`` without CDI.
    """

    envs: Mapping[str, str]
    mounts: tuple[HostMount, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    share: CdiDevice | None = None


def grant(
    resource: Resource,
    counts: GpuAmounts,
    inventory: Inventory,
    policy: GrantPolicy,
    *,
    core_follows: bool = False,
    bursts: bool = False,
) -> Grant:
    """The grant for a container with these ids of ``resource`` on ``counts``.

    Args:
        resource: the one that kubelet allocated ids of.
        counts: ids on each GPU, in the order containers see them; all are in ``inventory``.
        core_follows: the container requests compute too, so its memory does not determine compute.
        bursts: its pod may use more than its share.
    """
    known = {gpu.index: gpu for gpu in inventory.gpus}
    gpus = [known[index] for index in counts]
    envs = {wire_names.ENV_VISIBLE_DEVICES: ",".join(_visible(gpu, policy) for gpu in gpus)}
    if resource is Resource.MEM:
        envs |= _memory(counts, gpus, inventory, policy)
    limited = wire_names.ENV_DRIVER_LIMIT in envs
    if limited and bursts:  # the toolkit would hold the container to its share
        del envs[wire_names.ENV_DRIVER_LIMIT], envs[wire_names.ENV_DRIVER_REQUEST]
    if resource is Resource.GPU:
        envs[policy.names.group] = ",".join(str(gpu.index) for gpu in gpus)
    if policy.cgpu_disable:
        envs[wire_names.ENV_CGPU_DISABLE] = "true"
    mounts: tuple[HostMount, ...] = ()
    mps: Mapping[str, str] = {}
    if policy.mps is not None:
        mps, mounts = mps_grant(
            resource, counts, gpus, policy.mps, unit=inventory.unit, core_follows=core_follows
        )
        envs |= mps
    cdi = tuple(f"{policy.cdi_kind}={gpu.uuid}" for gpu in gpus) if policy.cdi_kind else ()
    if not policy.cdi:
        return Grant(envs, mounts, cdi)
    amounts: dict[str, int] = {gpu.uuid: counts[gpu.index] for gpu in gpus}
    follows = core_follows and bool(mps)  # the only grant that compute beside it changes
    share = cdi_device(
        resource, amounts, envs, mounts, core_follows=follows, bursts=limited and bursts
    )
    return Grant(envs, mounts, (share.qualified_name, *cdi), share)


def shares_held(
    held: Iterable[Held],
    tables: Mapping[Resource, DeviceTable],
    inventory: Inventory,
    policy: GrantPolicy,
) -> dict[str, CdiDevice]:
    """The CDI devices that running containers may name, from what kubelet lists.

    Whether a share of memory was granted with compute beside it, or to a pod that may use more, is
    not certain: all are given.
    """
    known = {gpu.index for gpu in inventory.gpus}
    found: dict[str, CdiDevice] = {}
    for row in (row for pod in held for row in pod.containers.values()):
        for resource, ids in row.items():
            gpus = dict(sorted(tables[resource].per_device(ids).items()))
            if not gpus or not known.issuperset(gpus):
                continue
            either = (False, True) if resource is Resource.MEM else (False,)
            for follows, bursts in product(either, either):
                share = grant(
                    resource, gpus, inventory, policy, core_follows=follows, bursts=bursts
                ).share
                if share is not None:
                    found[share.name] = share
    return found


def on_known_gpus(held: Iterable[Held], tables: Mapping[Resource, DeviceTable]) -> bool:
    """Whether each device that kubelet lists is on a GPU that the node is known to have."""
    return all(one in tables[resource].owner for pod in held for resource, one in pod.ids())


def _visible(gpu: Gpu, policy: GrantPolicy) -> str:
    """MIG instances have no index that the runtime would understand."""
    by_uuid = policy.visible is Visible.UUID or gpu.mig
    return gpu.uuid if by_uuid else str(gpu.index)


def _memory(
    counts: GpuAmounts, gpus: list[Gpu], inventory: Inventory, policy: GrantPolicy
) -> dict[str, str]:
    names = policy.names
    amount, size = sum(counts.values()), gpus[0].units
    part, largest = max(counts.values()), max(gpus, key=lambda gpu: gpu.units)
    shared = largest.allocatable_mib or 1
    envs = {
        names.mem_idx: ",".join(str(gpu.index) for gpu in gpus),
        names.mem_pod: str(amount),
        names.mem_container: str(amount),
        names.mem_dev: str(size),
        wire_names.ENV_MEM_FRACTION: fraction(
            part * shared, largest.units * (shared + policy.reserve_mib)
        ),
    }
    if inventory.unit is not None:
        limit = str(part * inventory.unit.mib)
        envs[wire_names.ENV_MEM_LIMIT_MIB] = limit
        if all(gpu.isolation.uses_driver for gpu in gpus):
            envs[wire_names.ENV_DRIVER_REQUEST] = envs[wire_names.ENV_DRIVER_LIMIT] = limit
    return envs


def fraction(part: int, whole: int) -> str:
    """``part / whole`` rounded down to four places, from 0.0001 to 1.

    Frameworks read 0 as "no limit", and a share of a GPU that is oversold may be larger than it.
    """
    places = 10_000
    return f"{min(max(part * places // max(whole, 1), 1), places) / places:.4f}"
