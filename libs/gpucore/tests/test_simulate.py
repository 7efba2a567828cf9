"""Answers to what-if questions as one document, and what keeps them small."""

import json

import msgspec
import pytest
from corebuilders import NAMES, ledger, legacy_node, pod, pod_request

from gpucore.explain.answers import (
    KINDS,
    MOST_REFUSALS,
    Answer,
    answers,
    notes_of,
    with_added,
)
from gpucore.explain.whatif_documents import WhatIfDoc, what_if_document
from gpucore.kubescheduler.candidate_nodes import CandidateNodes
from gpucore.model.constraints import UNCONSTRAINED
from gpucore.scheduling.candidates import Candidates, candidates_of
from gpucore.scheduling.cluster_policy import ClusterPolicy
from gpucore.simulate.questions import MOST_PODS, question_of, requested_pods
from gpucore.simulate.whatif import SimulatedCluster, WhatIfPod
from gpucore.steps import complete
from gpucore.units import NodeName
from gpucore.wire.errors import WireError

POLICY = ClusterPolicy()


def cluster(count: int) -> Candidates:
    """Nodes of one GPU of 15, with names that sort by number."""
    names = [f"n{number:03}" for number in range(count)]
    nodes = [msgspec.structs.replace(legacy_node(name, 15, 1), ready=True) for name in names]
    return complete(candidates_of(ledger(*nodes), CandidateNodes(NAMES, nodes), copies=False))


def pods_requesting(*amounts: int) -> list[WhatIfPod]:
    """Pods of so many units."""
    return [WhatIfPod(f"w{place}", pod_request(pod("w", mem))) for place, mem in enumerate(amounts)]


def answered(nodes: Candidates, whatif_pods: list[WhatIfPod]) -> list[Answer]:
    """The answers."""
    return complete(answers(nodes, whatif_pods, POLICY))


def document(nodes: Candidates, whatif_pods: list[WhatIfPod]) -> WhatIfDoc:
    """The document."""
    return complete(what_if_document(answered(nodes, whatif_pods), POLICY))


def test_pods_that_fit_nowhere_name_the_first_nodes() -> None:
    """Groups name all nodes; single refusals are the first hundred by name, and counted."""
    [item] = document(cluster(MOST_REFUSALS + 5), pods_requesting(16)).items
    assert [len(group.nodes) for group in item.refused] == [MOST_REFUSALS + 5]
    assert [doc.node for doc in item.refusals] == [f"n{n:03}" for n in range(MOST_REFUSALS)]
    assert item.text == f"fits no node; refusals of 100 of {MOST_REFUSALS + 5} nodes:"


def test_an_equal_pod_is_refused_for_the_same_reasons() -> None:
    """Equal pods with nothing placed in between share their answer under their own names."""
    first, second = answered(cluster(2), pods_requesting(16, 16))
    assert (first.outcome.name, second.outcome.name) == ("w0", "w1")
    assert first.groups is second.groups


def test_a_pod_that_is_placed_changes_later_answers() -> None:
    """The second pod of ten finds the GPU taken; the reasons are those of then."""
    large, placed, again = answered(cluster(1), pods_requesting(16, 10, 16))
    assert placed.fits
    assert (large.groups[0].largest, again.groups[0].largest) == (15, 15)
    refused = answered(cluster(1), pods_requesting(10, 10, 10))[1:]
    assert [each.groups[0].largest for each in refused] == [5, 5]


def test_added_nodes_are_empty_and_open() -> None:
    """A node like a cordoned one admits pods; the cluster itself stays as it is."""
    nodes = cluster(1)
    more = with_added(nodes, count=2, like=NodeName("n000"))
    assert list(more.nodes) == ["n000", "n000+1", "n000+2"]
    assert list(nodes.nodes) == ["n000"]
    assert all(each.fits for each in answered(more, pods_requesting(10, 10, 10)))


def test_verdicts_are_kept_for_a_few_kinds_of_pods() -> None:
    """Many different pods on a large cluster take memory for a few of them only."""
    nodes = cluster(2)
    simulated = SimulatedCluster(nodes.node_infos, nodes=nodes.nodes, kinds=KINDS)
    for whatif_pod in pods_requesting(*range(1, 9)):
        complete(simulated.verdicts_of((whatif_pod.pod_request, UNCONSTRAINED, (), 0)))
    assert len(simulated._known) == len(simulated._stale) == KINDS


