"""Which of the nodes that fit a pod are the best by the GPU policy.

kube-scheduler adds scores of its own to those of an extender, and those of an extender have eleven
steps. A reply with only the best nodes leaves it nothing to decide otherwise.
"""

from collections.abc import Sequence
from heapq import nlargest, nsmallest
from typing import Any

from gpucore.accounting.node_info import NodeInfo
from gpucore.model import FitError, PodRequest
from gpucore.scheduling.grouping import Grouping
from gpucore.scheduling.policy import place, rate
from gpucore.units import NodeName


def node_rating(
    node_info: NodeInfo, pod_request: PodRequest, policy: str, grouping: Grouping
) -> tuple[float, ...]:
    """How good a node is for a pod by the policy that holds; empty where it does not fit."""
    placement = place(node_info, pod_request, policy, grouping=grouping)
    if isinstance(placement, FitError):
        return ()
    return rate(node_info, pod_request, placement, policy, grouping=grouping)


def best_nodes(names: Sequence[NodeName], ratings: Sequence[Any], limit: int) -> Sequence[NodeName]:
    """The ``limit`` nodes with the highest ratings; of equal ones the first by name.

    Args:
        names: of nodes that fit.
        ratings: of these nodes; all of one type that compares.
        limit: at least 1.
    """
    if len(names) <= limit:
        return names
    last = nlargest(limit, ratings)[-1] if limit > 1 else max(ratings)
    equal = [name for name, rating in zip(names, ratings, strict=True) if rating == last]
    if limit == 1:
        return [min(equal)]
    better = [name for name, rating in zip(names, ratings, strict=True) if rating > last]
    return [*better, *nsmallest(limit - len(better), equal)]
