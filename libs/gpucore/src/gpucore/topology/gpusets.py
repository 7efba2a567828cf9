"""All sets of the GPUs of one machine: what each is worth as one group, and which to try.

A set is a bit mask of up to 16 bits. GPU 0 is the *highest* bit, so that of two sets of one size
the larger number has the lowest indexes. Tables are rows of 256 values: the upper eight bits of a
set choose the row, the lower eight the value.
"""

from array import array
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

Scores = tuple[tuple[int, ...], ...]
"""Scores of all pairs, square and symmetric, 0 on the diagonal."""

Rows = Sequence[Sequence[int]]
"""A value for every set."""

MAX_EXACT: Final = 16
"""Maximum number of GPUs."""

SQUARES: Final = 40
"""Bits for the squares: 16 GPUs score at most 871,200, of which the square has 40 bits."""

MAX_PAIR: Final = 1 << 13
"""More than any pair scores; the smallest pair of a single GPU."""

BATCH: Final = 16
"""Sets that are computed between two pauses."""


class GpuSets:
    """The sets of one machine; :meth:`prepare` computes what they are worth.

    Args:
        scores: of all pairs of its GPUs; at most :data:`MAX_EXACT` rows.
        numas: NUMA node of each GPU, negative where unknown.

    Attributes:
        every: the set of all GPUs.
        worth: ``sum * 2**40`` less the square of the sum, which is over the pairs of the set.
        rank: larger is better: by the sum, the fewest NUMA nodes, the lowest indexes. The set
            itself is in the lowest bits.
        bandwidth_rank: by the smallest pair, then as ``rank``.
        equal: a smaller number whose partitions are worth the same; 0 where none is known.
    """

    def __init__(self, scores: Scores, numas: Sequence[int]) -> None:
        self.every = (1 << len(scores)) - 1
        self._scores = [row[::-1] for row in scores[::-1]]
        self._numas = numas[::-1]
        self._twins = _twins(self._scores, self._numas)
        self._below = [_unions(self._twins[8:], 8), _unions(self._twins[:8], 0)]
        self.worth: Rows = []
        self.rank: Rows = []
        self.bandwidth_rank: Rows = []
        self.equal: Rows = []

    def groups(self, free: int, size: int, require: int) -> Iterator[tuple[int, list[int]]]:
        """The upper half of each group in ``free``, and the lower halves that go with it.

        Where GPUs of a half are twins, only those of the lowest indexes are taken.
        """
        wanted, kept = size - require.bit_count(), require & 255
        uppers, lowers = (
            [[part for part in some if not below[half ^ part] & part] for some in parts()[half]]
            for half, below in zip(divmod(free & ~require, 256), self._below, strict=True)
        )
        for count, lows in enumerate(lowers[: wanted + 1]):
            if lows:
                joined = [low | kept for low in lows] if kept else lows
                for high in uppers[wanted - count]:
                    yield high | require >> 8, joined

    def prepare(self) -> Iterator[None]:
        """Compute the tables, with a pause after every small step."""
        bits, twins, mirrored = self._node_bits(), self._twins, _mirrored(self._scores)
        sums, weakest, nodes = array("i", [0]), array("i", [MAX_PAIR]), array("i", [0])
        worth = [0]
        twin, equal = array("H", [0]), array("H", [0])
        ranks, bandwidth_ranks = array("q", [0]), array("q", [0])
        objects: dict[int, int] = {}  # one for each value: adding them is 13 % faster
        for mask in range(1, self.every + 1):
            first, last = mask.bit_length() - 1, (mask & -mask).bit_length() - 1
            a, b, score = mask ^ 1 << first, mask ^ 1 << last, self._scores[first][last]
            # All pairs but that of the two removed GPUs are in a or in b, or in both.
            sums.append(total := sums[a] + sums[b] - sums[a & b] + score)
            weakest.append(min(weakest[a], weakest[b], score) if a else MAX_PAIR)
            nodes.append(nodes[a] | bits[first])
            worth.append(objects.setdefault(total, (total << SQUARES) - total * total))
            few = MAX_EXACT - max(nodes[mask].bit_count(), 1)
            ranks.append((total << 4 | few) << MAX_EXACT | mask)
            bandwidth_ranks.append(weakest[mask] << 40 | ranks[mask])
            absent = twins[first] & ~mask  # one of these instead of the first makes no difference
            twin.append(a | absent & -absent if absent else twin[a] and twin[a] | 1 << first)
            swapped = (mask & 255) << 8 | mask >> 8
            equal.append(twin[mask] or (swapped if mirrored and swapped < mask else 0))
            if not mask % BATCH:
                yield
        self.equal, self.rank = _rows(equal), _rows(ranks)
        self.bandwidth_rank = _rows(bandwidth_ranks)
        yield
        self.worth = _rows(worth)

    def _node_bits(self) -> list[int]:
        """A bit for the NUMA node of each GPU; none where that is unknown."""
        known = sorted({numa for numa in self._numas if numa >= 0})
        return [1 << known.index(numa) if numa >= 0 else 0 for numa in self._numas]


@cache
def parts() -> list[list[list[int]]]:
    """For every set of eight GPUs its subsets of 0, 1, 2 ... 16 GPUs."""
    found = [[[0], *([] for _ in range(MAX_EXACT))]]
    for mask in range(1, 256):
        top = 1 << mask.bit_length() - 1
        without = found[mask ^ top]
        with_top = [[], *([part | top for part in smaller] for smaller in without[:-1])]
        found.append([a + b for a, b in zip(without, with_top, strict=True)])
    return found


def _twins(scores: Sequence[Sequence[int]], numas: Sequence[int]) -> list[int]:
    """For each GPU those of lower bits that differ from it only by their index."""
    gpus = range(len(scores))

    def alike(a: int, b: int) -> bool:
        others = (c for c in gpus if c not in {a, b})
        return numas[a] == numas[b] and all(scores[a][c] == scores[b][c] for c in others)

    return [sum(1 << a for a in range(b) if alike(a, b)) for b in gpus]


def _mirrored(scores: Sequence[Sequence[int]]) -> bool:
    """Whether the upper and the lower eight of 16 GPUs are linked in the same way."""
    half = [*range(8, 16), *range(8)]
    return len(scores) == MAX_EXACT and all(
        scores[half[a]][half[b]] == scores[a][b] for a in half for b in half
    )


def _unions(masks: Sequence[int], shift: int) -> list[int]:
    """For every set of eight GPUs the union of their masks."""
    found = [0]
    for mask in masks:
        found += [other | mask >> shift for other in found]
    return found


def _rows(values: Sequence[int]) -> Rows:
    return [values[at : at + 256] for at in range(0, len(values), 256)]
