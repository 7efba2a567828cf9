"""The best group of cards, exactly, by a search that tries the best group first.

The question (as NVIDIA's reference puts it): cut the free cards into groups of the wanted size, the
cards that are left over forming one group of their own, so that the sum over all groups is largest;
then take the best whole group of such a cut. To take the best group outright would be greedy: it
can leave cards behind that nobody wants together.

The reference lists all cuts, of which 16 cards have millions. Here groups are tried from the best,
and a set of cards is left alone when the tables or :mod:`gpucore.topology.bounds` say that it
cannot give what is needed. Ties are settled by that order: only a strictly better cut replaces an
earlier one, so among equal totals the best group wins, then fewest NUMA nodes, then lowest indexes.
One thing goes before: a cut into groups that are all worth the same, since the pods to come are
then served alike (it is also what NVIDIA's tests expect of the pairs of a DGX-1 with V100). Of
interchangeable cards the lowest are taken, which saves searching what differs in names only. What
is learnt about a set of cards is kept for later questions, and for all sets that are the same but
for the names of their cards (:mod:`gpucore.topology.symmetry`).
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import combinations, groupby
from math import comb
from typing import Final, NamedTuple

from gpucore.topology.groups import Bucket
from gpucore.topology.lanes import LIMIT, best_pairings
from gpucore.topology.subsets import SEARCHED, Scores, Table, table_of

FEW: Final = 25
"""Groups are listed from the free cards rather than looked for among those of the machine where
that makes the list so many times shorter."""


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
        self._ceiling: dict[int, int] = {}
        self._most = table.most(size)
        tabled = size == 2 and self._most is None and table.different > SEARCHED
        self._pairings = best_pairings(table.steps) if tabled and not table.alike else None
        self._stand_in = table.stand_in if table.different < 1 << table.cards else None
        self._inside: dict[int, Callable[[int], int]] = {}

    def best(self, free: int, require: int = 0) -> Best:
        """The best cut of ``free`` that has one whole group with all cards of ``require``."""
        if self._table.alike:
            return self._lowest(free, require)
        if require:
            return self._even(free, self._better(free, -1, require), require)
        if free not in self._answers:
            best = self._exact.get(free) or self._better(free, -1)
            self._answers[free] = self._even(free, best, 0)
        return self._answers[free]

    def total(self, free: int) -> int:
        """The total of the best cut of ``free``."""
        if self._table.alike:
            return self._lowest(free, 0).total
        if self._pairings is not None:
            return self._pairings[free]
        alike = self._table.stand_in(free)
        return (self._exact.get(alike) or self._better(alike, -1)).total

    def _lowest(self, free: int, require: int) -> Best:
        """The answer where all cards are alike: the lowest are as good as any."""
        count, over = divmod(free.bit_count(), self._size)
        mask, sums = require, self._table.sums
        while count and mask.bit_count() < self._size:
            left = free & ~mask
            mask |= left & -left
        return Best(count * sums[mask] + sums[(1 << over) - 1], mask)

    def _even(self, free: int, best: Best, require: int) -> Best:
        """A cut as good as ``best`` whose groups are all worth the same, if there is one."""
        count, over = divmod(free.bit_count(), self._size)
        if count == 0 or over or best.total % count:
            return best
        share = best.total // count
        if self._table.sums[best.mask] == share:
            return best
        alike = next((masks for w, masks in self._table.groups(self._size) if w == share), [])
        groups = [group for group in alike if not group & ~free]
        dead: set[int] = set()
        for group in groups:
            if not require & ~group and _covered(free - group, groups, dead):
                return Best(best.total, group)
        return best

    def _better(self, free: int, needed: int, require: int = 0) -> Best:
        """The best cut of ``free`` if it is more than ``needed``, else that and no group."""
        count, over = divmod(free.bit_count(), self._size)
        if count == 0 or (count == 1 and over == 0):
            return Best(self._table.sums[free], free if count else 0)
        best = self._tried(free, needed, require)
        if not require:
            self._ceiling[self._table.stand_in(free)] = max(best.total, 0)
            if best.total > needed:
                self._exact[free] = best
        return best

    def _tried(self, free: int, best: int, require: int) -> Best:
        """As :meth:`_better`, for more than one group.

        Each cut is looked at from its heaviest group, so all its others weigh no more than that;
        or, where cards are required, from the group that has them.
        """
        count, over = divmod(free.bit_count(), self._size)
        closed = self._table.sums if count + bool(over) == 2 else self._pairings
        alike, others, left = self._table.stand_in(free), count, self._heaviest(over)
        slack = left(alike)
        if require:
            slack, others = slack + (count - 1) * self._heaviest(self._size)(alike), 1
        mask, top = 0, self._most(free) if self._most else LIMIT
        for weight, groups in self._candidates(free, require, first=best < 0):
            most = min(weight * others + slack, top)
            if most <= best:  # so are all groups that follow
                break
            limit = LIMIT if require else weight
            for group in self._fitting(groups, free, require):
                if closed is None:
                    total = weight + self._rest(free - group, left, limit, best - weight)
                else:
                    total = weight + closed[free - group]
                if total > best:
                    best, mask = total, group
                    if best >= most:  # the groups that follow can only be as good
                        break
        return Best(best, mask)

    def _rest(self, free: int, left: Callable[[int], int], limit: int, enough: int) -> int:
        """The total of the best cut of ``free`` if it is more than ``enough``, else up to that.

        Args:
            left: the weight of the best group of as many cards as the cut leaves over.
            limit: no heavier groups need be looked for.
        """
        if self._stand_in is not None:
            free = self._stand_in(free)
        if self._ceiling.get(free, LIMIT) <= enough:
            return enough
        if self._most is not None:
            if self._most(free) <= enough:
                return enough
        else:
            most = self._heaviest(self._size)(free)
            most = limit if limit < most else most  # noqa: FURB136 - min() takes twice as long
            if free.bit_count() // self._size * most + left(free) <= enough:
                return enough
        return (self._exact.get(free) or self._better(free, enough)).total

    def _heaviest(self, size: int) -> Callable[[int], int]:
        if size not in self._inside:
            self._inside[size] = self._table.heaviest(size)
        return self._inside[size]

    def _fitting(self, groups: list[int], free: int, require: int) -> Iterator[int]:
        """Those of ``groups`` that can be had; of equal ones that of the lowest cards."""
        barred, lower = ~free, self._table.lower
        for group in groups:
            if group & barred or require & ~group:
                continue
            if not lower[group & ~require] & free & ~group:
                yield group

    def _candidates(self, free: int, require: int, *, first: bool) -> Iterable[Bucket]:
        """Groups by weight, in the order of preference; those of other cards may be among them."""
        size, cards = self._size, self._table.cards
        wanted, spare = size - require.bit_count(), free & ~require
        if first and comb(spare.bit_count(), wanted) * FEW <= comb(cards, size):
            return self._listed(spare, require, wanted)
        return self._table.groups(size)

    def _listed(self, spare: int, require: int, wanted: int) -> Iterator[Bucket]:
        """Groups of the required cards and ``wanted`` others."""
        sums, nodes = self._table.sums, self._table.nodes
        cards = [1 << card for card in range(self._table.cards) if spare >> card & 1]
        masks = [require + sum(chosen) for chosen in combinations(cards, wanted)]
        masks.sort(key=lambda mask: (nodes[mask].bit_count() or 1) - (sums[mask] << 8))
        return ((weight, list(group)) for weight, group in groupby(masks, sums.__getitem__))


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
