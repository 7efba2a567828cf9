"""Devices of a ResourceSlice: one GPU as a device with consumable capacity, and back.

The shapes are those of ``resource.k8s.io/v1``. A share of a GPU consumes ``memory`` and ``compute``
of a device that may be allocated several times. The API server rewrites quantities, so devices are
compared as values of :class:`SliceDevice` and never as text.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from gpucore.model import CORE_PER_GPU, Gpu, IsolationMode
from gpucore.model.constraints import NO_SCHEDULE
from gpucore.units import MIB_BYTES, GpuIndex, GpuUuid, MemoryUnit
from gpucore.wire.errors import WireError
from gpucore.wire.names import CLAIM_DRIVER
from gpucore.wire.quantity import amount

MEMORY: Final = "memory"
COMPUTE: Final = "compute"
SHARES: Final = "shares"
MIG: Final = "mig"
GPU_UUID: Final = f"{CLAIM_DRIVER}/uuid"
UNHEALTHY: Final = f"{CLAIM_DRIVER}/unhealthy"
_MAX_TEXT: Final = 64
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
"""Kubernetes' names: drivers of other devices use them too, so that one claim aligns both."""
_NO_MODE: Final = IsolationMode.NONE
_NO_LABEL: Final = re.compile("[^a-z0-9-]")
_LONGEST_NAME: Final = 63


class SliceDevice(msgspec.Struct, frozen=True):
    """One GPU (or MIG instance) as a ResourceSlice describes it.

    Attributes:
        isolation: isolation mode, or ``mig``.
        numa: NUMA node; -1 unknown.
        pcie_root: PCIe root complex; empty unknown.
        link_group: GPUs with the same text are connected by NVLink; empty without NVLink.
        memory_mib: allocatable memory in MiB.
        step_mib: smallest share, and the step of larger ones, in MiB.
        max_shares: number of shares that it takes; 0 any number.
        shared: it may be allocated several times; false for a MIG instance.
        taint: effect of the taint for an unhealthy GPU; empty for a healthy one.
        tainted_at: RFC 3339 time at which the API server set the taint.
    """

    name: str
    index: int = -1
    uuid: str = ""
    product: str = ""
    isolation: str = IsolationMode.NONE.value
    numa: int = -1
    pcie_root: str = ""
    link_group: str = ""
    memory_mib: int = 0
    step_mib: int = 0
    max_shares: int = 0
    shared: bool = True
    taint: str = ""
    tainted_at: str = ""


class _Attribute(msgspec.Struct):
    string: str | None = None
    number: int | None = msgspec.field(name="int", default=None)

    @property
    def value(self) -> str | int | None:
        """The text or the number; ``None`` for another type."""
        return self.number if self.string is None else self.string


class _Range(msgspec.Struct):
    step: str = "0"


class _RequestPolicy(msgspec.Struct, rename="camel"):
    valid_range: _Range | None = None


class _Capacity(msgspec.Struct, rename="camel"):
    value: str = "0"
    request_policy: _RequestPolicy | None = None


class _Taint(msgspec.Struct, rename="camel"):
    key: str = ""
    effect: str = ""
    time_added: str | None = None


class DeviceObject(msgspec.Struct, rename="camel"):
    """A device in the nesting of the API; :func:`flat_device` makes it a :class:`SliceDevice`."""

    name: str = ""
    attributes: dict[str, _Attribute] | None = None
    capacity: dict[str, _Capacity] | None = None
    taints: list[_Taint] | None = None
    allow_multiple_allocations: bool | None = None


def device_name(gpu: Gpu) -> str:
    """Name of the device of a GPU: its UUID as a DNS label.

    Indexes can change when the driver is loaded again; what is allocated of a device must not move
    to another GPU then.
    """
    label = _NO_LABEL.sub("-", gpu.uuid.lower())[:_LONGEST_NAME].strip("-")
    return label or f"gpu-{gpu.index}"


def device_indexes(gpus: Iterable[Gpu]) -> dict[str, GpuIndex]:
    """The index of every GPU, by the name of its device."""
    return {device_name(gpu): gpu.index for gpu in gpus}


def device_of(
    gpu: Gpu,
    unit: MemoryUnit,
    *,
    link_group: str = "",
    max_shares: int = 0,
    unhealthy: str = NO_SCHEDULE,
) -> SliceDevice:
    """The device of a GPU.

    Args:
        unhealthy: effect of the taint of a GPU that is not healthy; one that is only paused has a
            taint that evicts no pod.
    """
    effect = NO_SCHEDULE if gpu.paused else unhealthy
    return SliceDevice(
        name=device_name(gpu),
        index=gpu.index,
        uuid=_text(gpu.uuid),
        product=_text(gpu.model),
        isolation=MIG if gpu.mig else gpu.isolation.value,
        numa=gpu.numa,
        pcie_root=_text(gpu.pcie_root),
        link_group=link_group,
        memory_mib=gpu.units * unit.mib,
        step_mib=0 if gpu.mig else unit.mib,
        max_shares=0 if gpu.mig else max_shares,
        shared=not gpu.mig,
        taint="" if gpu.healthy else effect,
    )


