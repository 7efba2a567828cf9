"""The best node for each of many pods is the one that a look at every node finds."""

from collections.abc import Sequence

import msgspec
import pytest
from corebuilders import NAMES, ledger, make_gpus, pod, pod_request, share_node
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucore.accounting.ledger import Ledger
from gpucore.kubescheduler.candidate_nodes import CandidateNodes
from gpucore.model import FitError
from gpucore.model.constraints import PodConstraints
from gpucore.scheduling.candidates import PodRequirements
from gpucore.scheduling.grouping import BY_LINKS
from gpucore.scheduling.node_ranking import NodeRanking, Rating, rate_node
from gpucore.scheduling.policy import place
from gpucore.units import NodeName, PodUid
from gpucore.wire.node.spec import Node

POLICIES = ("binpack", "spread", "fragmentation")


def ready(name: str, *units: int) -> Node:
    """A node that takes pods, with GPUs of these sizes."""
    return msgspec.structs.replace(share_node(name, make_gpus(*units)), ready=True)


class Cluster:
    """A ledger, its candidate nodes, and a ranking of them."""

    def __init__(self, sizes: Sequence[Sequence[int]], policy: str) -> None:
        nodes = [ready(f"n{i}", *each) for i, each in enumerate(sizes)]
        self.policy = policy
        self.ledger: Ledger = ledger(*nodes)
        self.candidates = CandidateNodes(NAMES)
        for node in nodes:
            self.candidates.node_changed(node)
        self.ranking = NodeRanking(self.rate)

    def rate(self, name: NodeName, kind: PodRequirements) -> Rating | None:
        """How good a node is."""
        node_info, node = self.ledger.node(name), self.candidates.node(name)
        assert node_info is not None
        assert node is not None
        return rate_node(node_info, node, kind, self.policy, BY_LINKS)

    def best(self, kind: PodRequirements) -> NodeName | None:
        """As the ranking does."""
        for _ in self.ranking.refresh(kind, self.ledger.nodes):
            pass
        return self.ranking.best(kind)

    def scanned(self, kind: PodRequirements) -> NodeName | None:
        """The first of the best, by a look at every node."""
        best: tuple[Rating, NodeName] | None = None
        for name in self.ledger.nodes():
            rating = self.rate(name, kind)
            if rating is not None and (best is None or rating > best[0]):
                best = rating, name
        return best[1] if best else None


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.lists(st.integers(1, 16), min_size=1, max_size=3), min_size=1, max_size=6),
    requested=st.lists(st.integers(1, 16), min_size=1, max_size=25),
    ends=st.lists(st.booleans(), min_size=25, max_size=25),
    policy=st.sampled_from(POLICIES),
)
def test_each_pod_gets_the_best_node(
    sizes: Sequence[Sequence[int]], requested: Sequence[int], ends: Sequence[bool], policy: str
) -> None:
    """Pods of any order, some of which end again, and none is nominated to memory that is taken."""
    cluster = Cluster(sizes, policy)
    for number, (mem, ended) in enumerate(zip(requested, ends, strict=False)):
        item = pod(f"p{number}", mem)
        kind = PodRequirements(pod_request(item))
        name = cluster.best(kind)
        assert name == cluster.scanned(kind)
        if name is None:
            continue
        placement = place(cluster.ledger.nodes()[name], kind.pod_request, policy)
        assert not isinstance(placement, FitError)
        cluster.ledger.nominate(item, placement, now_ns=1)
        cluster.ranking.node_changed(name)
        assert not cluster.ledger.nodes()[name].overfull
        if ended:
            cluster.ledger.pod_gone(item.uid)
            cluster.ranking.node_changed(name)


def test_a_node_without_cpu_is_not_chosen() -> None:
    """What reserved pods request of a node counts until they are released."""
    cluster = Cluster([[16], [16]], "binpack")
    for number in (0, 1):
        node = ready(f"n{number}", 16)
        node.allocatable["cpu"] = "1"
        cluster.candidates.node_changed(node)
    kind = PodRequirements(pod_request(pod("p", 1)), PodConstraints(requests=(("cpu", 600),)))
    assert cluster.best(kind) == "n0"
    cluster.candidates.on_change = cluster.ranking.node_changed
    cluster.candidates.reserve(PodUid("u"), NodeName("n0"), (("cpu", 600),))
    assert cluster.best(kind) == "n1"
    cluster.candidates.release(PodUid("u"))
    assert cluster.best(kind) == "n0"


def test_kinds_that_were_not_requested_lately_are_dropped() -> None:
    """What is kept is bounded, whatever pods are created."""
    cluster = Cluster([[16]], "binpack")
    for mem in range(1, 100):
        cluster.best(PodRequirements(pod_request(pod("p", mem))))
    assert len(cluster.ranking) == 64
