"""What-if answers "likely" where kube-scheduler may decide otherwise, and names the reason."""

import json

import pytest
from corebuilders import ledger, make_gpus, share_node

from gpucore.explain.answers import Answer, answers, evaluated_nodes
from gpucore.explain.whatif_documents import what_if_document
from gpucore.model import ContainerRequest, PodRequest
from gpucore.model.constraints import CandidateNode, PodConstraints
from gpucore.scheduling.candidates import Candidates
from gpucore.scheduling.cluster_policy import ClusterPolicy
from gpucore.simulate.questions import question_of, requested_pods
from gpucore.simulate.whatif import WhatIfPod
from gpucore.steps import complete
from gpucore.units import NodeName
from gpucore.wire.names import DEFAULT_NAMES, POD_GROUP, POD_GROUP_SIZE

SHARE = PodRequest((ContainerRequest(4),), mem=4)


def answer(nodes: int, policy: ClusterPolicy = ClusterPolicy(), **of_pod: object) -> Answer:  # noqa: B008 - frozen
    """What becomes of one pod on so many empty nodes."""
    names = [NodeName(f"n{number:03}") for number in range(nodes)]
    book = ledger(*(share_node(name, make_gpus(8)) for name in names))
    cluster = Candidates(book.nodes(), {name: CandidateNode(name) for name in names})
    (found,) = complete(answers(cluster, [WhatIfPod("p", SHARE, **of_pod)], policy))
    return found


ALL = ClusterPolicy(candidates=1, percentage=100)


@pytest.mark.parametrize(
    ("nodes", "policy", "of_pod", "reasons"),
    [
        (2, ALL, {}, ()),
        (150, ALL, {}, ()),
        (2, ClusterPolicy(candidates=0), {}, ("kube-scheduler chooses among 2 nodes",)),
        (5, ClusterPolicy(candidates=3), {}, ("kube-scheduler chooses among 3 nodes",)),
        (1, ClusterPolicy(candidates=0), {}, ()),
        (150, ClusterPolicy(), {}, ("kube-scheduler evaluates 100 of 150 nodes",)),
        (
            2,
            ClusterPolicy(candidates=0),
            {"constraints": PodConstraints(preferences=("preferred node affinity",))},
            ("kube-scheduler weighs preferred node affinity",),
        ),
        (
            1,
            ALL,
            {"constraints": PodConstraints(unsupported=("host ports",))},
            ("not evaluated: host ports",),
        ),
        (2, ALL, {"gang": True}, ("the pods of its gang are placed together",)),
    ],
)
def test_an_answer_names_what_may_make_it_wrong(
    nodes: int, policy: ClusterPolicy, of_pod: dict[str, object], reasons: tuple[str, ...]
) -> None:
    """Certain only where the extender alone decides and sees every node."""
    found = answer(nodes, policy, **of_pod)
    assert found.likely == reasons
    (item,) = complete(what_if_document([found], policy)).items
    assert (item.likely, item.likely_because) == (bool(reasons), list(reasons))
    assert item.text.startswith("likely ") == bool(reasons)


@pytest.mark.parametrize(
    ("nodes", "percentage", "expected"),
    [
        (50, 1, 50),
        (100, 0, 100),
        (1000, 0, 420),
        (5000, 0, 500),
        (9000, 0, 450),
        (1000, 1, 100),
        (1000, 30, 300),
        (1000, 100, 1000),
    ],
)
def test_kube_scheduler_evaluates_a_part_of_a_large_cluster(
    nodes: int, percentage: int, expected: int
) -> None:
    """By its own formula, at least 100 nodes."""
    assert evaluated_nodes(nodes, percentage) == expected


@pytest.mark.parametrize("gang", [True, False])
def test_a_pod_of_a_gang_in_a_manifest_is_known_as_one(gang: bool) -> None:
    """Its labels say so."""
    box = {"name": "c", "resources": {"limits": {DEFAULT_NAMES.gpu_mem: "4"}}}
    labels = {POD_GROUP: "g", POD_GROUP_SIZE: "2"} if gang else {}
    metadata = {"name": "p", "labels": labels}
    pod = {"kind": "Pod", "metadata": metadata, "spec": {"containers": [box]}}
    requested = requested_pods(json.dumps({"manifests": [pod]}).encode(), DEFAULT_NAMES)
    (whatif_pod,) = question_of(requested, DEFAULT_NAMES).whatif_pods
    assert whatif_pod.gang is gang