def gpu_of(device: SliceDevice, unit: MemoryUnit) -> Gpu | None:
    """The GPU of a device, the reverse of :func:`device_of`; ``None`` without an index."""
    if device.index < 0:
        return None
    modes = frozenset(IsolationMode)
    return Gpu(
        index=GpuIndex(device.index),
        uuid=GpuUuid(device.uuid),
        units=device.memory_mib // unit.mib,
        model=device.product,
        memory_mib=device.memory_mib,
        numa=device.numa,
        healthy=not device.taint,
        isolation=IsolationMode(device.isolation) if device.isolation in modes else _NO_MODE,
        mig=device.isolation == MIG,
        pcie_root=device.pcie_root,
    )


def _text(text: str) -> str:
    """A value that the API server accepts for an attribute."""
    return text.encode()[:_MAX_TEXT].decode(errors="ignore")


def encode_device(device: SliceDevice) -> dict[str, Any]:
    """The device in the nesting of the API."""
    encoded: dict[str, Any] = {
        "name": device.name,
        "attributes": _attributes(device),
        "capacity": _capacity(device) if device.shared else _whole(device),
    }
    if device.shared:
        encoded["allowMultipleAllocations"] = True
    if device.taint:
        taint = {"key": UNHEALTHY, "value": "true", "effect": device.taint}
        since = {"timeAdded": device.tainted_at} if device.tainted_at else {}
        encoded["taints"] = [taint | since]
    return encoded


def _attributes(device: SliceDevice) -> dict[str, Any]:
    texts = {
        "uuid": device.uuid,
        "productName": device.product,
        "isolation": device.isolation,
        "linkGroup": device.link_group,
        PCIE_ROOT: device.pcie_root,
    }
    numbers = {"index": device.index, "numaNode": device.numa, NUMA_NODE: device.numa}
    found: dict[str, Any] = {key: {"string": text} for key, text in texts.items() if text}
    return found | {key: {"int": value} for key, value in numbers.items() if value >= 0}


def _whole(device: SliceDevice) -> dict[str, Any]:
    return {
        MEMORY: {"value": _mebibytes(device.memory_mib)},
        COMPUTE: {"value": str(CORE_PER_GPU)},
    }


def _capacity(device: SliceDevice) -> dict[str, Any]:
    """Memory is consumed whole, and compute not at all, where a claim does not request them."""
    memory, step = _mebibytes(device.memory_mib), _mebibytes(device.step_mib)
    hundred = str(CORE_PER_GPU)
    found: dict[str, Any] = {
        MEMORY: {
            "value": memory,
            "requestPolicy": {
                "default": memory,
                "validRange": {"min": step, "max": memory, "step": step},
            },
        },
        COMPUTE: {
            "value": hundred,
            "requestPolicy": {
                "default": "0",
                "validRange": {"min": "0", "max": hundred, "step": "1"},
            },
        },
    }
    if device.max_shares:
        policy = {"default": "1", "validValues": ["1"]}
        found[SHARES] = {"value": str(device.max_shares), "requestPolicy": policy}
    return found


def _mebibytes(mib: int) -> str:
    return f"{mib}Mi"


def flat_device(device: DeviceObject) -> SliceDevice:
    """The narrow value of a device; what cannot be read counts as absent."""
    attributes, capacity = device.attributes or {}, device.capacity or {}
    memory = capacity.get(MEMORY, _Capacity())
    taint = next((each for each in device.taints or () if each.key == UNHEALTHY), _Taint())
    return SliceDevice(
        name=device.name,
        index=_number(attributes, "index"),
        uuid=_string(attributes, "uuid"),
        product=_string(attributes, "productName"),
        isolation=_string(attributes, "isolation"),
        numa=_number(attributes, "numaNode"),
        pcie_root=_string(attributes, PCIE_ROOT),
        link_group=_string(attributes, "linkGroup"),
        memory_mib=_count(memory.value) // MIB_BYTES,
        step_mib=_step(memory) // MIB_BYTES,
        max_shares=_count(capacity.get(SHARES, _Capacity()).value),
        shared=bool(device.allow_multiple_allocations),
        taint=taint.effect,
        tainted_at=taint.time_added or "",
    )


def _string(attributes: Mapping[str, _Attribute], key: str) -> str:
    return attributes.get(key, _Attribute()).string or ""


def _number(attributes: Mapping[str, _Attribute], key: str) -> int:
    found = attributes.get(key, _Attribute()).number
    return -1 if found is None else found


def _step(capacity: _Capacity) -> int:
    policy = capacity.request_policy
    return _count(policy.valid_range.step) if policy and policy.valid_range else 0


def _count(text: str) -> int:
    try:
        return amount(text)
    except WireError:
        return 0
