"""The node that is nominated for a pod with claims: the best by the policy, of all that admit it.

kube-scheduler scores cpu and memory of nodes, and not the GPUs of claims. It evaluates the node in
``status.nominatedNodeName`` first, and there it allocates the first devices that fit in the order
of the ResourceSlice. A node is therefore rated with these devices.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from gpucore.claims.device_fit import wanted
from gpucore.claims.node_fit import ClaimNode, ClaimRules, first_fit, ours
from gpucore.kubescheduler.node_fit import avoided, constraint_refusals
from gpucore.model.constraints import MOST_COMPARED, CandidateNode, PodConstraints
from gpucore.scheduling.grouping import Grouping
from gpucore.scheduling.host_rooms import request_on_host
from gpucore.scheduling.node_ranking import Rating
from gpucore.scheduling.policy import rate
from gpucore.wire.claim.claim_specs import ClaimSpec, DeviceClass
from gpucore.wire.constraints import CLAIMS_UNSUPPORTED
from gpucore.wire.pod.spec import Pod

MOST_SELECTED: Final = 4096
"""Characters of all selectors of the claims of a pod, evaluated for each device of each node."""
MOST_CONSTRAINED: Final = 64
"""Devices of a claim, times its constraints and one: each is compared with those before it."""


class ClaimRequirements(msgspec.Struct, frozen=True):
    """What the claims of a pod request and what it requires of its node; equal for equal pods."""

    specs: tuple[ClaimSpec, ...]
    constraints: PodConstraints


def may_be_nominated(pod: Pod) -> bool:
    """Whether the pod has claims and nothing else that only kube-scheduler evaluates.

    Kinds of pods are compared with every node and kept, so that they may not be of any size.
    """
    if not (pod.claims or pod.claim_templates) or pod.constraints is None:
        return False
    if pod.constraints.size > MOST_COMPARED:
        return False
    waits = not (pod.node or pod.finished or pod.terminating or pod.gated)
    return waits and set(pod.constraints.unsupported) <= {CLAIMS_UNSUPPORTED}


def requests_only_our_devices(
    specs: tuple[ClaimSpec, ...], classes: Mapping[str, DeviceClass]
) -> bool:
    """Whether every request names classes that are known and are not of other drivers."""
    choices = [each for spec in specs for request in spec.requests for each in request.choices]
    return bool(choices) and all(
        each.device_class in classes and ours(wanted(each, classes)) for each in choices
    )


def rated_quickly(specs: tuple[ClaimSpec, ...]) -> bool:
    """Whether the claims are small enough to be compared with all nodes."""
    choices = [each for spec in specs for request in spec.requests for each in request.choices]
    if sum(len(text) for each in choices for text in each.selectors) > MOST_SELECTED:
        return False
    return all(_devices(spec) * (len(spec.constraints) + 1) <= MOST_CONSTRAINED for spec in specs)


def _devices(spec: ClaimSpec) -> int:
    """Devices that a claim requests, at most; a request for all that match counts as one."""
    return sum(
        max((max(each.count, 1) for each in request.choices), default=0)
        for request in spec.requests
    )


def rate_for_claims(
    node: ClaimNode,
    candidate: CandidateNode,
    kind: ClaimRequirements,
    classes: Mapping[str, DeviceClass],
    *,
    policy: str,
    grouping: Grouping,
) -> Rating | None:
    """How good a node is for the pod; ``None`` where it does not admit it.

    Args:
        candidate: the same node as kube-scheduler's other filters see it.
        policy: default that the node's label overrules.
    """
    if next(constraint_refusals(candidate, kind.constraints), None) is not None:
        return None
    placement = first_fit(node, ClaimRules(kind.specs, classes))
    if placement is None:
        return None
    request = request_on_host(kind.constraints.requests)
    rated = rate(node.node_info, request, placement, policy, grouping=grouping)
    return -avoided(candidate, kind.constraints), *rated
