"""Each policy by looking at everything, for the property tests: slow, plain, and independent."""

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations

Square = Sequence[Sequence[int]]


def total(scores: Square, gpus: Collection[int]) -> int:
    """Sum over the pairs."""
    return sum(scores[a][b] for a, b in combinations(sorted(gpus), 2))


def groups(
    free: Collection[int], count: int, require: Collection[int]
) -> Iterator[tuple[int, ...]]:
    """All groups in lexicographic order."""
    for group in combinations(sorted(free), count):
        if set(require) <= set(group):
            yield group


def best_cut(scores: Square, gpus: Collection[int], count: int) -> int:
    """The largest total of a cut of ``gpus``: whole groups, and the rest in one of its own."""
    left = sorted(gpus)
    if len(left) < count:
        return total(scores, left)
    over = len(left) % count
    rests = combinations(left, over)
    return max(
        total(scores, rest) + _whole(scores, [c for c in left if c not in rest], count)
        for rest in rests
    )


def _whole(scores: Square, left: list[int], count: int) -> int:
    if not left:
        return 0
    return max(
        total(scores, (left[0], *others))
        + _whole(scores, [c for c in left[1:] if c not in others], count)
        for others in combinations(left[1:], count - 1)
    )


def _divides(scores: Square, left: list[int], count: int, share: int) -> bool:
    """Whether ``left`` can be cut into groups of ``count`` that are all worth ``share``."""
    return not left or any(
        total(scores, (left[0], *others)) == share
        and _divides(scores, [c for c in left[1:] if c not in others], count, share)
        for others in combinations(left[1:], count - 1)
    )


def spread(numas: Sequence[int], group: Collection[int]) -> int:
    """NUMA nodes that are known to be touched, at least the one it must be on."""
    return max(len({numas[gpu] for gpu in group} - {-1}), 1)


def best_effort(
    scores: Square,
    numas: Sequence[int],
    free: Collection[int],
    count: int,
    require: Collection[int],
) -> tuple[int, ...]:
    """The first group of the largest total, then of equal groups, largest score, fewest nodes."""

    def preference(group: tuple[int, ...]) -> tuple[int, bool, int, int]:
        rest = set(free) - set(group)
        score = total(scores, group)
        whole = score + best_cut(scores, rest, count)
        is_shared = score * len(free) == whole * count
        even = is_shared and _divides(scores, sorted(rest), count, score)
        return whole, even, score, -spread(numas, group)

    return max(groups(free, count, require), key=preference)


def bandwidth(
    scores: Square,
    numas: Sequence[int],
    free: Collection[int],
    count: int,
    require: Collection[int],
) -> tuple[int, ...]:
    """The first group of the largest smallest pair, then largest score, then fewest NUMA nodes."""

    def preference(group: tuple[int, ...]) -> tuple[int, int, int]:
        weakest = min((scores[a][b] for a, b in combinations(group, 2)), default=0)
        return weakest, total(scores, group), -spread(numas, group)

    return max(groups(free, count, require), key=preference)
