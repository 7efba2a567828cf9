"""The one document that explains a pod: ``gpushare explain pod`` and the extender's ``/api/v1``.

``apiVersion`` is the contract: within a version fields are added and nothing else.
"""

import msgspec

from gpucore.explain.groups import GroupDoc, RefusalDoc, group_doc, refusal_docs
from gpucore.explain.pod_states import Cluster, Explanation
from gpucore.model import PodRequest
from gpucore.scheduling.policy import score
from gpucore.steps import Steps
from gpucore.wire.documents import API_VERSION, Document
from gpucore.wire.pod.gangs import gang_of


class RequestDoc(msgspec.Struct, frozen=True, rename="camel"):
    """What a pod requests, by kubelet's formula; ``fault`` is why no node can take it."""

    mem: int
    core: int
    gpus: int
    gpu_count: int
    policy: str
    fault: str


class ScoreDoc(msgspec.Struct, frozen=True, rename="camel"):
    """A node that admits the pod, and how good it is (0 to 10)."""

    node: str
    score: int


class PodExplanation(Document, frozen=True):
    """Why a pod waits, node by node, or where it is placed.

    ``refused`` has the refusing nodes in groups by reason, ``refusals`` one by one.
    """

    namespace: str
    name: str
    uid: str
    state: str
    request_summary: str
    node: str
    where: str
    why: str
    gpus: list[str]
    faults: list[str]
    scheduler: str
    scheduler_saw_it: bool
    scheduler_message: str
    fits: list[str]
    refused: list[GroupDoc]
    helps: list[str]
    policy: str
    topology_policy: str
    policy_source: str
    text: str
    request: RequestDoc | None
    scores: list[ScoreDoc]
    refusals: list[RefusalDoc]


def pod_explanation(found: Explanation, cluster: Cluster) -> Steps[PodExplanation]:
    """The document of one pod."""
    pod, policy = found.pod, found.policy
    scores = yield from _scores(found, cluster)
    refusals = yield from refusal_docs(found.refusals[name] for name in sorted(found.refusals))
    return PodExplanation(
        api_version=API_VERSION,
        kind="PodExplanation",
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        state=found.state.label,
        request_summary=found.request_summary,
        node=pod.node,
        where=found.where,
        why=found.why,
        gpus=list(found.neighbours),
        faults=list(found.faults),
        scheduler=pod.scheduler_name,
        scheduler_saw_it=bool(pod.node) or found.scheduler_record.scheduler_saw_it,
        scheduler_message=found.scheduler_record.last_message,
        fits=list(found.fits),
        refused=[group_doc(group) for group in found.groups],
        helps=list(found.helps),
        policy=policy.name,
        topology_policy=policy.topology,
        policy_source=policy.source,
        text=_text(found, cluster),
        request=request_doc(found.pod_request) if found.pod_request else None,
        scores=scores,
        refusals=refusals,
    )


def _scores(found: Explanation, cluster: Cluster) -> Steps[list[ScoreDoc]]:
    scores: list[ScoreDoc] = []
    if found.pod_request is None:
        return scores
    name, grouping = found.policy.name, found.policy.grouping
    for node in found.fits:
        node_info = cluster.nodes.node_infos[node]
        scores.append(ScoreDoc(node, score(node_info, found.pod_request, name, grouping=grouping)))
        yield
    return scores


def _text(found: Explanation, cluster: Cluster) -> str:
    """The whole in one sentence."""
    if not found.fits and not found.refusals:
        return found.where or found.state.value
    node_infos = cluster.nodes.node_infos
    count = sum(bool(node_infos[name].devices) for name in (*found.fits, *found.refusals))
    gates = ", once its scheduling gates are removed" if found.gates else ""
    gang = gang_of(found.pod)
    together = f", but only with all {gang.size} pods of gang {gang.name}" if gang else ""
    if gang and gang.is_group:
        together = f", but only with the pods of {gang.name}"
    return f"{len(found.fits)} of {count} nodes with GPUs can take it{gates}{together}"


def request_doc(pod_request: PodRequest) -> RequestDoc:
    """The document of a request."""
    return msgspec.convert(pod_request, RequestDoc, from_attributes=True)
