"""Rows of a cluster trace as values: nodes with GPUs, CPU and memory, and pods."""

import msgspec

from gpucore.accounting.node_capacity import NodeCapacity
from gpucore.model import ContainerRequest, Gpu, Inventory, PodRequest
from gpucore.units import MILLI, GpuIndex, GpuUuid
from gpucore.workload.pod_mix import PodKind


class TraceError(ValueError):
    """A row has impossible values."""


class TraceNode(msgspec.Struct, frozen=True):
    """One node of a trace.

    Attributes:
        cpu_milli: thousandths of a CPU.
        memory_mib: host memory in MiB.
        gpus: number of GPUs.
        model: what its GPUs are.

    Raises:
        TraceError: a figure is negative.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str = ""

    def __post_init__(self) -> None:
        if min(self.cpu_milli, self.memory_mib, self.gpus) < 0:
            raise TraceError(f"node {self.name} has a negative figure")

    def shape(self) -> NodeCapacity:
        """Its GPUs, measured in thousandths of a GPU."""
        gpus = tuple(
            Gpu(GpuIndex(i), GpuUuid(""), MILLI, model=self.model) for i in range(self.gpus)
        )
        inventory = Inventory(gpus=gpus, unit=None)
        return NodeCapacity(inventory=inventory, offers_shares=True, offers_gpus=True)


class TracePod(msgspec.Struct, frozen=True):
    """One pod of a trace.

    Attributes:
        gpus: number of GPUs; 0 for work without.
        gpu_milli: thousandths of each of them.
        models: GPUs it runs on; empty for any.

    Raises:
        TraceError: a figure is negative, or a share is not 1..1000.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int = 0
    models: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if min(self.cpu_milli, self.memory_mib, self.gpus) < 0:
            raise TraceError(f"pod {self.name} has a negative figure")
        if self.gpus and not 0 < self.gpu_milli <= MILLI:
            raise TraceError(f"pod {self.name} requests {self.gpu_milli} thousandths of a GPU")

    @property
    def milli(self) -> int:
        """Thousandths of GPUs in the whole request."""
        return self.gpus * self.gpu_milli

    def pod_request(self) -> PodRequest:
        """Its GPU request in thousandths; empty where it requests none."""
        one = ContainerRequest()
        if self.gpus and self.gpu_milli == MILLI:
            one = ContainerRequest(gpus=self.gpus)
        elif self.gpus:
            one = ContainerRequest(mem=self.milli)
        return PodRequest(
            containers=(one,),
            mem=one.mem,
            gpus=one.gpus,
            gpu_count=self.gpus if one.mem else 1,
            cpu_milli=self.cpu_milli,
            memory_mib=self.memory_mib,
        )

    def kind(self) -> PodKind:
        """The kind of pods that it is one of."""
        return PodKind(
            gpus=self.gpus,
            mem=0 if self.gpu_milli == MILLI else self.gpu_milli,
            cpu_milli=self.cpu_milli,
            memory_mib=self.memory_mib,
            models=tuple(sorted(self.models)),
        )
