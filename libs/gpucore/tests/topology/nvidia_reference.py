"""NVIDIA's best-effort allocation written down plainly: list every cut, keep the first best one.

An independent yardstick for the tests: nothing here is shared with the code under test, and no care
is taken for speed.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

Pairs = dict[tuple[int, int], int]
"""Score of each pair, lower index first."""

Set = tuple[int | None, ...]
"""GPUs, and ``None`` for padding."""


def score(pairs: Pairs, gpus: Sequence[int | None]) -> int:
    """Sum over the pairs of real GPUs."""
    real = sorted(gpu for gpu in gpus if gpu is not None)
    return sum(pairs[pair] for pair in combinations(real, 2))


def sets(gpus: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """All sets of ``size`` GPUs; none of size 0."""
    return list(combinations(gpus, size)) if size else []


def cuts(gpus: Sequence[int], size: int) -> Iterator[list[Set]]:
    """All cuts of ``gpus`` into sets of ``size``; one set may hold all the padding there is."""
    if size <= 0 or size > len(gpus):
        return
    padding = -len(gpus) % size
    yield from _cuts((*gpus, *[None] * padding), size, padding)


def _cuts(left: Set, size: int, padding: int) -> Iterator[list[Set]]:
    if not left:
        yield []
        return
    seen = set()
    for rest in combinations(left[1:], size - 1):
        first = (left[0], *rest)
        if first in seen or first.count(None) not in {0, padding}:
            continue
        seen.add(first)
        remaining = list(left)
        for gpu in first:
            remaining.remove(gpu)
        for others in _cuts(tuple(remaining), size, padding):
            yield [first, *others]


def best_effort(
    pairs: Pairs,
    free: Sequence[int],
    count: int,
    require: Sequence[int] = (),
    *,
    whole: bool = True,
) -> tuple[int, ...]:
    """The GPUs NVIDIA's policy gives, empty where it gives none.

    Args:
        whole: never answer with the padded set (which the original does, and then gives too few).
    """
    if count <= 0 or len(free) < count or len(require) > count or not set(require) <= set(free):
        return ()
    best: list[Set] | None = None
    for cut in cuts(sorted(free), count):
        if not any(set(require) <= set(each) and None not in each for each in cut):
            continue
        if best is None or _total(pairs, cut) > _total(pairs, best):
            best = cut
    if best is None:
        return ()
    fitting = [s for s in best if set(require) <= set(s) and not (whole and None in s)]
    chosen = max(fitting, key=lambda each: score(pairs, each))
    return tuple(gpu for gpu in chosen if gpu is not None)


def _total(pairs: Pairs, cut: list[Set]) -> int:
    return sum(score(pairs, each) for each in cut)
