"""Decisions of one node for plain shares of every amount at once.

A plain share is memory of one GPU and nothing else. Pods of many sizes request it, so a caller that
keeps decisions for thousands of nodes keeps these instead of one for each amount. They equal
:func:`gpucore.scheduling.policy.score` and :func:`gpucore.scheduling.fit.fit`.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from gpucore.accounting.device_info import DeviceInfo, ratings_of, utilization
from gpucore.accounting.node_info import NodeInfo
from gpucore.model import CORE_PER_GPU, Code, ContainerRequest, FitError, PodRequest
from gpucore.scheduling.fit import fit, is_plain
from gpucore.scheduling.policy import MAX_SCORE, resolve

MAX_AMOUNT: Final = 511
"""Largest GPU, in units, for which all amounts are computed; GPUs counted in MiB have too many."""
ANY_SHARE: Final = PodRequest((ContainerRequest(1),), mem=1)
"""A plain share of the default policy; its amount does not matter here."""
UNFIT: Final = -1.0
"""Rating of an amount that a node cannot take."""
UNRATED: Final = -2.0
"""Rating where a node has none for all amounts."""
NO_RATINGS: Final[Sequence[float]] = (UNRATED,)
"""Ratings of a node whose ratings do not follow from the amount alone."""
_STATES: Final = 4096
"""States of nodes whose rows are kept; most nodes of a cluster are in one of few states."""
_shared: Final = lru_cache(1 << 16)(float)
"""Equal ratings are one object, so those of thousands of nodes stay in the processor's caches."""
_BY_FULLNESS: Final = frozenset({"binpack", "spread"})


class ShareRefusal(msgspec.Struct, frozen=True):
    """Why a node cannot take a plain share: every GPU lacks free memory or takes no share at all.

    The code is ``INSUFFICIENT_MEMORY``, and preemption may help.

    Attributes:
        least, most: amounts for which this holds.
        refusal: of the least amount; of another one only the requested amount differs.
    """

    least: int
    most: int
    refusal: FitError


def is_plain_share(pod_request: PodRequest) -> bool:
    """Whether it requests memory of one GPU and nothing else."""
    return bool(pod_request.mem) and not pod_request.gpus and is_plain(pod_request)


def share_ratings(node_info: NodeInfo, pod_request: PodRequest, policy: str) -> Sequence[float]:
    """Ratings by amount of memory, from 0 to the units of the largest GPU; the higher the better.

    The rating is the part of the node's GPUs that is in use afterwards
    (:mod:`gpucore.accounting.device_info`), which follows from a few figures of each GPU.

    Args:
        pod_request: a plain share, whose own policy counts and whose amount does not.
        policy: name of the default policy.

    Returns:
        :data:`UNFIT` for amounts that the node cannot take, the amount 0 among them;
        :data:`NO_RATINGS` where the ratings do not follow from the amount alone.
    """
    state = _state(node_info, pod_request, policy)
    return NO_RATINGS if state is None else _ratings(state)


def ratings_for(amount: int, nodes: Sequence[Sequence[float]]) -> list[float]:
    """The rating of one amount on each node, whose ratings :func:`share_ratings` gave."""
    try:
        return [ratings[amount] for ratings in nodes]
    except IndexError:
        return [ratings[amount if amount < len(ratings) else 0] for ratings in nodes]


def share_scores(ratings: Sequence[float]) -> list[int]:
    """Ratings as :func:`gpucore.scheduling.policy.score` gives them; 0 for ``UNFIT``."""
    return list(map(_Scores().__getitem__, ratings))


class _Scores(dict[float, int]):
    """Scores by rating: most nodes have one of a few ratings."""

    def __missing__(self, rating: float) -> int:
        score = self[rating] = max(round(MAX_SCORE * rating), 0)
        return score


def share_refusal(node_info: NodeInfo) -> ShareRefusal | None:
    """Why the node cannot take amounts above its largest free share.

    Up to the size of the smallest GPU, each GPU gives the same reason for all of these amounts.

    Returns:
        ``None`` where the reason does not follow from the amount alone.
    """
    least = node_info.max_allocatable_memory + 1
    most = min((gpu.total for gpu in node_info.devices.values()), default=0)
    if not 0 < least <= most or node_info.reserved_units():
        return None
    refusal = fit(node_info, PodRequest((ContainerRequest(least),), mem=least))
    if refusal is None or refusal.code is not Code.INSUFFICIENT_MEMORY or refusal.unresolvable:
        return None
    return ShareRefusal(least, most, refusal)


class _GpuState(NamedTuple):
    """What a rating depends on; ``core`` is the part of the compute that is in use."""

    open: bool
    free: int
    total: int
    used: int
    core: float

    def in_use(self, more: int = 0) -> float:
        """Part of the GPU that is in use with ``more`` units allocated."""
        return utilization(self.total, self.used + more, self.core)


class _NodeState(NamedTuple):
    """Nodes of equal state share one row, which then stays in the processor's caches."""

    gpus: tuple[_GpuState, ...]
    most: int
    spread: bool


def _state(node_info: NodeInfo, pod_request: PodRequest, policy: str) -> _NodeState | None:
    """``None`` where the ratings do not follow from it."""
    name = resolve(node_info, pod_request, policy).name
    if name not in _BY_FULLNESS or node_info.shape.largest_gpu > MAX_AMOUNT:
        return None
    if node_info.pending_gpus:  # some of its GPUs are left to them
        return None
    gpus = tuple(
        _gpu_state(device) for device in node_info.devices.values() if device.gpu is not None
    )
    return _NodeState(gpus, node_info.max_allocatable_memory, name == "spread")


def _gpu_state(device: DeviceInfo) -> _GpuState:
    core = 1.0 if device.taken else device.core_used / CORE_PER_GPU
    return _GpuState(device.open, device.free, device.total, device.used, core)


@lru_cache(_STATES)
def _ratings(state: _NodeState) -> Sequence[float]:
    """Each GPU, in the order of the policy, takes amounts that are too large for those before."""
    gpus, most, spread = state
    in_use = sum(gpu.in_use() for gpu in gpus)
    ratings = [UNFIT] * (1 + max((gpu.total for gpu in gpus), default=0))
    first = 1
    for gpu in sorted(
        (gpu for gpu in gpus if gpu.open), key=lambda gpu: -gpu.free if spread else gpu.free
    ):
        others, used, total = in_use - gpu.in_use(), gpu.used, gpu.total
        last, least = min(gpu.free, most), min(gpu.core, 1.0)
        # The parts are those of gpu.in_use(amount), without a call for each of many amounts.
        parts = [(used + amount) / total for amount in range(first, last + 1)]
        in_uses = [others + max(least, part) for part in parts]
        ratings[first : last + 1] = ratings_of(in_uses, len(gpus), spread=spread)
        first = max(first, gpu.free + 1)
    return tuple(map(_shared, ratings))
