"""ResourceClaims (``resource.k8s.io/v1``): what kube-scheduler allocated, as allocations.

A third way to read what is held of a GPU, beside annotations and kubelet's answer. Only the status
counts, which kube-scheduler writes; a user of a namespace cannot.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from gpucore.model import Allocation, AllocationState, Placement
from gpucore.model.constraints import NO_EXECUTE, NO_SCHEDULE, Taint
from gpucore.units import MIB, MIB_BYTES, GpuIndex, NodeName, PodUid
from gpucore.wire.claim.claim_specs import (
    ClaimSpec,
    decode_spec,
)
from gpucore.wire.claim.devices import (
    COMPUTE,
    MEMORY,
    UNHEALTHY,
)
from gpucore.wire.errors import WireError, decoded
from gpucore.wire.names import CLAIM_DRIVER
from gpucore.wire.objects import ObjectMetadata
from gpucore.wire.quantity import Quantity, amount
from gpucore.wire.tolerations import TolerationObject, toleration_of

_KEPT_SPECS: Final = 4096
_KEPT_BYTES: Final = 4096
"""A longer specification is read again for every claim."""


class DeviceShare(msgspec.Struct, frozen=True):
    """What one request of a claim was allocated of one device.

    Attributes:
        pool: name of the pool; for this driver the name of the node.
        share_id: identity of a share; empty where the whole device is allocated.
        memory: bytes; ``None`` where the whole device is allocated.
        core: percent of compute.
        tolerates_unhealthy: it may be on a GPU that is not healthy.
    """

    request: str
    driver: str
    pool: str
    device: str
    share_id: str = ""
    memory: int | None = None
    core: int = 0
    tolerates_unhealthy: bool = False

    @property
    def memory_mib(self) -> int:
        """Memory in MiB, rounded up; 0 where the whole device is allocated."""
        return -(-(self.memory or 0) // MIB_BYTES)

    @property
    def exclusive(self) -> bool:
        """The whole device is allocated, not a share of it."""
        return self.memory is None


class ResourceClaim(msgspec.Struct, frozen=True):
    """One ResourceClaim.

    Attributes:
        shares: what it was allocated, of every driver; empty while it is not allocated.
        pods: UID and name of the pods that may use it.
        allocated: kube-scheduler has allocated it.
        configured: drivers to which the claim or its class passes opaque parameters.
        spec: what it requests; ``None`` where that cannot be read.
    """

    uid: PodUid
    namespace: str
    name: str
    shares: tuple[DeviceShare, ...] = ()
    pods: tuple[tuple[PodUid, str], ...] = ()
    resource_version: str = ""
    allocated: bool = False
    configured: tuple[str, ...] = ()
    spec: ClaimSpec | None = None


class _Result(msgspec.Struct, rename="camel"):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: dict[str, Quantity] | None = None
    tolerations: list[TolerationObject] | None = None


class _Opaque(msgspec.Struct):
    driver: str = ""


class _Config(msgspec.Struct):
    opaque: _Opaque | None = None


class _Devices(msgspec.Struct):
    results: list[_Result] | None = None
    config: list[_Config] | None = None


class _Allocation(msgspec.Struct):
    devices: _Devices | None = None


class _Consumer(msgspec.Struct):
    resource: str = ""
    name: str = ""
    uid: str = ""


class _Status(msgspec.Struct, rename="camel"):
    allocation: _Allocation | None = None
    reserved_for: list[_Consumer] | None = None


class _ClaimObject(msgspec.Struct):
    metadata: ObjectMetadata
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: _Status | None = None


_DECODER: Final = msgspec.json.Decoder(_ClaimObject)


def decode_claim(raw: bytes | msgspec.Raw) -> ResourceClaim:
    """Read one ResourceClaim.

    Raises:
        WireError: the bytes are no ResourceClaim, or an amount in it is no quantity.
    """
    found = decoded(_DECODER, raw, "no ResourceClaim")
    meta, status = found.metadata, found.status or _Status()
    devices = (status.allocation or _Allocation()).devices or _Devices()
    opaque = (each.opaque.driver for each in devices.config or () if each.opaque)
    pods = (each for each in status.reserved_for or () if each.resource == "pods")
    spec = bytes(found.spec)
    return ResourceClaim(
        uid=PodUid(meta.uid),
        namespace=meta.namespace,
        name=meta.name,
        shares=tuple(_share(each) for each in devices.results or () if not each.admin_access),
        pods=tuple((PodUid(each.uid), each.name) for each in pods),
        resource_version=meta.resource_version,
        allocated=status.allocation is not None,
        configured=tuple(dict.fromkeys(opaque)),
        spec=_kept(spec) if len(spec) <= _KEPT_BYTES else _spec(spec),
    )


def _spec(raw: bytes) -> ClaimSpec | None:
    try:
        return decode_spec(raw)
    except WireError:
        return None


@lru_cache(_KEPT_SPECS)
def _kept(raw: bytes) -> ClaimSpec | None:
    """The same object for equal claims: a cluster has many that are made from one template."""
    return _spec(raw)


def _share(result: _Result) -> DeviceShare:
    memory, core = (_consumed(result, name) for name in (MEMORY, COMPUTE))
    return DeviceShare(
        request=result.request,
        driver=result.driver,
        pool=result.pool,
        device=result.device,
        share_id=result.share_id or "",
        memory=memory,
        core=core or 0,
        tolerates_unhealthy=_tolerates_unhealthy(result),
    )


def _tolerates_unhealthy(result: _Result) -> bool:
    """Its request tolerates the taint, whose effect is a setting of the device plugin."""
    return any(
        toleration_of(each).tolerates(Taint(UNHEALTHY, "true", effect))
        for each in result.tolerations or ()
        for effect in (NO_SCHEDULE, NO_EXECUTE)
    )


def _consumed(result: _Result, name: str) -> int | None:
    """An amount; the name of a capacity may be written with the domain of the driver."""
    consumed = result.consumed_capacity or {}
    text = consumed.get(name, consumed.get(f"{result.driver}/{name}"))
    return None if text is None else amount(text)


def allocation_of_claim(
    claim: ResourceClaim, node: NodeName, indexes: Mapping[str, GpuIndex]
) -> Allocation | None:
    """What ``claim`` holds of the GPUs of ``node``; ``None`` where it holds nothing there.

    The claim is the holder: its UID stands in the place of a pod's, because a claim can be
    allocated before a pod may use it, and several pods can use one claim. A share of a device that
    is no GPU of the node counts as pending on the node.

    Args:
        indexes: the node's GPUs by the names of their devices.
    """
    mine = [each for each in claim.shares if each.driver == CLAIM_DRIVER and each.pool == node]
    if not mine:
        return None
    shares = [each for each in mine if not each.exclusive]
    lost = [each for each in mine if each.device not in indexes]
    memory, core = _sums(shares, indexes)
    number = Counter(indexes[each.device] for each in mine if each.device in indexes)
    return Allocation(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        state=AllocationState.BOUND,
        placement=Placement(node, memory, core, group=_exclusive(mine, indexes)),
        pending=sum(each.memory_mib for each in lost),
        pending_core=sum(each.core for each in lost),
        pending_gpus=sum(each.exclusive for each in lost),
        unit=MIB,
        users=claim.pods,
        shares={index: count for index, count in number.items() if count > 1},
    )


def node_of_claim(claim: ResourceClaim) -> NodeName | None:
    """The node whose GPUs the claim holds; ``None`` where it holds no GPU of gpushare."""
    pools = (each.pool for each in claim.shares if each.driver == CLAIM_DRIVER)
    return next((NodeName(pool) for pool in pools), None)


def _sums(
    shares: Iterable[DeviceShare], indexes: Mapping[str, GpuIndex]
) -> tuple[dict[GpuIndex, int], dict[GpuIndex, int]]:
    """Memory and compute on each GPU; a claim can have several shares of one."""
    memory: Counter[GpuIndex] = Counter()
    core: Counter[GpuIndex] = Counter()
    for share in shares:
        index = indexes.get(share.device)
        if index is not None:
            memory[index] += share.memory_mib
            core[index] += share.core
    return dict(memory), {index: percent for index, percent in core.items() if percent}


def _exclusive(
    shares: Iterable[DeviceShare], indexes: Mapping[str, GpuIndex]
) -> tuple[GpuIndex, ...]:
    found = (indexes.get(each.device) for each in shares if each.exclusive)
    return tuple(dict.fromkeys(index for index in found if index is not None))
