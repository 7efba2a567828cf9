"""Topology policies: one interface for the four ways to choose exclusive GPUs.

* ``simple``: the lowest free indexes.
* ``static``: sets that are configured for the node's type (:mod:`gpucore.topology.static`).
* ``best-effort``: the best group of the best partition of all free GPUs into groups of this size
  (:mod:`gpucore.topology.partition`), so that the others are left with good groups too.
* ``bandwidth``: the group whose smallest pair is largest, because a ring is as fast as its slowest
  link; then the largest sum, then fewest NUMA nodes, then lowest indexes.

Every answer comes with the score of the group and of the best cut of the free GPUs that contains
it, so that policies can be compared by what they leave behind. A machine is exact up to 16 GPUs.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from gpucore.model.links import NVLINK, Matrix
from gpucore.topology.choice import SearchSpace, total
from gpucore.topology.gpusets import MAX_EXACT
from gpucore.topology.static import STATIC_SETS, StaticSets
from gpucore.units import GpuIndex, counted

MAX_RATING: Final = 10
"""The best mark a node can get from a scheduler extender."""


class GpuGroup(msgspec.Struct, frozen=True):
    """The GPUs for one pod.

    Attributes:
        gpus: in the order containers see them.
        score: sum over the pairs of the group.
        partition_score: sum over all groups of the best cut of the free GPUs that has this one; 0
            where it was not computed.
    """

    gpus: tuple[GpuIndex, ...]
    score: int
    partition_score: int = 0


class Impossible(msgspec.Struct, frozen=True):
    """Why there is no group: a value, not an error."""

    sentence: str


class TopologyRequest(msgspec.Struct, frozen=True):
    """The input of a policy. Valid: enough GPUs are free, with the required ones among them.

    Attributes:
        gpus: the GPUs that are looked at, ascending; those of the machine, or, where it has too
            many for an exact answer, the free ones.
        space: the same GPUs by position.
        free, require: indexes, ascending.
    """

    gpus: tuple[GpuIndex, ...]
    space: SearchSpace
    free: tuple[GpuIndex, ...]
    count: int
    require: tuple[GpuIndex, ...]
    node_type: str | None
    static: Mapping[str, StaticSets]

    def positions(self, gpus: Collection[int]) -> tuple[int, ...]:
        """Where some GPUs are among ``gpus``, ascending."""
        return tuple(at for at, gpu in enumerate(self.gpus) if gpu in gpus)

    def indexes(self, positions: Collection[int]) -> tuple[GpuIndex, ...]:
        """The indexes of some positions."""
        return tuple(self.gpus[at] for at in positions)


Chosen = tuple[GpuIndex, ...] | Impossible
Policy = Callable[[TopologyRequest], Chosen]


def plan(
    matrix: Matrix,
    free: Collection[int],
    count: int,
    require: Collection[int] = (),
    *,
    policy: str = "best-effort",
    node_type: str | None = None,
    static: Mapping[str, StaticSets] | None = None,
    wait: bool = True,
    partition: bool = True,
) -> GpuGroup | Impossible:
    """Choose ``count`` of the GPUs ``free``.

    Args:
        matrix: how the GPUs of the machine are joined.
        free: indexes of the GPUs that can be had.
        require: indexes that must be among the chosen.
        policy: a key of :data:`POLICIES`; ``best_effort`` is understood too.
        node_type: which sets ``static`` uses.
        static: configured sets by node type; they overrule the shipped ones.
        wait: where the tables of a machine of 9 to 16 GPUs are missing, compute them, which can
            take a second; otherwise the answer is a good group, not always the best.
        partition: compute the score of the best cut too, which takes longest of all where a machine
            has more than 16 GPUs.
    """
    choose = POLICIES.get(policy.replace("_", "-"))
    if choose is None:
        return Impossible(f"{policy!r} is not a policy: use {', '.join(POLICIES)}")
    refused = _refused(matrix, set(free), count, set(require))
    if refused is not None:
        return Impossible(refused)
    seen = matrix if len(matrix.gpus) <= MAX_EXACT else matrix.part(_ordered(free))
    question = TopologyRequest(
        seen.gpus,
        SearchSpace(seen.scores, seen.numas, wait),
        _ordered(free),
        count,
        _ordered(require),
        node_type,
        STATIC_SETS if static is None else {**STATIC_SETS, **static},
    )
    gpus = choose(question)
    if isinstance(gpus, Impossible):
        return gpus
    return _scored(question, gpus) if partition else GpuGroup(gpus, matrix.sum_of(gpus))


def rating(group: GpuGroup) -> int:
    """How well a group is joined, 0..10, for a scheduler that compares nodes.

    With m the mean score of its pairs: 10 * m / (m + 100), rounded. So one NVLink more is worth
    most where there are few; PCIe alone rates 1 to 4, NVLink 5 and more. Never falls when a link
    gets better. A single GPU has no links and rates 10 everywhere.
    """
    pairs = len(group.gpus) * (len(group.gpus) - 1) // 2
    if not pairs:
        return MAX_RATING
    whole = group.score + NVLINK * pairs
    return (2 * MAX_RATING * group.score + whole) // (2 * whole)


def _refused(matrix: Matrix, free: set[int], count: int, require: set[int]) -> str | None:
    """One sentence if no policy could answer, else ``None``."""
    if count < 1:
        return f"{counted(count, 'GPU')} requested: a group has at least one"
    if not free <= set(matrix.gpus):
        return f"the machine has no GPU {min(free - set(matrix.gpus))}"
    if not require <= free:
        return f"GPU {min(require - free)} is required but not free"
    if len(require) > count:
        return f"{counted(count, 'GPU')} requested but {len(require)} are required"
    if len(free) < count:
        return f"{counted(count, 'GPU')} requested but {len(free) or 'none'} free"
    return None


def _ordered(gpus: Collection[int]) -> tuple[GpuIndex, ...]:
    return tuple(GpuIndex(gpu) for gpu in sorted(set(gpus)))


def _scored(question: TopologyRequest, gpus: tuple[GpuIndex, ...]) -> GpuGroup:
    space, left = question.space, question.positions(set(question.free).difference(gpus))
    score = total(space.scores, question.positions(gpus))
    return GpuGroup(gpus, score, score + space.total(left, question.count))


def _simple(question: TopologyRequest) -> Chosen:
    """The required GPUs first, as NVIDIA's reference has it, then the lowest free indexes."""
    others = [gpu for gpu in question.free if gpu not in question.require]
    return question.require + tuple(others[: question.count - len(question.require)])


def _static(question: TopologyRequest) -> Chosen:
    sets = question.static.get(question.node_type or "")
    if sets is None:
        return Impossible(
            f"no sets are configured for node type {question.node_type!r}; "
            f"known: {', '.join(sorted(question.static))}"
        )
    gpus = sets.choose(question.free, question.count, question.require)
    if gpus is None:
        return Impossible(
            f"no configured set of {counted(question.count, 'GPU')} is free on"
            f" {question.node_type!r}"
        )
    return tuple(map(GpuIndex, gpus))


def _best_effort(question: TopologyRequest) -> Chosen:
    free, require = question.positions(question.free), question.positions(question.require)
    return question.indexes(question.space.best_effort(free, question.count, require))


def _bandwidth(question: TopologyRequest) -> Chosen:
    free, require = question.positions(question.free), question.positions(question.require)
    return question.indexes(question.space.bandwidth(free, question.count, require))


POLICIES: Final[Mapping[str, Policy]] = {
    "best-effort": _best_effort,
    "simple": _simple,
    "static": _static,
    "bandwidth": _bandwidth,
}
"""The policies by name; the first is the default."""
