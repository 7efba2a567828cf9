"""Fragmentation of a node: free parts of GPUs that the usual requests cannot use.

After fragmentation gradient descent (USENIX ATC 2023): for each usual kind of work, the free parts
of GPUs it could not use are fragments; the expectation over kinds is the node's fragmentation, in
GPUs. The placement that increases it least keeps the most usable capacity.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from gpucore.accounting.device_info import MILLI, DeviceInfo
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import CORE_PER_GPU, Placement

_REMEMBERED: Final = 1 << 16


class Kind(msgspec.Struct, frozen=True):
    """One kind of work: a part of one GPU, or a number of exclusive ones.

    Attributes:
        weight: how often it comes, in relation to the other kinds.
        milli: thousandths of a GPU; 1000 where ``gpus`` is more than 1.
        gpus: number of GPUs.
    """

    weight: float
    milli: int
    gpus: int = 1


class Workload:
    """The kinds of work that usually come.

    Answers are remembered (a cluster has few distinct sets of free parts), so keep one workload
    rather than building equal ones.

    Args:
        kinds: what comes.
        unresolvable: weight of work that no GPU of the node could help, so that all is fragment.
    """

    def __init__(self, kinds: Iterable[Kind], *, unresolvable: float = 0.0) -> None:
        self.kinds = tuple(kinds)
        self.unresolvable = unresolvable
        self._total = unresolvable + sum(kind.weight for kind in self.kinds)
        self._known: dict[tuple[int, ...], float] = {}

    def fragmentation(self, free: tuple[int, ...]) -> float:
        """Expected GPUs of free parts that this work cannot use.

        Args:
            free: thousandths free on each GPU, sorted.
        """
        known = self._known.get(free)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[free] = self._reckoned(free)
        return known

    def _reckoned(self, free: tuple[int, ...]) -> float:
        lost = self.unresolvable * sum(free)
        lost += sum(kind.weight * _unusable(free, kind) for kind in self.kinds)
        return lost / self._total / MILLI if self._total else 0.0


def _unusable(free: Sequence[int], kind: Kind) -> int:
    """Thousandths of ``free`` that this kind cannot use: all of it where the kind does not fit."""
    usable = [part for part in free if part >= kind.milli]
    return sum(free) - sum(usable) if len(usable) >= kind.gpus else sum(free)


TYPICAL: Final = Workload(
    (
        Kind(2.0, 125),
        Kind(4.0, 250),
        Kind(4.0, 500),
        Kind(1.0, 750),
        Kind(5.0, MILLI),
        Kind(1.0, MILLI, 2),
        Kind(0.5, MILLI, 4),
        Kind(0.5, MILLI, 8),
    )
)
"""A guess for clusters without measurements."""


def growth(
    node_info: NodeInfo, placement: Placement, before: Workload, after: Workload | None = None
) -> float:
    """GPUs of fragmentation that ``placement`` would add to the node; negative takes away.

    Args:
        node_info: the state of the node without the placement.
        placement: what would come.
        before: the work that usually comes, as far as the node could run it now.
        after: the same once the placement is there; ``None`` where that changes nothing.
    """
    now = node_info.free_parts()
    then = dict(now)
    for index in frozenset((*placement.mem, *placement.core, *placement.group)):
        if index in then:
            then[index] = _left_milli(node_info.devices[index], then[index], placement)
    left = (after or before).fragmentation(tuple(sorted(then.values())))
    return left - before.fragmentation(tuple(sorted(now.values())))


def _left_milli(device: DeviceInfo, free: int, placement: Placement) -> int:
    if device.index in placement.group:
        return 0
    if not device.total:
        return free
    mem, core = placement.mem.get(device.index, 0), placement.core.get(device.index, 0)
    memory_left = max(device.free - mem, 0) * MILLI // device.total
    return min(memory_left, max(device.core_free - core, 0) * MILLI // CORE_PER_GPU)
