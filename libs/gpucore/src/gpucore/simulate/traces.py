"""Rows of a cluster trace as values: nodes with GPUs, CPU and memory, and pods.

The pods arrive in a replay by chance that the caller gives.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from gpucore.accounting.node_capacity import NodeCapacity
from gpucore.model import ContainerRequest, Gpu, Inventory, PodRequest
from gpucore.units import MILLI, GpuIndex, GpuUuid
from gpucore.workload.pod_mix import PodKind

T = TypeVar("T")
Pick = Callable[[int], int]
"""A number from 0 up to the argument, which it excludes."""


class TraceError(ValueError):
    """A row has impossible values."""


class TraceNode(msgspec.Struct, frozen=True):
    """One node of a trace.

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


def drawn(pods: Sequence[TracePod], pick: Pick) -> Iterator[TracePod]:
    """Pods of the trace for ever, each any of all pods."""
    while True:
        yield pods[pick(len(pods))]


def once(pods: Sequence[TracePod], milli: int, pick: Pick) -> list[TracePod]:
    """Every pod of the trace once, and copies of any until the GPUs are requested; shuffled.

    Where the trace requests more GPUs than that, pods are left out by chance. It is the arrivals of
    the published runs of fragmentation gradient descent.

    Args:
        milli: thousandths of GPUs that all arrivals may request together.
    """
    found, requested = list(pods), sum(pod.milli for pod in pods)
    while requested > milli:
        place = pick(len(found))
        found[place], found[-1] = found[-1], found[place]
        requested -= found.pop().milli
    if len(found) == len(pods):
        for copy in drawn(pods, pick):
            if requested + copy.gpu_milli > milli:
                break
            found.append(copy)
            requested += copy.milli
    return shuffled(found, pick)


def shuffled(items: Sequence[T], pick: Pick) -> list[T]:
    """The same in any order."""
    left = list(items)
    for last in range(len(left) - 1, 0, -1):
        place = pick(last + 1)
        left[place], left[last] = left[last], left[place]
    return left
