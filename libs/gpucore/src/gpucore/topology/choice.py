"""The two searching policies over the GPUs of one machine: exact, or grown GPU by GPU.

GPUs are positions here, from 0 without a gap. The tables of a kind of machine are computed once.
For at most 8 GPUs that takes less than a request may, so they are computed where they are missing.
For 9 to 16 GPUs a caller that must not wait has them prepared (:func:`prepare`); until then, and
for more than 16 GPUs, groups are grown: from every free GPU one by the GPU that is joined best to
those it has, of which the best is taken. Not promised: the best group there is.
"""

from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from gpucore.topology.gpusets import MAX_EXACT, Scores
from gpucore.topology.partition import Partitions

MAX_IMMEDIATE: Final = 8
"""Maximum number of GPUs for which tables are computed within a request."""

KEPT_LARGE: Final = 8
"""Kinds of machines with more GPUs whose tables are kept."""


class SearchSpace(NamedTuple):
    """The GPUs of a machine in which groups are searched.

    Attributes:
        scores: of their pairs, square and symmetric.
        numas: NUMA node of each, -1 unknown.
        wait: compute missing tables of any size, however long it takes.
    """

    scores: Scores
    numas: tuple[int, ...]
    wait: bool = True

    def best_effort(
        self, free: Collection[int], count: int, require: Collection[int]
    ) -> tuple[int, ...]:
        """The best group of the best partition of ``free``."""
        tables = self._tables(count)
        if tables is None:
            return grow(self.scores, free, count, require)
        return self._positions(tables.best_effort(count, self._mask(free), self._mask(require)))

    def bandwidth(
        self, free: Collection[int], count: int, require: Collection[int]
    ) -> tuple[int, ...]:
        """The group whose smallest pair is largest, then of the largest sum."""
        tables = self._tables(count)
        if tables is None:
            return grow(self.scores, free, count, require)
        return self._positions(tables.bandwidth(count, self._mask(free), self._mask(require)))

    def total(self, free: Collection[int], count: int) -> int:
        """The sum of the best partition of ``free``, where ``count`` other GPUs are taken."""
        tables = self._tables(count)
        if tables is None:
            return cut(self.scores, free, count)
        return tables.total(count, self._mask(free))

    def _tables(self, size: int) -> Partitions | None:
        count = len(self.scores)
        if count > MAX_EXACT:
            return None
        hurried = not self.wait and count > MAX_IMMEDIATE
        tables = (_kept if hurried else _made)(self.scores, self.numas)
        if tables is None or (hurried and not tables.ready(size)):
            return None
        for _ in tables.prepare((size,)):
            pass
        return tables

    def _mask(self, gpus: Collection[int]) -> int:
        return sum(1 << len(self.scores) - 1 - gpu for gpu in gpus)

    def _positions(self, mask: int) -> tuple[int, ...]:
        count = len(self.scores)
        return tuple(gpu for gpu in range(count) if mask >> count - 1 - gpu & 1)


def prepared(scores: Scores, numas: tuple[int, ...]) -> bool:
    """Whether questions about such a machine need no table that takes long to compute."""
    if not MAX_IMMEDIATE < len(scores) <= MAX_EXACT:
        return True
    tables = _kept(scores, numas)
    return tables is not None and all(tables.ready(size + 1) for size in range(len(scores)))


def prepare(scores: Scores, numas: tuple[int, ...]) -> Iterator[None]:
    """Compute what is missing, with a pause after every small step."""
    if not prepared(scores, numas):
        yield from _made(scores, numas).prepare(range(1, len(scores) + 1))


def forget(scores: Scores, numas: tuple[int, ...]) -> None:
    """No such machine is left: give its tables up, so that they push out no others."""
    _large.pop((scores, numas), None)


def _made(scores: Scores, numas: tuple[int, ...]) -> Partitions:
    """The tables of a machine, perhaps none of them computed yet."""
    if len(scores) <= MAX_IMMEDIATE:
        return _small(scores, numas)
    tables = _kept(scores, numas) or Partitions(scores, numas)
    _large[scores, numas] = tables
    while len(_large) > KEPT_LARGE:
        _large.pop(next(iter(_large)), None)
    return tables


def _kept(scores: Scores, numas: tuple[int, ...]) -> Partitions | None:
    """The tables of a large machine if somebody had them made; they become the last used."""
    tables = _large.pop((scores, numas), None)
    if tables is not None:
        _large[scores, numas] = tables
    return tables


_large: Final[dict[tuple[Scores, tuple[int, ...]], Partitions]] = {}
"""Tables of large machines, those used last at the end. A request that must not wait adds none."""


@lru_cache(maxsize=256)
def _small(scores: Scores, numas: tuple[int, ...]) -> Partitions:
    return Partitions(scores, numas)


def grow(
    scores: Scores, free: Collection[int], count: int, require: Collection[int] = ()
) -> tuple[int, ...]:
    """A group of ``count`` GPUs of ``free`` with all of ``require``, in order of index."""
    seeds = [frozenset(require)] if require else [frozenset({gpu}) for gpu in sorted(free)]
    grown = [_grown(scores, free, count, seed) for seed in seeds]
    return max(grown, key=lambda gpus: total(scores, gpus))


def cut(scores: Scores, free: Collection[int], count: int) -> int:
    """The total of a cut of ``free`` into groups of ``count``, one grown after the other."""
    rest, found = set(free), 0
    while len(rest) > count:
        group = grow(scores, rest, count)
        found += total(scores, group)
        rest -= set(group)
    return found + total(scores, rest)


def total(scores: Scores, gpus: Collection[int]) -> int:
    """The sum over the pairs of ``gpus``."""
    return sum(scores[a][b] for a in gpus for b in gpus if a < b)


def _grown(
    scores: Scores, free: Collection[int], count: int, seed: Collection[int]
) -> tuple[int, ...]:
    group = set(seed)
    joined = {gpu: sum(scores[gpu][member] for member in group) for gpu in sorted(free)}
    while len(group) < count:
        added = max((gpu for gpu in joined if gpu not in group), key=joined.__getitem__)
        group.add(added)
        for gpu in joined:
            joined[gpu] += scores[gpu][added]
    return tuple(sorted(group))
