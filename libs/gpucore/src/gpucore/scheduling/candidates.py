"""A pending pod and the nodes of a cluster: which nodes admit it, now and after pods have ended."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from gpucore.accounting.claim_offers import ClaimOffers
from gpucore.accounting.node_info import NodeInfo
from gpucore.accounting.node_infos import NodeInfos
from gpucore.kubescheduler.candidate_nodes import CandidateNodes
from gpucore.kubescheduler.node_fit import constraint_refusals
from gpucore.model import Code, FitError, PodRequest
from gpucore.model.constraints import (
    UNCONSTRAINED,
    CandidateNode,
    PodConstraints,
    Resources,
)
from gpucore.scheduling.fit import admit
from gpucore.steps import Steps
from gpucore.units import NodeName, PodUid

PODS_A_STEP: Final = 100


class PodRequirements(msgspec.Struct, frozen=True):
    """GPU request and scheduling constraints of a pod."""

    pod_request: PodRequest
    constraints: PodConstraints = UNCONSTRAINED


class Candidates(msgspec.Struct, frozen=True):
    """The nodes that a pod could go to.

    Attributes:
        node_infos: allocations of GPUs by node.
        nodes: the same nodes as kube-scheduler's own rules see them.
        requests: of pods that are bound or about to be.
        offers: what the nodes offer to claims.
    """

    node_infos: Mapping[NodeName, NodeInfo]
    nodes: Mapping[NodeName, CandidateNode]
    requests: Mapping[PodUid, Resources] = {}
    offers: ClaimOffers = ClaimOffers()

    def refusal(self, name: NodeName, pod: PodRequirements) -> FitError | None:
        """Why the node does not admit the pod; ``None`` when it does."""
        return self.refusal_of(self.node_infos[name], self.nodes[name], pod)

    def refusal_of(
        self, node_info: NodeInfo, node: CandidateNode, pod: PodRequirements
    ) -> FitError | None:
        """The same of a node with other allocations and requests."""
        return admit(node_info, pod.pod_request, node, pod.constraints)

    def filled(self, node_info: NodeInfo) -> NodeInfo:
        """The allocations of a node with all that is kept from the pod."""
        return node_info

    def blockers(self, name: NodeName, pod: PodRequirements) -> Iterator[FitError]:
        """Every rule of kube-scheduler's own that keeps the pod off the node."""
        return constraint_refusals(self.nodes[name], pod.constraints)

    def only_resources_block(self, name: NodeName, pod: PodRequirements) -> bool:
        """Nothing but resources that other pods hold keeps the pod off this node, besides GPUs."""
        return all(
            one.code is Code.INSUFFICIENT_RESOURCES and not one.unresolvable
            for one in self.blockers(name, pod)
        )

    def admits_without(
        self, name: NodeName, pod: PodRequirements, ended: Collection[PodUid]
    ) -> NodeInfo | None:
        """The node once these pods have ended, :meth:`filled`, where it admits the pod then."""
        node_info, node = self.node_infos[name].copy(), self.nodes[name]
        for uid in ended:
            node_info.drop(uid)
            node = node.plus(self.requests.get(uid, ()), pods=-1)
        return None if self.refusal_of(node_info, node, pod) else self.filled(node_info)


def candidates_of(
    ledger: NodeInfos, known: CandidateNodes, *, copies: bool, without: PodUid | None = None
) -> Steps[Candidates]:
    """Every node of the cluster, by name.

    Args:
        known: the nodes of the same cluster with the requests of their pods.
        copies: take a copy of each node's allocations, where the ledger may change meanwhile.
        without: a pod whose allocation and requests do not count; with ``copies`` only.
    """
    node_infos: dict[NodeName, NodeInfo] = {}
    nodes: dict[NodeName, CandidateNode] = {}
    requests: dict[PodUid, Resources] = {}
    for name in sorted(ledger.node_objects()):
        node_info, node = ledger.node(name), known.node(name)
        if node_info is None or node is None:
            continue
        node_infos[name] = node_info.copy() if copies else node_info
        nodes[name] = node.copy() if copies else node
        if without is not None and without in node_infos[name].allocations:
            node_infos[name].drop(without)
            requested = known.requests(name, (without,))
            nodes[name] = node.plus(requested[without], pods=-1) if requested else nodes[name]
        yield
    for number, (uid, pod) in enumerate(list(known.counted())):
        requests[uid] = pod.requests
        if number % PODS_A_STEP == 0:
            yield
    return Candidates(node_infos, nodes, requests)
