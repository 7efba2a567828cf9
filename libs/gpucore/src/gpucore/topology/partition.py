"""The best group of GPUs, exactly, for machines of up to 16: a dynamic programme over bit masks.

The question, as NVIDIA's reference puts it: partition the free GPUs into groups of the requested
size, with the GPUs left over in one group of their own, so that the sum over all groups is largest;
then take the best whole group of such a partition. Taking the best group outright would be greedy:
it can leave GPUs that no later pod wants together.

For each size of groups a table has the value of the best partition of every set of GPUs that an
answer can leave behind, computed from smaller sets: where GPUs are left over, every choice of them
is tried, otherwise every group with the lowest GPU. An answer tries each group once and looks up
what the other GPUs can still make.

The value of a partition is ``sum * 2**40`` less the squares of the sums of its groups. So the
larger sum wins, and of equal sums the partition whose groups are most alike: pods that come later
are then served alike, which is also what NVIDIA's tests expect of the pairs of a DGX-1 with V100.
Further ties are decided by the sum of the group, the fewest NUMA nodes and the lowest indexes.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence

from gpucore.topology.gpusets import BATCH, SQUARES, GpuSets, Rows, Scores, parts

Try = tuple[Sequence[int], Sequence[int], int]
"""Values of groups, values of what they leave, and the number of GPUs in their lower half."""


class Partitions:
    """The tables of one kind of machine; :meth:`prepare` computes them.

    Args:
        scores, numas: as in :class:`gpucore.topology.gpusets.GpuSets`.
    """

    def __init__(self, scores: Scores, numas: Sequence[int]) -> None:
        self._sets = GpuSets(scores, numas)
        self._best: dict[int, Rows] = {}
        self._whole: dict[int, int] = {}

    def ready(self, size: int) -> bool:
        """Whether the tables for groups of ``size`` are complete."""
        return size in self._whole

    def prepare(self, sizes: Iterable[int]) -> Iterator[None]:
        """Compute the tables for groups of ``sizes``, with a pause after every small step."""
        if not self._sets.worth:
            yield from self._sets.prepare()
        for size in sizes:
            if not self.ready(size):
                yield from self._prepare(size)
                self._whole[size] = self.best_effort(size, self._sets.every)

    def best_effort(self, size: int, free: int, require: int = 0) -> int:
        """The group with all GPUs of ``require`` that is best for the partition of ``free``."""
        sets, best, low = self._sets, self._best[size], free & 255
        if free == sets.every and not require and size in self._whole:
            return self._whole[size]
        tries = [
            (sets.worth[high], best[free >> 8 ^ high], sets.rank[high], lows)
            for high, lows in sets.groups(free, size, require)
        ]
        tops = [
            max([worth[part] + rest[low ^ part] for part in lows]) for worth, rest, _, lows in tries
        ]
        floor = _floor(max(tops), *divmod(free.bit_count(), size))
        ranks = [
            rank[part]
            for top, (worth, rest, rank, lows) in zip(tops, tries, strict=True)
            if top > floor
            for part in lows
            if worth[part] + rest[low ^ part] > floor
        ]
        return max(ranks) & sets.every

    def bandwidth(self, size: int, free: int, require: int = 0) -> int:
        """The group whose smallest pair is largest, then of the largest sum."""
        rank, groups = self._sets.bandwidth_rank, self._sets.groups(free, size, require)
        return max([rank[high][low] for high, lows in groups for low in lows]) & self._sets.every

    def total(self, size: int, free: int) -> int:
        """The sum of the best partition of ``free``, where ``size`` other GPUs are taken."""
        return _sum_of(self._best[size][free >> 8][free & 255])

    def _prepare(self, size: int) -> Iterator[None]:
        """The value of the best partition of every set that a group of ``size`` can leave."""
        worth = self._sets.worth
        if 1 < size < self._sets.every.bit_count() - size:
            best = [list(row) for row in worth]
            for high in range(len(best)):
                yield from self._prepare_row(best, high, size)
                yield
            finished = []
            for row in best:
                finished.append(array("q", row))
                row.clear()
                yield
            self._best[size] = finished
        else:
            self._best[size] = worth if size > 1 else [[0] * len(worth[0])] * len(worth)

    def _prepare_row(self, best: list[list[int]], high: int, size: int) -> Iterator[None]:
        """The values of all sets with this upper half, from those of smaller sets."""
        row, equal, inside = best[high], self._sets.equal[high], parts()
        gpus, mine = self._sets.every.bit_count(), high.bit_count()
        tries = [self._tries(best, high, size, over) for over in range(size)]
        for count, lows in enumerate(inside[len(row) - 1]):
            if size < count + mine <= gpus - size:
                tried = tries[(count + mine) % size]
                for at, low in enumerate(lows):
                    if same := equal[low]:
                        row[low] = best[same >> 8][same & 255]
                        continue
                    values = [
                        worth[part] + rest[low ^ part]
                        for worth, rest, number in tried
                        for part in inside[low][number]
                    ]
                    row[low] = max(values)
                    if not at % BATCH:
                        yield

    def _tries(self, best: Rows, high: int, size: int, over: int) -> list[Try]:
        """The upper halves of the groups to try in sets with the upper half ``high``.

        Where GPUs are left over these are the leftover groups, otherwise those with the lowest GPU.
        """
        lowest = 1 << high.bit_length() - 1 if high and not over else 0
        wanted = over or size - lowest.bit_count()
        return [
            (self._sets.worth[upper | lowest], best[high ^ lowest ^ upper], wanted - number)
            for number, uppers in enumerate(parts()[high ^ lowest][: wanted + 1])
            for upper in uppers
        ]


def _sum_of(value: int) -> int:
    return -(-value >> SQUARES)


def _floor(most: int, count: int, over: int) -> int:
    """Partitions above this value are the best: those of equal groups, or all of the same sum.

    Args:
        most: the largest value.
        count, over: its number of whole groups, and of GPUs left over.
    """
    total = _sum_of(most)
    squares = (total << SQUARES) - most
    equal = not over and squares * count == total * total
    return most - 1 if equal else total - 1 << SQUARES
