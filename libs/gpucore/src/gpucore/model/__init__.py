"""Values of the core. All are frozen and independent of their source.

A *demand* is the request of a pod, a *placement* its chosen node and GPUs, a *claim* its
allocation, a *refusal* why it does not fit on a node. Amounts of memory are in the node's unit
(:class:`gpucore.units.MemoryUnit`), amounts of compute in percent of one GPU.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from gpucore.model.codes import Code as Code
from gpucore.units import GIB, GpuIndex, GpuUuid, MemoryUnit, NodeName, PodUid

CORE_PER_GPU: Final = 100
"""Percent of compute a GPU has."""


class IsolationMode(StrEnum):
    """How a share is enforced on a GPU, weakest first."""

    NONE = "none"
    MPS = "mps"
    DRIVER = "driver"
    DRIVER_MPS = "driver+mps"

    @property
    def uses_mps(self) -> bool:
        """An MPS daemon serves the GPU and limits compute."""
        return self is IsolationMode.MPS or self is IsolationMode.DRIVER_MPS

    @property
    def uses_driver(self) -> bool:
        """The driver limits memory."""
        return self is IsolationMode.DRIVER or self is IsolationMode.DRIVER_MPS

    def gives(self, demanded: "IsolationMode") -> bool:
        """Whether a GPU in this mode has all that a pod demands."""
        if demanded is IsolationMode.NONE:
            return True
        if demanded.uses_mps and not self.uses_mps:
            return False
        return self.uses_driver or not demanded.uses_driver

    @classmethod
    def parse(cls, text: str) -> "IsolationMode | None":
        """The mode of this name; ``driver-mps`` too, because a label value has no plus sign."""
        spelled = cls.DRIVER_MPS.value if text == "driver-mps" else text
        return next((mode for mode in cls if mode.value == spelled), None)


class Gpu(msgspec.Struct, frozen=True):
    """One GPU of a node (or one MIG instance, which is never sliced again).

    Attributes:
        index: NVML index; what annotations call IDX.
        uuid: NVML uuid; empty where only an original plugin describes the node.
        units: memory in units of the node.
        minor: number of ``/dev/nvidia<minor>``; -1 unknown.
        memory_mib: total memory in MiB; 0 unknown.
        numa: NUMA node; -1 unknown.
        isolation mode: what enforces shares here.
        mig: this is a MIG instance.
        reserved_mib: memory in MiB that the driver or the operator keeps from programs.
        pcie_root: PCIe root complex, such as ``pci0000:3a``; empty unknown. Known on the node only:
            the inventory annotation does not have it.
        paused: it is not healthy only because its MPS daemon accepts no new pods: those that run
            continue. Known on the node only.
        withheld: units of which kubelet counts the devices for pods that use other GPUs.
    """

    index: GpuIndex
    uuid: GpuUuid
    units: int
    minor: int = -1
    model: str = ""
    memory_mib: int = 0
    numa: int = -1
    healthy: bool = True
    isolation: IsolationMode = IsolationMode.NONE
    mig: bool = False
    reserved_mib: int = 0
    pcie_root: str = ""
    paused: bool = False
    withheld: int = 0

    @property
    def allocatable_mib(self) -> int:
        """Memory in MiB from which units are counted."""
        return max(self.memory_mib - self.reserved_mib, 0)


class Inventory(msgspec.Struct, frozen=True):
    """The GPUs of a node, in order of index.

    Attributes:
        unit: size of one unit; ``None`` where it is unknown (an original plugin's node).
        links: ``"0-1" -> ("PIX", "NV2")``, lower index first, one entry a linked pair.
        driver: version text; empty unknown.
        serving: the device plugin can hand them out; false while it is replaced.
        api: ``claims`` where the node offers them as claims; empty for the device plugin.
    """

    gpus: tuple[Gpu, ...]
    unit: MemoryUnit | None = GIB
    links: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    driver: str = ""
    serving: bool = True
    api: str = ""


class ContainerRequest(msgspec.Struct, frozen=True):
    """The request of one container: memory units, percent of compute, exclusive GPUs."""

    mem: int = 0
    core: int = 0
    gpus: int = 0

    def __bool__(self) -> bool:
        """Whether it requests anything."""
        return bool(self.mem or self.core or self.gpus)


class PodRequest(msgspec.Struct, frozen=True):
    """The request of a pod, by kubelet's formula (largest init container or sum of containers).

    Attributes:
        containers: one :class:`ContainerRequest` for each entry of ``spec.containers``, in order;
            then, where a sidecar (restartable init container) has a request, one for each sidecar.
        mem, core, gpus: the effective amounts of the pod, init containers and sidecars counted.
        init_gpus: the most exclusive GPUs that one of its init containers requests.
        gpu_count: number of GPUs over which ``mem`` and ``core`` are spread evenly (label
            ``gpu-count``).
        whole_device: a share that must have its GPU to itself.
        isolation mode: the weakest enforcement that will do.
        burst: units that the pod may use in all, where these are more than ``mem``; 0 otherwise.
        policy: name of the pod's own policy, empty for the node's.
        topology: name of the pod's own policy for GPUs that go together, empty for the cluster's.
        fault: why no node could ever fit this request, in words; empty for a valid one.
        cpu_milli, memory_mib: CPU and host memory of the pod, by which the fragmentation policy
            compares nodes.
    """

    containers: tuple[ContainerRequest, ...]
    mem: int = 0
    core: int = 0
    gpus: int = 0
    gpu_count: int = 1
    whole_device: bool = False
    isolation: IsolationMode = IsolationMode.NONE
    burst: int = 0
    policy: str = ""
    topology: str = ""
    fault: str = ""
    cpu_milli: int = 0
    memory_mib: int = 0
    init_gpus: int = 0

    @property
    def combines_gpus(self) -> bool:
        """Whether one of its containers has several GPUs, which a MIG instance cannot be one of."""
        if not self.gpus:
            return self.gpu_count > 1
        return self.init_gpus > 1 or any(request.gpus > 1 for request in self.containers)


GpuAmounts = Mapping[GpuIndex, int]
"""Amount on each GPU."""


class Placement(msgspec.Struct, frozen=True):
    """Where a request would sit on one node.

    Attributes:
        mem: units held on each GPU by the pod as a whole.
        core: percent held on each GPU.
        containers: units of each container on each GPU, by position in
            :attr:`PodRequest.containers`.
        group: exclusive GPUs, in the order containers see them.
    """

    node: NodeName
    mem: GpuAmounts = msgspec.field(default_factory=dict)
    core: GpuAmounts = msgspec.field(default_factory=dict)
    containers: Mapping[int, GpuAmounts] = msgspec.field(default_factory=dict)
    group: tuple[GpuIndex, ...] = ()

    @property
    def gpus(self) -> tuple[GpuIndex, ...]:
        """The GPUs that it names; exclusive ones in the order containers see them."""
        return self.group or tuple(self.mem or self.core)


class AllocationState(StrEnum):
    """Where an allocation is on its way; see :mod:`gpucore.accounting.ledger`."""

    NOMINATED = "nominated"
    RESERVED = "reserved"
    ASSUMED = "assumed"
    BOUND = "bound"
    CONFIRMED = "confirmed"


class Allocation(msgspec.Struct, frozen=True):
    """What one pod, or one ResourceClaim, holds on one node.

    Attributes:
        placement: the known part.
        pending: memory units of the pod that are on the node but on no known GPU.
        pending_core: percent of compute likewise.
        pending_gpus: exclusive GPUs likewise.
        exclusive: its GPUs take no other pod.
        burst: units that it may use in all, where these are more than it holds; 0 otherwise.
        unit: what the amounts are counted in; ``None`` is the unit of the node as it is now.
        assume_time: Unix nanoseconds of the decision; 0 unknown.
        gang: name of the gang it is a member of, or (RESERVED) is kept for; empty for none, and
            for a pod that is being deleted: it is no longer a member.
        faults: what was wrong with the pod's annotations, in words; empty is well.
        users: UID and name of the pods that may use it, where a ResourceClaim holds it; ``None``
            where a pod does.
        shares: number of its shares of a GPU, where a ResourceClaim has several of one.
    """

    uid: PodUid
    namespace: str
    name: str
    state: AllocationState
    placement: Placement
    pending: int = 0
    pending_core: int = 0
    pending_gpus: int = 0
    exclusive: bool = False
    burst: int = 0
    unit: MemoryUnit | None = None
    assume_time: int = 0
    gang: str = ""
    faults: tuple[str, ...] = ()
    users: tuple[tuple[PodUid, str], ...] | None = None
    shares: GpuAmounts = {}


class DeviceFitError(msgspec.Struct, frozen=True):
    """Why (a part of) a request does not fit on one GPU.

    Attributes:
        free, total, requested: figures in the unit of the code (units, percent or pods).
    """

    index: GpuIndex
    code: Code
    free: int = 0
    total: int = 0
    requested: int = 0


class FitError(msgspec.Struct, frozen=True):
    """Why a request does not fit on a node: a value, not an error.

    Attributes:
        code: the reason of the node as a whole.
        gpus: one for each GPU that does not fit its part.
        requested: units, percent or GPUs requested of one GPU (of the node for PENDING_*).
        free, total: figures of the node in the same unit, where the code is about the node.
        detail: words that no figure carries.
        unresolvable: no eviction of pods could help, so preemption is useless.
        reserved_for: number of pods nominated to the node beside which the request does not fit; 0
            where it does not fit without them either. No refusal names them: they may be of other
            tenants.
        ends_attempt: kube-scheduler gives up the pod at this node, and places it on no other one.
    """

    node: NodeName
    code: Code
    gpus: tuple[DeviceFitError, ...] = ()
    unit: MemoryUnit | None = None
    requested: int = 0
    free: int = 0
    total: int = 0
    detail: str = ""
    unresolvable: bool = False
    reserved_for: int = 0
    ends_attempt: bool = False
