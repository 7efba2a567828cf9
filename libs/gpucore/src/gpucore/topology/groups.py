"""All groups of one size on a machine, the heaviest first.

A search tries groups in this order and hardly ever gets far. So the heavy ones are put in order at
once, for 16 cards and all sizes in some 3 ms, and the light ones when somebody comes that far.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

from gpucore.topology.lanes import unions

Bucket = tuple[int, list[int]]
"""A weight (sum over the pairs, in steps) and all groups of it: those on fewest NUMA nodes first,
then those of lowest indexes."""

HEAVY: Final = 6
"""One group in about so many is heavy."""

SAMPLE: Final = 128
"""Groups by which is judged where that is."""


class Order(NamedTuple):
    """All sets of a size in the order of preference where they weigh the same.

    Attributes:
        masks: fewest NUMA nodes first, then by their lowest card, next lowest ...
        pick: takes their values, and two more, from a table of all sets.
    """

    masks: tuple[int, ...]
    pick: "itemgetter[Any]"


class Groups:
    """The groups of ``size`` cards by weight.

    Args:
        sums: weights of all sets of cards.
        node_bits: for each card a bit for its NUMA node, none where that is not known.
    """

    def __init__(self, sums: Sequence[int], node_bits: tuple[int, ...], size: int) -> None:
        self._sums = sums
        self._order = orders(node_bits)[size]
        weights = self._weights()
        sample = sorted(weights[:: len(weights) // SAMPLE + 1])
        light = sample[-1 - len(sample) // HEAVY]
        least = min((weight for weight in sample if weight > light), default=light)
        self._heavy = self._buckets(weights, least)
        self._light: list[Bucket] | None = None

    def __iter__(self) -> Iterator[Bucket]:
        yield from self._heavy
        if self._light is None:
            self._light = self._buckets(self._weights(), 0)[len(self._heavy) :]
        yield from self._light

    def _weights(self) -> tuple[int, ...]:
        weights: tuple[int, ...] = self._order.pick(self._sums)
        return weights

    def _buckets(self, weights: tuple[int, ...], least: int) -> list[Bucket]:
        found: defaultdict[int, list[int]] = defaultdict(list)
        for mask, weight in zip(self._order.masks, weights, strict=False):
            if weight >= least:
                found[weight].append(mask)
        return sorted(found.items(), reverse=True)


@lru_cache(maxsize=32)
def orders(node_bits: tuple[int, ...]) -> list[Order]:
    """Sets of so many cards by their size, up to one more than there are, of which there is none.

    By doubling: each card, the highest first, comes before all that lack it.
    """
    sizes: list[list[int]] = [[0], *([] for _ in node_bits), []]
    for card in reversed(range(len(node_bits))):
        smaller = [[], *sizes[:-1]]
        sizes = [
            [mask | 1 << card for mask in lacking] + sets
            for lacking, sets in zip(smaller, sizes, strict=True)
        ]
    if any(node_bits):
        spread = [max(nodes.bit_count(), 1) for nodes in unions(node_bits)]
        for sets in sizes:
            sets.sort(key=spread.__getitem__)
    # Two more, as for a single set no tuple would be given.
    return [Order(tuple(sets), itemgetter(*sets, 0, 0)) for sets in sizes]
