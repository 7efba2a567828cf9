"""GPUs, pods and nodes as tables, dashboard and documents show them, in one unit of memory.

Made from the ledger by :mod:`gpuinspect.queries.shares`; nothing here decides or adds up
differently from what the scheduler extender sees. ``-o json`` prints these structs as they are:
within a version of the document fields are added and nothing else.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from gpucore.model.links import Matrix
from gpucore.units import GpuIndex, MemoryUnit, NodeName

_DIGITS: Final = re.compile(r"([0-9]+)")
NaturalKey = tuple[tuple[tuple[bool, int, str], ...], str]
_MOST_DIGITS: Final = 300
"""Of a number that is compared; Python refuses to read much longer ones."""


class GpuSummary(msgspec.Struct, frozen=True, rename="camel"):
    """One GPU of a node.

    Attributes:
        total, used: memory in units; ``used`` may exceed ``total`` and is then over-full.
        core: percent of compute in use.
        exclusive: a pod holds the GPU exclusively.
        mode: what enforces shares: ``none``, ``mps``, ``driver`` or ``mig``.
    """

    index: GpuIndex
    uuid: str
    model: str
    memory_mib: int = msgspec.field(name="memoryMiB")
    used: int = msgspec.field(name="allocated")
    total: int
    core: int = msgspec.field(name="corePercent")
    exclusive: bool
    healthy: bool
    mode: str

    @property
    def marks(self) -> list[str]:
        """What is unusual about it, in words."""
        marks = (
            ("unhealthy", not self.healthy),
            ("exclusive", self.exclusive),
            ("over-full", self.used > self.total),
        )
        return [word for word, holds in marks if holds]


class PodSummary(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What one pod holds on its node.

    Attributes:
        state: ``bound`` until the node has handed the GPUs out, then ``confirmed``.
        gpus: units on each GPU it has a share of, all of them on one that it holds exclusively.
        limits: units of each GPU that it may use where these are more than its share.
        core: percent of compute on each GPU.
        group: GPUs it holds exclusively.
        pending: units on the node but on no known GPU.
        faults: sentences about errors in its annotations.
        claim: name of the ResourceClaim that holds it; empty for a pod of the device plugin. Where
            no pod or several may use the claim, ``uid`` and ``name`` are those of the claim.
        pending_gpus: exclusive GPUs on the node whose indexes are unknown; left out if 0.
    """

    namespace: str
    name: str
    uid: str
    state: str
    gpus: Mapping[GpuIndex, int]
    limits: Mapping[GpuIndex, int]
    core: Mapping[GpuIndex, int] = msgspec.field(name="corePercent")
    group: tuple[GpuIndex, ...] = msgspec.field(name="exclusiveGpus")
    pending: int
    faults: tuple[str, ...]
    claim: str
    pending_gpus: int = 0


class NodeSummary(msgspec.Struct, frozen=True, rename="camel"):
    """One node that shares its GPUs.

    Attributes:
        address: first InternalIP; empty unknown.
        unit: that its plugin counts in; derived from the figures unless it is ``explicit``.
        used: units in use, those on no known GPU included.
        total: units of the node; without an inventory not always the sum of the GPUs.
        pending: units bound to the node, GPU unknown.
    """

    name: NodeName
    address: str
    ready: bool
    cordoned: bool
    unit: str
    explicit: bool = msgspec.field(name="unitExplicit")
    driver: str
    used: int = msgspec.field(name="allocated")
    total: int
    pending: int
    gpus: tuple[GpuSummary, ...]
    pods: tuple[PodSummary, ...]

    @property
    def accepts_pods(self) -> bool:
        """It is ready and not cordoned."""
        return self.ready and not self.cordoned

    @property
    def lost(self) -> int:
        """Units on GPUs that the node no longer has."""
        return self.used - self.pending - sum(gpu.used for gpu in self.gpus)

    @property
    def pending_gpus(self) -> Mapping[str, int]:
        """Exclusive GPUs by ``namespace/name`` of the pod, where their indexes are unknown."""
        pods = [pod for pod in self.pods if pod.pending_gpus]
        return {f"{pod.namespace}/{pod.name}": pod.pending_gpus for pod in pods}

    @property
    def healthy_part(self) -> "NodeSummary":
        """The node without its unhealthy GPUs.

        kubelet may not allocate their units any more, so that they are not in the total either.
        """
        well = tuple(gpu for gpu in self.gpus if gpu.healthy)
        if len(well) == len(self.gpus):
            return self
        return msgspec.structs.replace(
            self,
            gpus=well,
            total=sum(gpu.total for gpu in well),
            used=self.used - sum(gpu.used for gpu in self.gpus if not gpu.healthy),
        )

    @property
    def width(self) -> int:
        """Columns its GPUs need: one past the highest index."""
        return max((gpu.index + 1 for gpu in self.gpus), default=0)

    def gpu(self, index: int) -> GpuSummary | None:
        """The GPU with this index."""
        return next((gpu for gpu in self.gpus if gpu.index == index), None)


