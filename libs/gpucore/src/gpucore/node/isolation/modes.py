"""Isolation mode of each GPU of a node: precedence of its sources, and when it may change.

The label overrides the node's setting, and the annotation for one GPU overrides both. A GPU changes
its mode only while it has no allocation: clients of a stopping daemon lose their work, and programs
that started without one continue without limits. The limits of the driver are added at once,
because the driver limits running programs too.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from gpucore.model import Gpu, IsolationMode
from gpucore.wire import names as wire_names
from gpucore.wire.errors import WireError
from gpucore.wire.node.inventories import decode_inventory
from gpucore.wire.node.spec import Node

VOLTA: Final = (7, 0)
"""Compute capability from which MPS limits a client's threads and memory (manual, "Volta MPS")."""

MEMORY_LIMITS_DRIVER: Final = 615
"""First driver branch that limits memory per cgroup (NVIDIA, "MPS v3 Memory Partitioning")."""

LIMITS_DRIVER: Final = 495
"""First driver branch (CUDA 11.5) that honours ``CUDA_MPS_PINNED_DEVICE_MEM_LIMIT``."""


_LABELS: Final = ", ".join(IsolationMode).replace("+", "-")


class RequestedModes(msgspec.Struct, frozen=True):
    """The requested modes of the GPUs.

    Attributes:
        isolation modes: by uuid, every GPU named.
        faults: what could not be granted or understood, in sentences.
    """

    isolations: Mapping[str, IsolationMode]
    faults: tuple[str, ...] = ()


def incapable(gpu: Gpu, capability: tuple[int, int]) -> str:
    """Why MPS cannot enforce shares on a GPU, in words; empty when it can.

    Args:
        capability: its compute capability; ``(0, 0)`` unknown, which is no reason against it.
    """
    if gpu.mig:
        return "MPS is not used on MIG instances"
    if (0, 0) < capability < VOLTA:
        major, minor = capability
        return f"compute capability {major}.{minor} is older than 7.0, so MPS cannot enforce limits"
    return ""


def incapable_driver(gpu: Gpu, driver: str, *, cgroup_v2: bool, answers: bool) -> str:
    """Why the driver cannot limit memory on a GPU, in words; empty when it can.

    Args:
        driver: version of the driver.
        cgroup_v2: the plugin finds kubelet's pods in cgroup v2.
        answers: the driver answers NVML's call for memory limits of this GPU.
    """
    if gpu.mig:
        return "the driver does not limit memory by cgroup on MIG instances"
    branch = driver.partition(".")[0]
    if branch.isdecimal() and int(branch) < MEMORY_LIMITS_DRIVER:
        return f"driver {driver} is older than {MEMORY_LIMITS_DRIVER}"
    if not cgroup_v2:
        return "the plugin finds no cgroup v2 with kubelet's pods"
    return "" if answers else "the driver does not answer for memory limits of this GPU"


def ignores_limits(driver: str) -> bool:
    """The driver is known to be too old to limit a client's memory (it limits threads)."""
    branch = driver.partition(".")[0]
    return branch.isdecimal() and int(branch) < LIMITS_DRIVER


def requested_modes(
    gpus: Collection[Gpu],
    *,
    default: IsolationMode | None,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    unable: Mapping[IsolationMode, Mapping[str, str]],
) -> RequestedModes:
    """The modes requested by setting, label and annotation.

    Args:
        default: the node's setting; ``None``: the strongest mode that each GPU can have.
        unable: by mode, the GPUs that cannot have it, by uuid, with the reason.
    """
    node, faults = _of_node(labels, default)
    own, more = _of_gpus(annotations.get(wire_names.GPU_ISOLATION, ""), gpus)
    faults += more
    isolations: dict[str, IsolationMode] = {}
    for gpu in gpus:
        requested = own.get(gpu.uuid, node) or _strongest(gpu, unable)
        why = unable.get(requested, {}).get(gpu.uuid)
        isolations[gpu.uuid] = requested if why is None else IsolationMode.NONE
        if why is not None:
            faults.append(f"GPU {gpu.index} cannot use isolation mode {requested.value}: {why}")
    return RequestedModes(isolations, tuple(faults))


def _strongest(gpu: Gpu, unable: Mapping[IsolationMode, Mapping[str, str]]) -> IsolationMode:
    return [mode for mode in IsolationMode if gpu.uuid not in unable.get(mode, {})][-1]


def settled(
    current: Mapping[str, IsolationMode], wanted: Mapping[str, IsolationMode], busy: Collection[str]
) -> dict[str, IsolationMode]:
    """The isolation mode of every wanted GPU now: one that is in use keeps what it has.

    A GPU in use may take the limits of the driver, which limits running programs.
    """
    return {
        uuid: _kept(current.get(uuid, isolation), isolation) if uuid in busy else isolation
        for uuid, isolation in wanted.items()
    }


def _kept(current: IsolationMode, wanted: IsolationMode) -> IsolationMode:
    """The driver's limits can be added at once; MPS cannot come or go."""
    added = wanted.uses_driver and not current.uses_driver
    return wanted if added and wanted.uses_mps == current.uses_mps else current


def published(node: Node) -> dict[str, IsolationMode]:
    """Isolation modes in the node's published inventory, by uuid; a restarted plugin keeps them."""
    try:
        inventory = decode_inventory(node.annotations.get(wire_names.INVENTORY, ""))
    except WireError:
        return {}
    return {gpu.uuid: gpu.isolation for gpu in inventory.gpus}


def _of_node(
    labels: Mapping[str, str], default: IsolationMode | None
) -> tuple[IsolationMode | None, list[str]]:
    text = labels.get(wire_names.ISOLATION)
    if text is None:
        legacy = labels.get(wire_names.LABEL_SCHEDULE) == wire_names.SCHEDULE_MPS
        return (IsolationMode.MPS if legacy else default), []
    isolation = IsolationMode.parse(text)
    if isolation is None:
        return default, [f"the label {wire_names.ISOLATION}={text[:40]} is none of {_LABELS}"]
    return isolation, []


def _of_gpus(text: str, gpus: Iterable[Gpu]) -> tuple[dict[str, IsolationMode], list[str]]:
    """``0=mps,GPU-...=none``; an invalid part is a fault and changes nothing."""
    known = {name: gpu.uuid for gpu in gpus for name in (gpu.uuid, str(gpu.index))}
    own: dict[str, IsolationMode] = {}
    faults = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, _, word = part.partition("=")
        isolation, uuid = IsolationMode.parse(word.strip()), known.get(key.strip())
        if isolation is None or uuid is None:
            faults.append(
                f"{part[:60]!r} in {wire_names.GPU_ISOLATION} does not name a GPU and a mode"
            )
        else:
            own[uuid] = isolation
    return own, faults
