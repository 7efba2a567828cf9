"""Utilization of a node's GPUs, by which binpack and spread score nodes.

In plain figures, so that a caller who keeps them by the thousand rates as the policies do.
"""

from collections.abc import Iterable
from typing import Final

_DIGITS: Final = 9


def utilization(total: int, used: int, core: float) -> float:
    """Part of a GPU that is in use, 0 to 1: of its memory or its compute, whichever is more.

    Args:
        total: units of memory; 0 where it has none to give.
        used: units held.
        core: part of its compute that is held; 1 where it is used exclusively.
    """
    return min(max(used / total if total else 0.0, core), 1.0)


def rating(in_use: float, gpus: int, *, spread: bool) -> float:
    """How good a node is, 0 to 1, by the parts in use of all its GPUs together.

    Rounded, so that nodes with the same parts in use are equal in whatever order these were added.

    Args:
        in_use: sum of the parts.
        gpus: number of GPUs; at least one.
        spread: the emptier the better; otherwise the fuller.
    """
    return ratings_of((in_use,), gpus, spread=spread)[0]


def ratings_of(in_uses: Iterable[float], gpus: int, *, spread: bool) -> list[float]:
    """:func:`rating` of several sums."""
    if spread:
        return [round(1.0 - in_use / gpus, _DIGITS) for in_use in in_uses]
    return [round(in_use / gpus, _DIGITS) for in_use in in_uses]
