"""What a container is given: environment, mounts and CDI names for the cards that its ids name.

A pure function of the ids. The first generation's variables carry exactly what the original wrote,
so charts that compute a fraction from them keep working.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from gpucore.model import Cards, Gpu, Inventory
from gpucore.node.cdi import CdiDevice, cdi_device
from gpucore.node.devices import DeviceTable, Resource
from gpucore.node.holdings import Held
from gpucore.node.mpsgrant import Mount, MpsPlace, mps_grant
from gpucore.wire import names as wire_names
from gpucore.wire.names import Names


class Visible(StrEnum):
    """How NVIDIA_VISIBLE_DEVICES names a card."""

    UUID = "uuid"
    INDEX = "index"


class GrantPolicy(msgspec.Struct, frozen=True):
    """How this node hands cards out.

    Attributes:
        visible: uuids survive a change of the cards' order; indexes are what cGPU wants.
        cgpu_disable: the node's label asks to switch cGPU off.
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
    """What the container runtime is told.

    Attributes:
        share: the CDI device that delivers ``envs`` and ``mounts``; ``None`` without CDI.
    """

    envs: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    share: CdiDevice | None = None


def grant(
    resource: Resource,
    cards: Cards,
    inventory: Inventory,
    policy: GrantPolicy,
    *,
    core_follows: bool = False,
) -> Grant:
    """What a container with so much of ``resource`` on each of ``cards`` is given.

    Args:
        resource: of which kubelet has taken ids.
        cards: ids on each card, in the order containers see them; all are in ``inventory``.
        inventory: of the node.
        policy: of the node.
        core_follows: the container asks for compute too, so its memory says nothing about compute.
    """
    known = {gpu.index: gpu for gpu in inventory.gpus}
    gpus = [known[index] for index in cards]
    envs = {wire_names.ENV_VISIBLE_DEVICES: ",".join(_visible(gpu, policy) for gpu in gpus)}
    if resource is Resource.MEM:
        envs |= _memory(cards, gpus, inventory, policy)
    if resource is Resource.GPU:
        envs[policy.names.group] = ",".join(str(gpu.index) for gpu in gpus)
    if policy.cgpu_disable:
        envs[wire_names.ENV_CGPU_DISABLE] = "true"
    mounts: tuple[Mount, ...] = ()
    mps: Mapping[str, str] = {}
    if policy.mps is not None:
        mps, mounts = mps_grant(
            resource, cards, gpus, policy.mps, unit=inventory.unit, core_follows=core_follows
        )
        envs |= mps
    cdi = tuple(f"{policy.cdi_kind}={gpu.uuid}" for gpu in gpus) if policy.cdi_kind else ()
    if not policy.cdi:
        return Grant(envs, mounts, cdi)
    amounts: dict[str, int] = {gpu.uuid: cards[gpu.index] for gpu in gpus}
    follows = core_follows and bool(mps)  # the only grant that compute beside it changes
    share = cdi_device(resource, amounts, envs, mounts, core_follows=follows)
    return Grant(envs, mounts, (share.qualified_name, *cdi), share)


def shares_held(
    held: Iterable[Held],
    tables: Mapping[Resource, DeviceTable],
    inventory: Inventory,
    policy: GrantPolicy,
) -> dict[str, CdiDevice]:
    """The CDI devices that running containers may name, from what kubelet lists.

    Whether a share of memory was granted with compute beside it is not certain: both are given.
    """
    known = {gpu.index for gpu in inventory.gpus}
    found: dict[str, CdiDevice] = {}
    for row in (row for pod in held for row in pod.containers.values()):
        for resource, ids in row.items():
            cards = dict(sorted(tables[resource].per_card(ids).items()))
            if not cards or not known.issuperset(cards):
                continue
            for follows in (False, True) if resource is Resource.MEM else (False,):
                share = grant(resource, cards, inventory, policy, core_follows=follows).share
                if share is not None:
                    found[share.name] = share
    return found


def _visible(gpu: Gpu, policy: GrantPolicy) -> str:
    """MIG instances have no index that the runtime would understand."""
    by_uuid = policy.visible is Visible.UUID or gpu.mig
    return gpu.uuid if by_uuid else str(gpu.index)


def _memory(
    cards: Cards, gpus: list[Gpu], inventory: Inventory, policy: GrantPolicy
) -> dict[str, str]:
    names = policy.names
    amount, size = sum(cards.values()), gpus[0].units
    part, shared = max(cards.values()), gpus[0].allocatable_mib or 1
    envs = {
        names.mem_idx: ",".join(str(gpu.index) for gpu in gpus),
        names.mem_pod: str(amount),
        names.mem_container: str(amount),
        names.mem_dev: str(size),
        wire_names.ENV_MEM_FRACTION: fraction(part * shared, size * (shared + policy.reserve_mib)),
    }
    if inventory.unit is not None:
        limit = part * inventory.unit.mib
        envs[wire_names.ENV_MEM_LIMIT_MIB] = str(limit)
    return envs


def fraction(part: int, whole: int) -> str:
    """``part / whole`` rounded down to four places, never 0: frameworks read 0 as "no limit"."""
    places = 10_000
    return f"{max(part * places // max(whole, 1), 1) / places:.4f}"