class ClusterView(msgspec.Struct, frozen=True):
    """The nodes that share their GPUs, by name, with every amount in ``unit``."""

    nodes: tuple[NodeSummary, ...]
    unit: MemoryUnit

    @property
    def width(self) -> int:
        """Columns the GPUs of all nodes need."""
        return max((node.width for node in self.nodes), default=0)

    @property
    def total(self) -> int:
        """Units of all nodes."""
        return sum(node.total for node in self.nodes)

    @property
    def used(self) -> int:
        """Units in use on all nodes."""
        return sum(node.used for node in self.nodes)

    @property
    def schedulable(self) -> "ClusterView":
        """The part of it that takes new pods: healthy GPUs of ready nodes without a cordon."""
        nodes = (node for node in self.nodes if node.accepts_pods)
        return ClusterView(tuple(node.healthy_part for node in nodes), self.unit)


class GpuWithPods(msgspec.Struct, frozen=True):
    """One GPU and who holds it, as ``namespace/name``."""

    index: int
    uuid: str
    model: str
    numa: int
    healthy: bool
    holders: tuple[str, ...]


class GpuNode(msgspec.Struct, frozen=True):
    """The GPUs of one node with their links; no matrix where the node publishes no links.

    Attributes:
        pending: exclusive GPUs by ``namespace/name`` of a pod, where their indexes are unknown.
    """

    name: str
    node_type: str
    gpus: tuple[GpuWithPods, ...]
    matrix: Matrix | None
    pending: Mapping[str, int] = {}

    @property
    def used(self) -> tuple[int, ...]:
        """Indexes of the GPUs that pods hold."""
        return tuple(device.index for device in self.gpus if device.holders)

    @property
    def gpus_in_use(self) -> int:
        """How many GPUs pods hold, pending ones included."""
        return len(self.used) + sum(self.pending.values())


def percent(part: int, whole: int) -> int:
    """Whole percent, rounded down; 0 of nothing."""
    return part * 100 // whole if whole > 0 else 0


def in_natural_order(view: ClusterView) -> ClusterView:
    """The view with ``web-2`` before ``web-10``, nodes and pods alike."""
    nodes = (
        msgspec.structs.replace(
            node,
            pods=tuple(sorted(node.pods, key=lambda p: (p.namespace, natural(p.name), p.uid))),
        )
        for node in sorted(view.nodes, key=lambda node: natural(node.name))
    )
    return msgspec.structs.replace(view, nodes=tuple(nodes))


def of_namespace(view: ClusterView, namespace: str) -> ClusterView:
    """The rows of one namespace, all where none is named; the sums stay those of the node."""
    if not namespace:
        return view
    nodes = (
        msgspec.structs.replace(
            node, pods=tuple(pod for pod in node.pods if pod.namespace == namespace)
        )
        for node in view.nodes
    )
    return msgspec.structs.replace(view, nodes=tuple(nodes))


def natural(name: str) -> NaturalKey:
    """Sorts runs of digits by their number; names that differ in zeros only, by their text."""
    parts = _DIGITS.split(name)
    return tuple(_part(part) for part in parts if part), name


def _part(text: str) -> tuple[bool, int, str]:
    """Numbers come before text, as digits do before letters."""
    digits = text.isascii() and text.isdigit()
    return (not digits, int(text[:_MOST_DIGITS]) if digits else 0, "" if digits else text)
