"""The values that everything here speaks in. All frozen; none knows where it came from.

A *demand* is what a pod asks for, a *placement* is where it would go, a *claim* is what it holds,
a *refusal* is why a node cannot take it. Amounts of memory are in the node's unit
(:class:`gpucore.units.MemoryUnit`), amounts of compute in percent of one card.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from gpucore.units import GIB, GpuIndex, GpuUuid, MemoryUnit, NodeName, PodUid

CORE_PER_CARD: Final = 100
"""Percent of compute a card has."""


class Rung(StrEnum):
    """How a share is enforced on a card, weakest first."""

    NONE = "none"
    MPS = "mps"


class Gpu(msgspec.Struct, frozen=True):
    """One card of a node (or one MIG instance, which is never sliced again).

    Attributes:
        index: NVML index; what annotations call IDX.
        uuid: NVML uuid; empty where only an original plugin describes the node.
        units: memory in units of the node.
        minor: number of ``/dev/nvidia<minor>``; -1 unknown.
        memory_mib: total memory in MiB; 0 unknown.
        numa: NUMA node; -1 unknown.
        rung: what enforces shares here.
        mig: this is a MIG instance.
        reserved_mib: memory in MiB that the driver or the operator keeps from programs.
    """

    index: GpuIndex
    uuid: GpuUuid
    units: int
    minor: int = -1
    model: str = ""
    memory_mib: int = 0
    numa: int = -1
    healthy: bool = True
    rung: Rung = Rung.NONE
    mig: bool = False
    reserved_mib: int = 0

    @property
    def allocatable_mib(self) -> int:
        """Memory in MiB from which units are counted."""
        return max(self.memory_mib - self.reserved_mib, 0)


class Inventory(msgspec.Struct, frozen=True):
    """The cards of a node, in order of index.

    Attributes:
        unit: size of one unit; ``None`` where nobody has said (an original plugin's node).
        links: ``"0-1" -> ("PIX", "NV2")``, lower index first, one entry a linked pair.
        driver: version text; empty unknown.
        serving: the device plugin can hand them out; false while it is replaced.
    """

    gpus: tuple[Gpu, ...]
    unit: MemoryUnit | None = GIB
    links: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    driver: str = ""
    serving: bool = True


class Ask(msgspec.Struct, frozen=True):
    """What one container asks for: memory units, percent of compute, whole cards."""

    mem: int = 0
    core: int = 0
    gpus: int = 0

    def __bool__(self) -> bool:
        """True when it asks for anything."""
        return bool(self.mem or self.core or self.gpus)


class Demand(msgspec.Struct, frozen=True):
    """What a pod asks for, by kubelet's formula (largest init container or sum of containers).

    Attributes:
        containers: one :class:`Ask` for each entry of ``spec.containers``, in order; then, where a
            sidecar (restartable init container) asks for anything, one for each sidecar.
        mem, core, gpus: the effective amounts of the pod, init containers and sidecars counted.
        cards: over how many cards ``mem`` and ``core`` are spread evenly (label ``gpu-count``).
        whole_device: a share that must have its card to itself.
        rung: the weakest enforcement that will do.
        policy: name of the pod's own policy, empty for the node's.
        topology: name of the pod's own policy for cards that go together, empty for the cluster's.
        fault: why no node could ever take this request, in words; empty is well.
    """

    containers: tuple[Ask, ...]
    mem: int = 0
    core: int = 0
    gpus: int = 0
    cards: int = 1
    whole_device: bool = False
    rung: Rung = Rung.NONE
    policy: str = ""
    topology: str = ""
    fault: str = ""


Cards = Mapping[GpuIndex, int]
"""Amount on each card."""


class Placement(msgspec.Struct, frozen=True):
    """Where a demand would sit on one node.

    Attributes:
        mem: units held on each card by the pod as a whole.
        core: percent held on each card.
        containers: units of each container on each card, by position in
            :attr:`Demand.containers`.
        group: whole cards, in the order containers see them.
    """

    node: NodeName
    mem: Cards = msgspec.field(default_factory=dict)
    core: Cards = msgspec.field(default_factory=dict)
    containers: Mapping[int, Cards] = msgspec.field(default_factory=dict)
    group: tuple[GpuIndex, ...] = ()


class ClaimState(StrEnum):
    """Where a claim is on its way; see :mod:`gpucore.ledger`."""

    RESERVED = "reserved"
    ASSUMED = "assumed"
    BOUND = "bound"
    CONFIRMED = "confirmed"


class Claim(msgspec.Struct, frozen=True):
    """What one pod holds on one node.

    Attributes:
        placement: the known part.
        pending: memory units of the pod that are on the node but on no known card.
        pending_core: percent of compute likewise.
        pending_gpus: whole cards likewise.
        exclusive: its cards take no other pod.
        unit: what the amounts are counted in; ``None`` is the unit of the node as it is now.
        assume_time: Unix nanoseconds of the decision; 0 unknown.
        gang: name of the gang it is a member of, or (RESERVED) is kept for; empty for none, and
            for a pod that is being deleted: it is no longer a member.
        faults: what was wrong with the pod's annotations, in words; empty is well.
    """

    uid: PodUid
    namespace: str
    name: str
    state: ClaimState
    placement: Placement
    pending: int = 0
    pending_core: int = 0
    pending_gpus: int = 0
    exclusive: bool = False
    unit: MemoryUnit | None = None
    assume_time: int = 0
    gang: str = ""
    faults: tuple[str, ...] = ()


class Code(StrEnum):
    """Why a card or a node cannot take a demand; the catalogue is in :mod:`gpucore.explain`."""

    INVALID_REQUEST = "InvalidRequest"
    NOT_SHARED = "NotShared"
    NODE_UNKNOWN = "NodeUnknown"
    NO_INVENTORY = "NoInventory"
    PLUGIN_AWAY = "PluginAway"
    INSUFFICIENT_MEMORY = "InsufficientMemory"
    INSUFFICIENT_CORE = "InsufficientCore"
    INSUFFICIENT_GPUS = "InsufficientGpus"
    UNHEALTHY = "Unhealthy"
    TAKEN_WHOLE = "TakenWhole"
    SHARED_CARD = "SharedCard"
    MAX_PODS = "MaxPods"
    TOO_LARGE = "TooLarge"
    UNEVEN_SPLIT = "UnevenSplit"
    RUNG_MISSING = "RungMissing"
    PENDING_UNITS = "PendingUnits"
    GANG = "GangWaits"
    COMPUTE_TOO_LARGE = "ComputeTooLarge"
    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    TAINT_NOT_TOLERATED = "TaintNotTolerated"
    NODE_AFFINITY = "NodeAffinityMismatch"
    INSUFFICIENT_RESOURCES = "InsufficientResources"


class CardRefusal(msgspec.Struct, frozen=True):
    """Why one card cannot take (its part of) a demand.

    Attributes:
        free, total, asked: figures in the unit of the code (units, percent or pods).
    """

    index: GpuIndex
    code: Code
    free: int = 0
    total: int = 0
    asked: int = 0


class Refusal(msgspec.Struct, frozen=True):
    """Why a node cannot take a demand: a value, not an error.

    Attributes:
        code: the reason of the node as a whole.
        cards: one for each card that cannot take its part.
        asked: units, percent or cards asked of one card (of the node for PENDING_UNITS).
        free, total: figures of the node in the same unit, where the code is about the node.
        detail: words that no figure carries.
        unresolvable: no eviction of pods could help, so preemption is in vain.
    """

    node: NodeName
    code: Code
    cards: tuple[CardRefusal, ...] = ()
    unit: MemoryUnit | None = None
    asked: int = 0
    free: int = 0
    total: int = 0
    detail: str = ""
    unresolvable: bool = False
