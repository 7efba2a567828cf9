"""What the containers of a ResourceClaim are given: environment, mounts and CDI names by request.

kubelet names the CDI devices of a request to every container that uses the request. Of two CDI
devices of a container that set the same variable the last one wins, so all devices of a request
have one CDI device with the joined values. A container that uses several requests of one claim
gets the environment of one of them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gpucore.model import CORE_PER_GPU, Gpu, GpuAmounts, Inventory
from gpucore.node.allocation.device_ids import Resource
from gpucore.node.claims.prepared import PreparedClaim, PreparedDevice
from gpucore.node.grant import Grant, GrantPolicy, grant
from gpucore.node.isolation.cdi import cdi_spec
from gpucore.units import MIB, MIB_BYTES, GpuIndex, MemoryUnit
from gpucore.wire.claim.devices import device_name
from gpucore.wire.claim.prepared import AllocatedClaim
from gpucore.wire.claim.resource_claims import DeviceShare
from gpucore.wire.names import LIMITING_ENV

CLAIM_KIND: Final = "gpushare.io/claim"


class ClaimError(Exception):
    """The claim cannot be prepared on this node."""


class ClaimPreparation(msgspec.Struct, frozen=True):
    """What a node prepares claims with.

    Attributes:
        pool: name of the node's pool of devices.
        gpus: by the name of the device in the ResourceSlice.
        inventory: has those GPUs.
    """

    pool: str
    gpus: Mapping[str, Gpu]
    inventory: Inventory
    policy: GrantPolicy


def claim_node(inventory: Inventory, policy: GrantPolicy, pool: str) -> ClaimPreparation:
    """A node whose devices have the names that its ResourceSlice gives them."""
    return ClaimPreparation(
        pool, {device_name(gpu): gpu for gpu in inventory.gpus}, inventory, policy
    )


def prepare_claim(
    claim: AllocatedClaim, namespace: str, name: str, node: ClaimPreparation
) -> PreparedClaim:
    """Compute the reply to kubelet and the CDI edits of a claim.

    Raises:
        ClaimError: the allocation does not fit this node.
    """
    if claim.configured:
        raise ClaimError("the claim has opaque parameters, but this driver takes none")
    if not claim.devices:
        words = "devices with adminAccess do not count, because this driver grants no such access"
        raise ClaimError(f"no device of this driver is allocated to the claim; {words}")
    requests: dict[str, list[DeviceShare]] = {}
    for device in claim.devices:
        requests.setdefault(device.request, []).append(device)
    grants = {request: _grant(devices, node) for request, devices in requests.items()}
    names = {request: f"{claim.uid}-{request}" for request in requests}
    spec = cdi_spec(CLAIM_KIND, {names[key]: (g.envs, g.mounts) for key, g in grants.items()})
    devices = [
        _device(device, node, _cdi_names(names[request], grants[request]) if first == 0 else ())
        for request, several in requests.items()
        for first, device in enumerate(several)
    ]
    return PreparedClaim(namespace, name, claim, tuple(devices), spec.decode())


def _cdi_names(name: str, granted: Grant) -> tuple[str, ...]:
    """The vendor's devices first: ours sets the variables and so comes last."""
    return (*granted.cdi_devices, f"{CLAIM_KIND}={name}")


def _device(device: DeviceShare, node: ClaimPreparation, cdi: tuple[str, ...]) -> PreparedDevice:
    uuid = node.gpus[device.device].uuid
    return PreparedDevice(device.request, device.pool, device.device, device.share_id, cdi, uuid)


def _grant(devices: Sequence[DeviceShare], node: ClaimPreparation) -> Grant:
    gpus = [_gpu(device, node) for device in devices]
    policy = msgspec.structs.replace(node.policy, cdi=False)
    if all(device.memory is None for device in devices):
        counts = {gpu.index: 1 for gpu in _distinct(gpus)}
        return grant(Resource.GPU, counts, node.inventory, policy)
    unit = _unit(devices, node.inventory.unit or MIB)
    inventory = _in_unit(node.inventory, unit)
    sizes = {gpu.index: gpu.units for gpu in inventory.gpus}
    units: Counter[GpuIndex] = Counter()
    for device, gpu in zip(devices, gpus, strict=True):
        units[gpu.index] += sizes[gpu.index] if device.exclusive else _units(device, unit)
    return _share(devices, gpus, units, inventory, policy)


