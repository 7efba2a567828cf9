"""Whether a node admits a pod: the fit of its GPUs, and kube-scheduler's own rules."""

from typing import Final

from gpucore.accounting.node_info import NodeInfo
from gpucore.kubescheduler.node_fit import constraint_refusals
from gpucore.model import Code, FitError, PodRequest
from gpucore.model.constraints import CandidateNode, PodConstraints
from gpucore.scheduling.fit import fit

_FOR_NO_POD: Final = frozenset(
    {Code.INVALID_REQUEST, Code.NODE_UNKNOWN, Code.NOT_SHARED, Code.NO_INVENTORY}
)
"""Precedes every other rule: the node has no GPUs for this pod."""


def admit(
    node_info: NodeInfo, pod_request: PodRequest, node: CandidateNode, pod: PodConstraints
) -> FitError | None:
    """Why this node does not admit the pod, the first reason only; ``None`` when it does."""
    by_gpus = fit(node_info, pod_request)
    if by_gpus is not None and by_gpus.code in _FOR_NO_POD:
        return by_gpus
    return next(constraint_refusals(node, pod), None) or by_gpus
