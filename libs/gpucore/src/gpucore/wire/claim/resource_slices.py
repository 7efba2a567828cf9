"""ResourceSlices (``resource.k8s.io/v1``): the GPUs of one node as a pool of devices.

One slice holds the pool of a node. kube-scheduler allocates the first device that fits, in the
order of the slice.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from gpucore.model import Inventory
from gpucore.model.links import Matrix, nvlinks_of
from gpucore.units import GIB, MIB, GpuIndex, MemoryUnit
from gpucore.wire.claim.devices import DeviceObject, SliceDevice, encode_device, flat_device, gpu_of
from gpucore.wire.errors import WireError, decoded
from gpucore.wire.node.matrices import matrix_of
from gpucore.wire.objects import ObjectMetadata

API_VERSION: Final = "resource.k8s.io/v1"
PATH: Final = "/apis/resource.k8s.io/v1/resourceslices"
MAX_DEVICES: Final = 128
MAX_TAINTED: Final = 64
"""Maximum number of devices of a slice in which any device has a taint."""


class ResourceSlice(msgspec.Struct, frozen=True):
    """One ResourceSlice of one node.

    Attributes:
        generation: of the pool; larger after every change of its devices.
        count: number of slices of the pool.
        node_uid: of the Node object that owns the slice; empty without an owner.
    """

    name: str
    driver: str
    node: str
    pool: str
    devices: tuple[SliceDevice, ...] = ()
    generation: int = 1
    count: int = 1
    node_uid: str = ""
    resource_version: str = ""


class _Owner(msgspec.Struct):
    kind: str = ""
    uid: str = ""


class _Metadata(ObjectMetadata):
    owner_references: list[_Owner] | None = None


class _Pool(msgspec.Struct, rename="camel"):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class _Spec(msgspec.Struct, rename="camel"):
    driver: str = ""
    node_name: str | None = None
    pool: _Pool = msgspec.field(default_factory=_Pool)
    devices: list[DeviceObject] | None = None


class SliceObject(msgspec.Struct):
    """A slice in the nesting of the API; :func:`flat` makes it a :class:`ResourceSlice`."""

    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


_DECODER: Final = msgspec.json.Decoder(SliceObject)


def decode_slice(raw: bytes | msgspec.Raw) -> ResourceSlice:
    """Read one ResourceSlice.

    Raises:
        WireError: the bytes are no ResourceSlice.
    """
    return flat(decoded(_DECODER, raw, "no ResourceSlice"))


class OtherDevice(msgspec.Struct, frozen=True):
    """A device of another driver: its attributes by fully qualified name."""

    driver: str
    attributes: tuple[tuple[str, str | int], ...] = ()


def decode_other_devices(raw: bytes | msgspec.Raw) -> tuple[str, tuple[OtherDevice, ...]]:
    """The node of a slice, empty where it is not of one node, and its devices.

    Raises:
        WireError: as :func:`decode_slice`.
    """
    spec = decoded(_DECODER, raw, "no ResourceSlice").spec
    devices = (
        OtherDevice(spec.driver, _qualified(each, spec.driver)) for each in spec.devices or ()
    )
    return spec.node_name or "", tuple(devices)


def _qualified(device: DeviceObject, driver: str) -> tuple[tuple[str, str | int], ...]:
    values = ((name, each.value) for name, each in (device.attributes or {}).items())
    return tuple(
        (name if "/" in name else f"{driver}/{name}", value)
        for name, value in values
        if value is not None
    )


def flat(found: SliceObject) -> ResourceSlice:
    """The narrow value of a nested slice."""
    meta, spec = found.metadata, found.spec
    owners = meta.owner_references or ()
    return ResourceSlice(
        name=meta.name,
        driver=spec.driver,
        node=spec.node_name or "",
        pool=spec.pool.name,
        devices=tuple(map(flat_device, spec.devices or ())),
        generation=spec.pool.generation,
        count=spec.pool.resource_slice_count,
        node_uid=next((owner.uid for owner in owners if owner.kind == "Node"), ""),
        resource_version=meta.resource_version,
    )


def encode_slice(resource_slice: ResourceSlice) -> dict[str, Any]:
    """The object to create.

    Raises:
        WireError: there are more devices than the API server accepts in a slice.
    """
    found = resource_slice
    metadata: dict[str, Any] = {"name": found.name}
    if found.node_uid:
        owner = {"apiVersion": "v1", "kind": "Node", "name": found.node, "uid": found.node_uid}
        metadata["ownerReferences"] = [owner | {"controller": True}]
    spec = {"driver": found.driver, "nodeName": found.node, **_contents(found)}
    head = {"apiVersion": API_VERSION, "kind": "ResourceSlice"}
    return head | {"metadata": metadata, "spec": spec}


def encode_update(resource_slice: ResourceSlice) -> dict[str, Any]:
    """A merge patch of the devices, refused by the API server unless its slice has this version.

    Raises:
        WireError: as :func:`encode_slice`.
    """
    metadata = {"resourceVersion": resource_slice.resource_version}
    return {"metadata": metadata, "spec": _contents(resource_slice)}


def _contents(found: ResourceSlice) -> dict[str, Any]:
    most = MAX_TAINTED if any(device.taint for device in found.devices) else MAX_DEVICES
    if len(found.devices) > most:
        raise WireError(f"{len(found.devices)} GPUs do not fit in a ResourceSlice of {most}")
    pool = {
        "name": found.pool,
        "generation": found.generation,
        "resourceSliceCount": found.count,
    }
    return {"pool": pool, "devices": [encode_device(device) for device in found.devices]}


def with_taint_times(wanted: ResourceSlice, present: ResourceSlice) -> ResourceSlice:
    """``wanted`` with the times of the taints that ``present`` has already."""
    times = {(each.name, each.taint): each.tainted_at for each in present.devices}
    devices = tuple(
        msgspec.structs.replace(each, tainted_at=times.get((each.name, each.taint), ""))
        for each in wanted.devices
    )
    return msgspec.structs.replace(wanted, devices=devices)


def inventory_of_slices(slices: Iterable[ResourceSlice]) -> Inventory | None:
    """The GPUs of the slices of one node, in order of index; ``None`` without a slice.

    Slices of an older generation of the pool count nothing, as for kube-scheduler. The unit is the
    step of a share; of a node with exclusive GPUs only it is GiB, or MiB where that is not even.
    """
    found = list(slices)
    if not found:
        return None
    newest = max(each.generation for each in found)
    devices = [gpu for each in found if each.generation == newest for gpu in each.devices]
    unit = _unit(devices)
    gpus = {gpu.index: gpu for gpu in (gpu_of(each, unit) for each in devices) if gpu is not None}
    return Inventory(gpus=tuple(gpus[index] for index in sorted(gpus)), unit=unit)


def _unit(devices: Iterable[SliceDevice]) -> MemoryUnit:
    known = list(devices)
    steps = {device.step_mib for device in known if device.shared and device.step_mib}
    if len(steps) == 1:
        return MemoryUnit(steps.pop())
    even = not steps and all(device.memory_mib % GIB.mib == 0 for device in known)
    return GIB if even else MIB


def link_groups(inventory: Inventory) -> Mapping[GpuIndex, str]:
    """A text for every GPU with an NVLink: equal where NVLinks connect two GPUs, also by others."""
    matrix = matrix_of(inventory)
    groups: dict[GpuIndex, str] = {}
    for gpu in matrix.gpus:
        connected = _connected(matrix, gpu) if gpu not in groups else set()
        if len(connected) > 1:
            groups |= dict.fromkeys(connected, f"nvlink-{gpu}")
    return groups


def _connected(matrix: Matrix, first: GpuIndex) -> set[GpuIndex]:
    found, waiting = {first}, [first]
    while waiting:
        gpu = waiting.pop()
        near = {each for each in matrix.gpus if nvlinks_of(matrix.between(gpu, each))}
        waiting += near - found
        found |= near
    return found
