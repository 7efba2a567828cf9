"""A good group of GPUs where no tables are: more than 16 GPUs, or tables that are not ready.

From every free GPU a group is grown by the GPU that is joined best to those it has, and the best
of these groups is taken. Not promised: the best group there is.
"""

from collections.abc import Collection, Sequence

Scores = Sequence[Sequence[int]]


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
