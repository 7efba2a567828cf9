"""Rows of a cluster trace as values: nodes with cards, CPU and memory, and the pods that came."""

import msgspec

from gpucore.cards import MILLI
from gpucore.model import Ask, Demand, Gpu, Inventory
from gpucore.shape import NodeShape
from gpucore.units import GpuIndex, GpuUuid


class TraceError(ValueError):
    """A row says what no node or pod can be."""


class TraceNode(msgspec.Struct, frozen=True):
    """One node of a trace.

    Attributes:
        cpu_milli: thousandths of a CPU.
        memory_mib: host memory in MiB.
        gpus: number of cards.
        model: what its cards are.

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

    def shape(self) -> NodeShape:
        """Its cards, measured in thousandths of a card."""
        cards = tuple(
            Gpu(GpuIndex(i), GpuUuid(""), MILLI, model=self.model) for i in range(self.gpus)
        )
        inventory = Inventory(gpus=cards, unit=None)
        return NodeShape(inventory=inventory, offers_shares=True, offers_cards=True)


class TracePod(msgspec.Struct, frozen=True):
    """One pod of a trace.

    Attributes:
        gpus: number of cards; 0 for work without.
        gpu_milli: thousandths of each of them.
        models: cards it runs on; empty for any.

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
            raise TraceError(f"pod {self.name} asks for {self.gpu_milli} thousandths of a card")

    @property
    def milli(self) -> int:
        """Thousandths of cards that it asks for in all."""
        return self.gpus * self.gpu_milli

    def demand(self) -> Demand:
        """What it asks of cards, measured in thousandths; nothing where it asks for none."""
        if not self.gpus:
            return Demand(containers=(Ask(),))
        if self.gpu_milli == MILLI:
            return Demand(containers=(Ask(gpus=self.gpus),), gpus=self.gpus)
        return Demand(containers=(Ask(mem=self.milli),), mem=self.milli, cards=self.gpus)
