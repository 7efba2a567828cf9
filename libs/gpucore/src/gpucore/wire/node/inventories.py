"""GPUs of a node from its inventory annotation, or else from its capacity.

Our annotation is versioned JSON and names the unit, so mixed and changing GPUs have exact figures.
A node with an original plugin has a total and a count; its GPUs are then taken to be equal.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Annotated, Final

import msgspec

from gpucore.model import Gpu, Inventory, IsolationMode
from gpucore.units import GpuIndex, GpuUuid, MemoryUnit, NodeName, UnitError
from gpucore.wire.errors import WireError
from gpucore.wire.names import INVENTORY, MANAGED_BY, PLUGIN, UNHEALTHY_PREFIX, Names
from gpucore.wire.node.spec import Node
from gpucore.wire.pod.placements import MAX_INDEX
from gpucore.wire.quantity import amount, number

VERSION: Final = 1
_MIG: Final = "mig"
_MODES: Final = frozenset({_MIG, *(isolation.value for isolation in IsolationMode)})
_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]
_Index = Annotated[int, msgspec.Meta(ge=0, lt=MAX_INDEX)]


class _Gpu(msgspec.Struct, rename="camel"):
    index: _Index
    units: _Count
    uuid: str = ""
    minor: int = -1
    model: str = ""
    memory_mib: Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)] = msgspec.field(
        name="memoryMiB", default=0
    )
    reserved_mib: Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)] = msgspec.field(
        name="reservedMiB", default=0
    )
    numa: int = -1
    healthy: bool = True
    mode: str = IsolationMode.NONE.value
    withheld: _Count | msgspec.UnsetType = msgspec.UNSET


class _Document(msgspec.Struct):
    version: int
    unit: str
    gpus: list[_Gpu]
    driver: str = ""
    links: dict[str, tuple[str, ...]] = {}
    serving: bool = True
    api: str | msgspec.UnsetType = msgspec.UNSET


_DECODER: Final = msgspec.json.Decoder(_Document)


def inventory_of(node: Node, names: Names) -> Inventory | None:
    """The GPUs of ``node``; ``None`` where their number is unknown.

    An unreadable annotation falls back to the capacity, as if an original plugin ran there.

    Raises:
        WireError: a capacity is no Kubernetes quantity (the API server accepts no such node).
    """
    text = node.annotations.get(INVENTORY)
    if text is not None:
        try:
            return decode_inventory(text)
        except WireError:
            pass
    return _from_capacity(node, names)


def _from_capacity(node: Node, names: Names) -> Inventory | None:
    memory = amount(node.capacity.get(names.gpu_mem, "0"))
    count = amount(node.capacity.get(names.gpu_count if memory else names.gpu, "0"))
    if not 0 < count < MAX_INDEX:
        return None
    units = memory // count
    gpus = tuple(Gpu(GpuIndex(i), GpuUuid(""), units) for i in range(count))
    return Inventory(gpus=gpus, unit=None)


def encode_inventory(inventory: Inventory) -> str:
    """The text of the node annotation.

    Raises:
        WireError: the inventory has no unit, which the annotation requires.
    """
    if inventory.unit is None:
        raise WireError("an inventory without a unit cannot be published")
    gpus = [_encoded(gpu) for gpu in inventory.gpus]
    document = _Document(
        version=VERSION,
        unit=str(inventory.unit),
        gpus=gpus,
        driver=inventory.driver,
        links=dict(sorted(inventory.links.items())),
        serving=inventory.serving,
        api=inventory.api or msgspec.UNSET,
    )
    return msgspec.json.encode(document).decode()


def inventory_hash(text: str) -> str:
    """The value of the label that goes with this text of the annotation: 16 hexadecimal digits.

    kube-scheduler tries pods that wait again when a label of a node changes, and not when an
    annotation does (``nodeSchedulingPropertiesChange``). Without the label, a GPU that was
    unhealthy for less time than kubelet takes to report it, or that has a new isolation mode, would
    be noticed one to five minutes later.
    """
    return sha256(text.encode()).hexdigest()[:16]


def _encoded(gpu: Gpu) -> _Gpu:
    return _Gpu(
        index=gpu.index,
        units=gpu.units,
        uuid=gpu.uuid,
        minor=gpu.minor,
        model=gpu.model,
        memory_mib=gpu.memory_mib,
        reserved_mib=gpu.reserved_mib,
        numa=gpu.numa,
        healthy=gpu.healthy,
        mode=_MIG if gpu.mig else gpu.isolation.value,
        withheld=gpu.withheld or msgspec.UNSET,
    )


def decode_inventory(text: str) -> Inventory:
    """Read the text of the node annotation.

    Raises:
        WireError: it is no inventory of a version that is known here.
    """
    try:
        document = _DECODER.decode(text)
        unit = MemoryUnit.parse(document.unit)
    except (msgspec.MsgspecError, UnitError, ValueError, RecursionError) as error:
        raise WireError(f"no inventory: {error}") from error
    if document.version != VERSION:
        raise WireError(f"invalid inventory: version {document.version} is unknown")
    gpus = tuple(sorted(map(_decoded, document.gpus), key=lambda gpu: gpu.index))
    _refuse_twins(gpus)
    return Inventory(
        gpus=gpus,
        unit=unit,
        links=document.links,
        driver=document.driver,
        serving=document.serving,
        api=document.api or "",
    )


def _decoded(gpu: _Gpu) -> Gpu:
    if gpu.mode not in _MODES:
        raise WireError(f"invalid inventory: mode {gpu.mode[:40]!r} is unknown")
    return Gpu(
        index=GpuIndex(gpu.index),
        uuid=GpuUuid(gpu.uuid),
        units=gpu.units,
        minor=gpu.minor,
        model=gpu.model,
        memory_mib=gpu.memory_mib,
        reserved_mib=gpu.reserved_mib,
        numa=gpu.numa,
        healthy=gpu.healthy,
        isolation=IsolationMode.NONE if gpu.mode == _MIG else IsolationMode(gpu.mode),
        mig=gpu.mode == _MIG,
        withheld=gpu.withheld or 0,
    )


def _refuse_twins(gpus: Iterable[Gpu]) -> None:
    seen: set[GpuIndex] = set()
    for gpu in gpus:
        if gpu.index in seen:
            raise WireError(f"invalid inventory: two GPUs have index {gpu.index}")
        seen.add(gpu.index)


def unhealthy_node(config_map: str) -> NodeName | None:
    """The node that a ConfigMap of this name speaks of, or ``None``."""
    node = config_map.removeprefix(UNHEALTHY_PREFIX)
    return NodeName(node) if node and node != config_map else None


def kept_by_plugin(labels: Mapping[str, str] | None) -> bool:
    """The ConfigMap with this label is written by this project's plugin, for original extenders.

    It repeats the node's inventory but arrives at another time: a pod that a scheduler retries when
    the inventory arrives must not be refused because of the previous list.
    """
    return (labels or {}).get(MANAGED_BY) == PLUGIN


def unhealthy_indexes(text: str) -> frozenset[GpuIndex]:
    """Indexes in a comma list such as ``0, 2``; elements that are none are passed over."""
    found = (number(part.strip(), below=MAX_INDEX) for part in text.split(","))
    return frozenset(GpuIndex(index) for index in found if index is not None)
