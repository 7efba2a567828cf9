"""Links between two GPUs, their scores, and the matrix of all pairs of a machine.

Two GPUs may be joined twice: by the PCIe path that they share and by a number of NVLinks. Both are
kept, since both carry traffic, and a pair's score is the sum. Scores can be compared across
machines: a nearer path and one NVLink more always score more. Not covered: bandwidth in bytes; a
matrix orders pairs by their links, not by their speed.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import combinations
from typing import Final

import msgspec

from gpucore.units import GpuIndex

PCIE: Final = {"SYS": 10, "NODE": 20, "PHB": 30, "PXB": 40, "PIX": 50, "PSB": 60}
"""Score of the nearest PCIe ancestor two GPUs share, farthest first."""

NVLINK: Final = 100
"""Score of one NVLink."""

MAX_NVLINKS: Final = 72
"""NVLinks of a pair that count at most: NVML enumerates 36 of a GPU, and further ones are named."""

NAMED_NVLINKS: Final = 999
"""The largest number of NVLinks in a name."""

MAX_SCORE: Final = PCIE["PSB"] + MAX_NVLINKS * NVLINK
"""The most that a pair is ever worth, whatever a file claims."""

WORTH: Final = PCIE | {
    f"NV{count}": min(count, MAX_NVLINKS) * NVLINK for count in range(1, NAMED_NVLINKS + 1)
}
"""Score of every link by its abbreviation."""

NO_LINK: Final = "N-A"
"""The value for a pair without a link."""

Links = Mapping[tuple[int, int], tuple[str, ...]]
"""What joins each pair, lower index first."""


class TopologyError(ValueError):
    """The text describes no topology. The only error of this package."""


def score_of(links: Iterable[str]) -> int:
    """Score of a pair: the sum over all its links; names that are no link count 0."""
    return min(sum(WORTH.get(link, 0) for link in links), MAX_SCORE)


def nvlinks_of(links: Iterable[str]) -> int:
    """NVLinks of a pair."""
    return sum(WORTH.get(link, 0) // NVLINK for link in links)


class Matrix(msgspec.Struct, frozen=True, dict=True):
    """How the GPUs of one machine are joined. Symmetric by construction.

    Attributes:
        gpus: indexes of the GPUs, ascending.
        links: what joins a pair; a pair that is missing has no link.
        numa: NUMA node of a GPU; one that is missing is unknown.
        notes: what was wrong with the description, in words; empty is well.
    """

    gpus: tuple[GpuIndex, ...]
    links: Links = msgspec.field(default_factory=dict)
    numa: Mapping[int, int] = msgspec.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def between(self, a: int, b: int) -> tuple[str, ...]:
        """What joins two GPUs; empty where nothing does, or nothing is known."""
        return self.links.get((min(a, b), max(a, b)), ())

    def score(self, a: int, b: int) -> int:
        """Score of a pair of GPUs."""
        return score_of(self.between(a, b))

    def sum_of(self, gpus: Iterable[int]) -> int:
        """Score of a set of GPUs: the sum over its pairs."""
        ordered = sorted(gpus)
        return sum(self.score(a, b) for i, a in enumerate(ordered) for b in ordered[i + 1 :])

    def slowest_of(self, gpus: Iterable[int]) -> int:
        """Score of the worst joined pair of a set of GPUs; a single GPU has none and scores 0."""
        return min((self.score(a, b) for a, b in combinations(sorted(gpus), 2)), default=0)

    @cached_property
    def scores(self) -> tuple[tuple[int, ...], ...]:
        """Square table of pair scores in the order of ``gpus``, 0 on the diagonal."""
        return tuple(tuple(0 if a == b else self.score(a, b) for b in self.gpus) for a in self.gpus)

    @cached_property
    def numas(self) -> tuple[int, ...]:
        """NUMA node of each GPU in the order of ``gpus``, -1 unknown."""
        return tuple(self.numa.get(gpu, -1) for gpu in self.gpus)

    @cached_property
    def linked(self) -> frozenset[int]:
        """The GPUs that have a link."""
        return frozenset(gpu for pair in self.links for gpu in pair)

    def part(self, gpus: tuple[GpuIndex, ...]) -> "Matrix":
        """The same machine seen as some of its GPUs only."""
        return self if gpus == self.gpus else msgspec.structs.replace(self, gpus=gpus)


def pair_of(key: str) -> tuple[int, int] | None:
    """Read ``"0-1"``; ``None`` for anything else."""
    a, dash, b = key.partition("-")
    if not (dash and a.isascii() and a.isdigit() and b.isascii() and b.isdigit()):
        return None
    return (int(a), int(b)) if len(key) <= 8 else None


def merge(
    gpus: tuple[GpuIndex, ...],
    reports: Iterable[tuple[tuple[int, int], Iterable[str]]],
    *,
    numa: Mapping[int, int] | None = None,
    notes: Iterable[str] = (),
) -> Matrix:
    """One symmetric matrix from reports that may come from both ends of a pair.

    Where the two ends disagree (a link that fails, or is seen from one side only) the weaker report
    counts, so that no request relies on a link that may not exist.
    """
    found_notes, present = list(notes), frozenset(gpus)
    ends: dict[tuple[int, int], dict[bool, tuple[str, ...]]] = {}
    for (a, b), names in reports:
        if a == b or a not in present or b not in present:
            found_notes.append(f"{a}-{b} is not a pair of this machine's GPUs")
            continue
        known = _known(a, b, names, found_notes)
        side = ends.setdefault((min(a, b), max(a, b)), {})
        side[a < b] = (*side.get(a < b, ()), *known)
    links = {pair: _agreed(pair, side, found_notes) for pair, side in sorted(ends.items())}
    links = {pair: names for pair, names in links.items() if names}
    return Matrix(gpus=gpus, links=links, numa=dict(numa or {}), notes=tuple(found_notes))


def _known(a: int, b: int, names: Iterable[str], notes: list[str]) -> tuple[str, ...]:
    unknown = [name for name in names if name not in WORTH and name != NO_LINK]
    notes += [f"{a}-{b}: {name!r} is an unknown kind of link and is ignored" for name in unknown]
    return tuple(name for name in names if name in WORTH)


def _agreed(
    pair: tuple[int, int], side: Mapping[bool, tuple[str, ...]], notes: list[str]
) -> tuple[str, ...]:
    reports = sorted(side.values(), key=score_of)
    if len({frozenset(names) for names in reports}) > 1:
        notes.append(
            f"{pair[0]}-{pair[1]}: the ends report {'+'.join(reports[0]) or 'nothing'} and "
            f"{'+'.join(reports[-1])}, the weaker counts"
        )
    return reports[0]