def _gpu(device: DeviceShare, node: ClaimPreparation) -> Gpu:
    if device.pool != node.pool:
        raise ClaimError(f"pool {device.pool[:60]!r} is not the pool of this node")
    gpu = node.gpus.get(device.device)
    if gpu is None:
        raise ClaimError(f"this node has no device {device.device!r}")
    if not (gpu.healthy or device.tolerates_unhealthy):
        raise ClaimError(f"GPU {gpu.index} ({gpu.uuid}) is unhealthy")
    return gpu


def _distinct(gpus: Sequence[Gpu]) -> list[Gpu]:
    return list({gpu.index: gpu for gpu in gpus}.values())


def _unit(devices: Sequence[DeviceShare], unit: MemoryUnit) -> MemoryUnit:
    """The node's unit where all amounts are whole numbers of it, otherwise MiB."""
    size = unit.mib * MIB_BYTES
    return unit if all((device.memory or 0) % size == 0 for device in devices) else MIB


def _in_unit(inventory: Inventory, unit: MemoryUnit) -> Inventory:
    if unit == inventory.unit:
        return inventory
    gpus = (msgspec.structs.replace(gpu, units=gpu.allocatable_mib) for gpu in inventory.gpus)
    return msgspec.structs.replace(inventory, gpus=tuple(gpus), unit=unit)


def _units(device: DeviceShare, unit: MemoryUnit) -> int:
    """Rounded down: a limit must not exceed what is consumed."""
    units = unit.units_in((device.memory or 0) // MIB_BYTES)
    if units == 0:
        raise ClaimError(f"device {device.device!r} is allocated without memory")
    return units


def _share(
    devices: Sequence[DeviceShare],
    gpus: Sequence[Gpu],
    units: GpuAmounts,
    inventory: Inventory,
    policy: GrantPolicy,
) -> Grant:
    sizes = {gpu.index: gpu.units for gpu in inventory.gpus}
    for gpu in gpus:
        if units[gpu.index] > sizes[gpu.index]:
            raise ClaimError(f"the claim consumes more memory than GPU {gpu.index} has")
    if all(units[index] == sizes[index] for index in units):
        return _exclusive(units, inventory, policy)
    _refuse_several_daemons(_distinct(gpus), policy)
    compute = _compute(devices, gpus)
    share = grant(Resource.MEM, units, inventory, policy, core_follows=bool(compute))
    if not compute:
        return share
    beside = grant(Resource.CORE, compute, inventory, policy)
    return msgspec.structs.replace(share, envs={**share.envs, **beside.envs})


def _exclusive(units: GpuAmounts, inventory: Inventory, policy: GrantPolicy) -> Grant:
    """All memory of the GPUs: no other pod uses them, so nothing has to be limited."""
    alone = msgspec.structs.replace(policy, mps=None)
    memory = grant(Resource.MEM, units, inventory, alone)
    whole = grant(Resource.GPU, units, inventory, alone)
    described = {key: memory.envs[key] for key in memory.envs.keys() - LIMITING_ENV}
    return msgspec.structs.replace(whole, envs={**described, **whole.envs})


def _refuse_several_daemons(gpus: Sequence[Gpu], policy: GrantPolicy) -> None:
    """A program connects to one MPS daemon, so it would see one of these GPUs."""
    own_daemons = policy.mps is not None and not policy.mps.pipe
    behind = any(gpu.isolation.uses_mps for gpu in gpus)
    if len(gpus) > 1 and own_daemons and behind:
        raise ClaimError("a share of several GPUs needs GPUs without MPS daemons of their own")


def _compute(devices: Sequence[DeviceShare], gpus: Sequence[Gpu]) -> GpuAmounts:
    """Percent on each GPU; empty where a device has none, since one limit holds for all."""
    if not all(device.core for device in devices):
        return {}
    percent: Counter[GpuIndex] = Counter()
    for device, gpu in zip(devices, gpus, strict=True):
        percent[gpu.index] += device.core
    return {index: min(amount, CORE_PER_GPU) for index, amount in percent.items()}
