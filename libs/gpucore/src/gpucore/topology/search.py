"""The best group of cards, exactly, by a search that tries the best group first.

The question (as NVIDIA's reference puts it): cut the free cards into groups of the wanted size, the
cards that are left over forming one group of their own, so that the sum over all groups is largest;
then take the best whole group of such a cut. To take the best group outright would be greedy: it
can leave cards behind that nobody wants together.

The reference lists all cuts, of which 16 cards have millions. Here groups are tried from the best,
and a set of cards is left alone when the tables say that it cannot give what is needed. Ties are
settled by that order: only a strictly better cut replaces an earlier one, so among equal totals the
best group wins, then fewest NUMA nodes, then lowest indexes. One thing goes before: a cut into
groups that are all worth the same, since the pods to come are then served alike (it is also what
NVIDIA's tests expect of the pairs of a DGX-1 with V100). Of interchangeable cards the lowest are
taken, which saves searching what differs in names only. What is learnt about a set of cards is kept
for later questions.
"""

from bisect import bisect_left, bisect_right
from functools import lru_cache
from typing import NamedTuple

from gpucore.topology.subsets import Group, Scores, Table, table_of, veto


class Best(NamedTuple):
    """The best cut of a set of cards.

    Attributes:
        total: sum over all its groups, in steps.
        mask: the best whole group of it; 0 where it has none.
    """

    total: int
    mask: int


class Search:
    """Questions about groups of one size on one machine. Sets of cards are masks, scores steps."""

    def __init__(self, table: Table, size: int) -> None:
        self._table = table
        self._size = size
        self._answers: dict[int, Best] = {}
        self._exact: dict[int, Best] = {}
        if not table.alike:
            self._groups = table.groups(size)
            self._heaviest = table.heaviest(size if 2 * size <= table.cards else 0)
            self._ceiling = table.ceilings(size)

    def best(self, free: int, require: int = 0) -> Best:
        """The best cut of ``free`` that has one whole group with all cards of ``require``."""
        if self._table.alike:
            return self._lowest(free, require)
        if require:
            return self._even(free, self._best_with(free, require), require)
        if free not in self._answers:
            best = self._exact.get(free) or self._better(free, -1)
            self._answers[free] = self._even(free, best, 0)
        return self._answers[free]

    def _lowest(self, free: int, require: int) -> Best:
        """The answer where all cards are alike: the lowest are as good as any."""
        count, over = divmod(free.bit_count(), self._size)
        mask, sums = require, self._table.sums
        while count and mask.bit_count() < self._size:
            left = free & ~mask
            mask |= left & -left
        return Best(count * sums[mask] + sums[(1 << over) - 1], mask)

    def _best_with(self, free: int, require: int) -> Best:
        best = Best(-1, 0)
        most = self._bound(free, free.bit_count() // self._size - 1)
        for weight, group, _ in self._groups:
            if weight + most <= best.total:  # all groups that follow are lighter still
                break
            if group & ~free or require & ~group:
                continue
            rest = free - group
            if weight + self._bound(rest, rest.bit_count() // self._size) > best.total:
                total = weight + self.total(rest, best.total - weight)
                best = Best(total, group) if total > best.total else best
        return best

    def total(self, free: int, needed: int = -1) -> int:
        """The total of the best cut of ``free``, or anything up to ``needed`` if that is more."""
        if self._table.alike:
            return self._lowest(free, 0).total
        return (self._exact.get(free) or self._better(free, needed)).total

    def _even(self, free: int, best: Best, require: int) -> Best:
        """A cut as good as ``best`` whose groups are all worth the same, if there is one."""
        count, over = divmod(free.bit_count(), self._size)
        if count == 0 or over or best.total % count:
            return best
        share = best.total // count
        if self._table.sums[best.mask] == share:
            return best
        start = bisect_left(self._groups, -share, key=_lightness)
        end = bisect_right(self._groups, -share, key=_lightness)
        groups = [group for _, group, _ in self._groups[start:end] if not group & ~free]
        dead: set[int] = set()
        for group in groups:
            if not require & ~group and _covered(free - group, groups, dead):
                return Best(best.total, group)
        return best

    def _bound(self, free: int, count: int) -> int:
        """No ``count`` groups and rest within ``free`` weigh more than this."""
        over = self._table.heaviest(free.bit_count() % self._size)
        bound = count * self._heaviest[free] + over[free]
        return min(bound, self._ceiling[free])

    def _better(self, free: int, needed: int) -> Best:
        """The best cut of ``free`` if it is more than ``needed``, else that and no group.

        Each cut is looked at from its heaviest group, so all its others weigh no more than that.
        """
        count, over = divmod(free.bit_count(), self._size)
        if count == 0 or (count == 1 and over == 0):
            return Best(self._table.sums[free], free if count else 0)
        sums, heaviest, left = self._table.sums, self._heaviest, self._table.heaviest(over)
        exact, ceiling = self._exact, self._ceiling
        others, is_last = count - 1, count == 1 or (count == 2 and over == 0)
        best, mask, floor = needed, 0, (needed - left[free]) // count
        barred = veto(free)
        for weight, group, bars in self._groups:
            if weight <= floor:  # all groups that follow are lighter still
                break
            if bars & barred:
                continue
            rest = free - group
            if is_last:
                total = weight + sums[rest]
            else:
                if weight + ceiling[rest] <= best:
                    continue
                most = heaviest[rest]
                most = most if most < weight else weight  # noqa: FURB136 - min() doubles the time
                if weight + others * most + left[rest] <= best:
                    continue
                total = weight + (exact.get(rest) or self._better(rest, best - weight)).total
            if total > best:
                best, mask, floor = total, group, (total - left[free]) // count
        ceiling[free] = max(best, 0)
        if best > needed:
            exact[free] = Best(best, mask)
        return Best(best, mask)


def _lightness(group: Group) -> int:
    return -group[0]


def _covered(free: int, groups: list[int], dead: set[int]) -> bool:
    """Whether some of ``groups`` make up ``free`` exactly; ``dead`` remembers what they cannot."""
    if not free:
        return True
    lowest = free & -free
    if free not in dead:
        for group in groups:
            if group & lowest and not group & ~free and _covered(free - group, groups, dead):
                return True
        dead.add(free)
    return False


@lru_cache(maxsize=256)
def search_of(scores: Scores, numas: tuple[int, ...], size: int) -> Search:
    """The search for groups of ``size`` on a machine, made once; see :func:`table_of`."""
    return Search(table_of(scores, numas), size)
