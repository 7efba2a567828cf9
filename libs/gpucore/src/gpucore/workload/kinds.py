"""Kinds of work, and which free parts of GPUs they cannot use.

After fragmentation gradient descent (USENIX ATC 2023): for each usual kind of work, the free parts
of GPUs it could not use are fragments; the expectation over kinds is the node's fragmentation, in
GPUs.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

import msgspec

from gpucore.units import MILLI

_REMEMBERED: Final = 1 << 12


class Kind(msgspec.Struct, frozen=True):
    """One kind of work: a part of one GPU, or a number of exclusive ones.

    Attributes:
        weight: how often it comes, in relation to the other kinds.
        milli: thousandths of a GPU; 1000 where ``gpus`` is more than 1.
    """

    weight: float
    milli: int
    gpus: int = 1


class Workload:
    """The kinds of work that usually come.

    Answers are remembered (a cluster has few distinct sets of free parts), so keep one workload
    rather than building equal ones.

    Args:
        unresolvable: weight of work that no GPU of the node could help, so that all is fragment.
    """

    def __init__(self, kinds: Iterable[Kind], *, unresolvable: float = 0.0) -> None:
        self.kinds = tuple(kinds)
        self.unresolvable = unresolvable
        self._total = unresolvable + sum(kind.weight for kind in self.kinds)
        self._known: dict[tuple[int, ...], float] = {}
        self._sizes, self._larger = _by_size(self.kinds)
        self._several = _of_several(self.kinds)

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
        if not self._total:
            return 0.0
        sizes, larger = self._sizes, self._larger
        lost = self.unresolvable * sum(free)
        lost += sum(part * larger[bisect_right(sizes, part)] for part in free)
        lost += sum(
            weight * _unusable(free, milli, gpus) for (milli, gpus), weight in self._several.items()
        )
        return lost / self._total / MILLI


def _by_size(kinds: Iterable[Kind]) -> tuple[list[int], list[float]]:
    """Sizes of work for one GPU in order, and the weight of all work from each size on."""
    weights: dict[int, float] = {}
    for kind in kinds:
        if kind.gpus == 1:
            weights[kind.milli] = weights.get(kind.milli, 0.0) + kind.weight
    sizes = sorted(weights)
    from_largest = accumulate((weights[size] for size in reversed(sizes)), initial=0.0)
    return sizes, list(from_largest)[::-1]


def _of_several(kinds: Iterable[Kind]) -> dict[tuple[int, int], float]:
    """Weight of work for several GPUs, by thousandths of each and number."""
    found: dict[tuple[int, int], float] = {}
    for kind in kinds:
        if kind.gpus > 1:
            key = kind.milli, kind.gpus
            found[key] = found.get(key, 0.0) + kind.weight
    return found


def _unusable(free: Sequence[int], milli: int, gpus: int) -> int:
    """Thousandths of ``free`` that work cannot use: all of it where the work does not fit."""
    usable = [part for part in free if part >= milli]
    return sum(free) - sum(usable) if len(usable) >= gpus else sum(free)


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
