"""A pending pod and the nodes of a cluster: which nodes admit it, now and after pods have ended."""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from gpucore.account import NodeAccount
from gpucore.model import Demand, Refusal
from gpucore.scheduling.constraints import (
    UNCONSTRAINED,
    CandidateNode,
    PodConstraints,
    Resources,
)
from gpucore.scheduling.nodefit import admit, constraint_refusals
from gpucore.units import NodeName, PodUid


class PendingPod(msgspec.Struct, frozen=True):
    """What a pod that has no node requests of GPUs, and requires besides."""

    demand: Demand
    constraints: PodConstraints = UNCONSTRAINED


class Candidates(msgspec.Struct, frozen=True):
    """The nodes that a pod could go to.

    Attributes:
        accounts: allocations of GPUs by node.
        nodes: the same nodes as kube-scheduler's own rules see them.
        requests: of bound pods.
    """

    accounts: Mapping[NodeName, NodeAccount]
    nodes: Mapping[NodeName, CandidateNode]
    requests: Mapping[PodUid, Resources] = {}

    def refusal(self, name: NodeName, pod: PendingPod) -> Refusal | None:
        """Why the node does not admit the pod; ``None`` when it does."""
        return admit(self.accounts[name], pod.demand, self.nodes[name], pod.constraints)

    def refusals(self, pod: PendingPod) -> dict[NodeName, Refusal | None]:
        """The answer of every node."""
        return {name: self.refusal(name, pod) for name in self.nodes}

    def blockers(self, name: NodeName, pod: PendingPod) -> Iterator[Refusal]:
        """Every rule of kube-scheduler's own that keeps the pod off the node."""
        return constraint_refusals(self.nodes[name], pod.constraints)

    def admits_without(
        self, name: NodeName, pod: PendingPod, ended: Collection[PodUid]
    ) -> NodeAccount | None:
        """The node's allocations once these pods have ended, where it admits the pod then."""
        account, node = self.accounts[name].copy(), self.nodes[name]
        for uid in ended:
            account.drop(uid)
            node = node.plus(self.requests.get(uid, ()), pods=-1)
        return None if admit(account, pod.demand, node, pod.constraints) else account
