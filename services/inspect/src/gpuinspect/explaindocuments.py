"""The JSON and YAML of ``gpushare explain pod``; versioned as in :mod:`gpuinspect.documents`."""

import msgspec

from gpuinspect.documents import API_VERSION
from gpuinspect.explaining import Explanation, Group
from gpuinspect.layout.explanation import figures


class GroupDoc(msgspec.Struct, frozen=True, rename="camel"):
    """Nodes that refuse the pod for one reason; amounts in ``measure``."""

    code: str
    reason: str
    figures: str
    nodes: list[str]
    largest: int
    asked: int
    measure: str
    example: str
    remedy: str


class PodExplanation(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of ``gpushare explain pod -o json``."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    state: str
    asks: str
    node: str
    where: str
    why: str
    cards: list[str]
    faults: list[str]
    scheduler: str
    scheduler_saw_it: bool
    scheduler_says: str
    fits: list[str]
    refused: list[GroupDoc]
    helps: list[str]
    policy: str
    topology_policy: str
    policy_source: str


def pod_explanation(found: Explanation) -> PodExplanation:
    """The document of one pod."""
    pod = found.pod
    return PodExplanation(
        api_version=API_VERSION,
        kind="PodExplanation",
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        state=found.state.name.title().replace("_", ""),
        asks=found.asks,
        node=pod.node,
        where=found.where,
        why=found.why,
        cards=list(found.neighbours),
        faults=list(found.faults),
        scheduler=pod.scheduler_name,
        scheduler_saw_it=bool(pod.node) or found.sightings.scheduler_saw_it,
        scheduler_says=found.sightings.last_words,
        fits=list(found.fits),
        refused=[group_doc(group) for group in found.groups],
        helps=list(found.helps),
        policy=found.policy.name,
        topology_policy=found.policy.topology,
        policy_source=found.policy.source,
    )


def group_doc(group: Group) -> GroupDoc:
    """The document of one reason."""
    return GroupDoc(
        code=group.code.value,
        reason=group.reason,
        figures=figures(group),
        nodes=list(group.nodes),
        largest=group.largest,
        asked=group.asked,
        measure=group.measure,
        example=group.example,
        remedy=group.remedy,
    )