def test_a_question_is_read_or_refused_with_a_sentence() -> None:
    """Replicas are numbered; too many pods, equal names and empty requests are refused."""
    body = b'{"pods": [{"name": "a", "mem": 2, "replicas": 2}, {"name": "b", "gpus": 1}]}'
    question = question_of(requested_pods(body, NAMES), NAMES)
    assert [whatif_pod.name for whatif_pod in question.whatif_pods] == [
        "a-0",
        "a-1",
        "b",
    ]
    for bad, words in (
        (b"{", "truncated"),
        (b"{}", "there is no pod"),
        (b'{"pods": [{"name": "a"}]}', "requests nothing"),
        (b'{"manifests": [{"kind": "Pod", "metadata": {"name": "p"}}]}', "requests no GPU"),
        (
            b'{"manifests": [{"kind": "Deployment", "spec": {"replicas": 1e9, "template": {}}}]}',
            "too many",
        ),
        (b'{"manifests": [{"kind": "Pod", "spec": 3}]}', "Pod: a field does not have"),
        (
            b'{"manifests": [{"kind": "Pod", "spec": {"containers": [%s]}}]}'
            % b",".join([b"{}"] * 101),
            "101 containers",
        ),
        (b'{"pods": [{"name": "a", "mem": 1}, {"name": "a", "mem": 1}]}', "must differ"),
        (b'{"pods": [{"name": "%s", "mem": 1}]}' % (b"a" * 254), "length <= 253"),
        (b'{"manifests": [{"kind": "Pod", "metadata": {"name": "%s"}}]}' % (b"a" * 254), "253"),
        (
            b'{"manifests": [{"kind": "Pod", "spec": {"schedulerName": "%s"}}]}' % (b"a" * 254),
            "253",
        ),
        (
            b'{"manifests": [{"kind": "Pod", "spec": {"nodeSelector": {"a": "%s"}}}]}'
            % (b"a" * 513),
            "length <= 512",
        ),
    ):
        with pytest.raises(WireError, match=words):
            question_of(requested_pods(bad, NAMES), NAMES)
    many = ",".join(f'{{"name": "{n}", "mem": 1, "replicas": 150}}' for n in "ab")
    with pytest.raises(WireError, match=f"most is {MOST_PODS}"):
        question_of(requested_pods(f'{{"pods": [{many}]}}'.encode(), NAMES), NAMES)


def test_a_question_may_have_manifests() -> None:
    """Objects of the Kubernetes API, with what their pods require besides GPUs."""
    container = {"resources": {"limits": {NAMES.gpu_mem: 2}}}
    spec = {"containers": [container], "nodeSelector": {"zone": "a"}, "resourceClaims": [{}]}
    made = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": spec}}}
    found = question_of(requested_pods(json.dumps({"manifests": [made]}).encode(), NAMES), NAMES)
    [whatif_pod] = found.whatif_pods
    assert whatif_pod.constraints.node_selector == (("zone", "a"),)
    [wanted] = found.wanted
    assert list(notes_of(wanted, NAMES)) == ["j: not evaluated: resource claims"]


def test_an_answer_for_pods_of_a_gang_states_that_each_is_placed_by_itself() -> None:
    """The cluster places all of them or none, so that a count of those that fit is no promise."""
    container = {"resources": {"limits": {NAMES.gpu_mem: 2}}}
    labels = {"gpu-topology": "train", "gpu-topology-replica": "4"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    made = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}
    body = json.dumps({"manifests": [made]}).encode()
    [wanted] = question_of(requested_pods(body, NAMES), NAMES).wanted
    assert list(notes_of(wanted, NAMES)) == [
        "j: the pods of a gang are placed together or not at all, but here each is placed by itself"
    ]


def test_a_daemon_set_is_refused_over_http() -> None:
    """It has as many pods as the cluster has nodes, which are too many for a server."""
    container = {"resources": {"limits": {NAMES.gpu_mem: 2}}}
    spec = {"template": {"spec": {"containers": [container]}}}
    made = {"kind": "DaemonSet", "metadata": {"name": "d"}, "spec": spec}
    body = json.dumps({"manifests": [made]}).encode()
    with pytest.raises(WireError, match=r"d: .* DaemonSet, is evaluated by the command gpushare"):
        requested_pods(body, NAMES)
