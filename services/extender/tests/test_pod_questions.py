"""Questions about pods after any history of the cluster: the answers of a fresh list."""

import json
from random import Random
from typing import Any, cast

import pytest
from oddclusters import odd_cluster, odd_manifest, odd_question
from podapi import OnePod

from gpucore.accounting.ledger import Ledger, rebuilt
from gpucore.explain.answers import answers, notes_of
from gpucore.explain.documents import PodExplanation, pod_explanation
from gpucore.explain.pod_states import Cluster, PodFacts
from gpucore.explain.pods import explain_pod
from gpucore.explain.whatif_documents import what_if_document
from gpucore.gang.members import Member, member_of, members_of
from gpucore.kubescheduler.candidate_nodes import CandidateNodes
from gpucore.scheduling.candidates import candidates_of
from gpucore.scheduling.cluster_policy import ClusterPolicy
from gpucore.scheduling.pending_pods import nominations_of
from gpucore.simulate.questions import question_of, requested_pods
from gpucore.steps import complete
from gpucore.wire.constraints import pod_constraints
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.node.spec import decode_node
from gpucore.wire.pod.gangs import gang_of
from gpucore.wire.pod.scheduler_events import scheduler_record
from gpucore.wire.pod.spec import Pod, decode_pod
from gpucore.wire.whole_requests import pod_request_of
from gpuextender.http.readapi import PodQuestions
from gpuextender.settings import SOURCE
from gpuextender.state import State
from gpukube.client import KubeClient
from gpukube.server.time_slices import TimeSlices

Object = dict[str, Any]
SEEDS = range(120)
POLICY = ClusterPolicy("spread", source=SOURCE)


def encoded(item: object) -> bytes:
    """An object as the API server writes it."""
    return json.dumps(item).encode()


def followed(random: Random, nodes: list[Object], pods: list[Object]) -> State:
    """The state after events in any order, with repeats, and pods that came and went."""
    state = State(DEFAULT_NAMES)
    events = [*pods, *pods[::2]]
    random.shuffle(events)
    for item in random.sample(nodes, len(nodes)):
        state.node_changed(decode_node(encoded(item)))
    for item in events:
        state.pod_changed(decode_pod(encoded(item)))
        passing = item | {"metadata": item["metadata"] | {"name": "gone", "uid": "uid-gone"}}
        gone = decode_pod(encoded(passing))
        state.pod_changed(gone)
        state.pod_gone(gone)
    return state


def listed(nodes: list[Object], pods: list[Object]) -> Cluster:
    """The cluster of one list."""
    there = [decode_pod(encoded(item)) for item in pods]
    ledger = rebuilt(DEFAULT_NAMES, [decode_node(encoded(item)) for item in nodes], there)
    bound = CandidateNodes(DEFAULT_NAMES, ledger.node_objects().values(), there)
    nodes = candidates_of(ledger, bound, copies=False)
    nominations = nominations_of(there, DEFAULT_NAMES)
    return Cluster(ledger, complete(nodes), POLICY, nominations)


def expected(item: Object, pods: list[Object], cluster: Cluster) -> PodExplanation:
    """The document of a pod of that list."""
    raw = encoded(item)
    pod, names = decode_pod(raw), DEFAULT_NAMES
    pod_request = pod_request_of(pod, names)
    there = [decode_pod(encoded(each)) for each in pods]
    facts = PodFacts(
        pod,
        pod_request,
        pod_constraints(raw, names),
        scheduler_record(raw),
        "",
        gang(pod, there, cluster),
    )
    return complete(pod_explanation(complete(explain_pod(facts, cluster)), cluster))


def gang(pod: Pod, pods: list[Pod], cluster: Cluster) -> Any:
    """The members of its gang."""
    its, ledger = gang_of(pod), cluster.ledger
    if its is None:
        return None
    members = [
        member
        for each in pods
        if gang_of(each) is not None and (member := member_of(each, DEFAULT_NAMES)) is not None
    ]
    held = [member.pod.uid for member in members if ledger.allocation(member.pod.uid)]
    return members_of(Member(pod, pod_request_of(pod, DEFAULT_NAMES)), members, held)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
async def test_any_history_ends_in_the_answer_of_a_list(seed: int) -> None:
    """Explanations of every pod, and what-if, are equal to the last field."""
    random = Random(seed)
    nodes, pods = odd_cluster(random)
    state = followed(random, nodes, pods)
    cluster = listed(nodes, random.sample(pods, len(pods)))
    before = shown(state.ledger)
    for item in pods:
        questions = PodQuestions(state, cast("KubeClient", OnePod(item)), POLICY)
        metadata = item["metadata"]
        found = await questions.explain(metadata["namespace"], metadata["name"], TimeSlices())
        requests_gpus = pod_request_of(decode_pod(encoded(item)), DEFAULT_NAMES) is not None
        assert found == (expected(item, pods, cluster) if requests_gpus else None)
    body = {"pods": odd_question(random), "manifests": [odd_manifest(random)]}
    question = question_of(requested_pods(encoded(body), DEFAULT_NAMES), DEFAULT_NAMES)
    nominations = cluster.nominations
    outcome = answers(cluster.nodes, question.whatif_pods, POLICY, nominations=nominations)
    notes = [note for each in question.wanted for note in notes_of(each, DEFAULT_NAMES)]
    document = complete(what_if_document(complete(outcome), POLICY, notes))
    assert await questions.what_if(question, TimeSlices()) == document
    assert shown(state.ledger) == before


def shown(ledger: Ledger) -> dict[str, Any]:
    """What pods hold."""
    return dict(ledger.allocations())
