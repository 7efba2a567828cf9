"""Whether kube-scheduler's own rules admit a pod once others are evicted."""

import pytest

from gpucore.model.constraints import PODS, UNCONSTRAINED, CandidateNode
from gpucore.scheduling.preemption import NodeRules, Victim
from gpucore.units import NodeName, PodUid


@pytest.mark.parametrize(("counted", "admitted"), [(("x",), True), (("y",), False)])
def test_only_a_victim_that_the_node_counts_frees_a_place_for_a_pod(
    counted: tuple[str, ...], *, admitted: bool
) -> None:
    """The watch may not have brought a pod that kube-scheduler proposes."""
    node = CandidateNode(NodeName("n"), allocatable={PODS: 1}, pods=1)
    rules = NodeRules(node, UNCONSTRAINED, {PodUid(uid): () for uid in counted})
    assert rules.admit_without([Victim(PodUid("x"))]) is admitted
